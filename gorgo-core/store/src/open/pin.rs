//! The policy that an operator pinned: it serves instead of the default one, in later runs on the same file too.

use sqlx::SqliteConnection;

use crate::open::Store;
use crate::{StoreError, sql};

/// Where its name stands in `meta`.
const KEY: &str = "pinned_policy";

/// Writes it down, or that none is pinned.
pub(crate) async fn write(connection: &mut SqliteConnection, policy: Option<&str>) -> Result<(), sqlx::Error> {
    let query = match policy {
        Some(name) => sqlx::query(sql::PUT_META).bind(KEY).bind(name.to_owned()),
        None => sqlx::query(sql::DROP_META).bind(KEY),
    };
    query.execute(connection).await.map(|_| ())
}

impl Store {
    /// The name of the policy that an earlier run pinned; `None`: none is.
    ///
    /// # Errors
    /// What SQLite says.
    pub async fn pinned_policy(&mut self) -> Result<Option<String>, StoreError> {
        let found = sqlx::query_scalar(sql::META).bind(KEY).fetch_optional(&mut self.connection).await;
        found.map_err(|cause| StoreError::Sql { path: self.path.clone(), cause })
    }
}
