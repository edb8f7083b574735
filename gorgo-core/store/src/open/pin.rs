//! The policy that an operator pinned. It serves instead of the default one, in later runs on the same file too.

use sqlx::SqliteConnection;

use crate::open::HistoryDatabase;
use crate::{StoreError, sql};

/// Key in `meta` of the pinned policy's name.
const KEY: &str = "pinned_policy";

/// Stores the pinned policy, or that none is pinned.
pub(crate) async fn write(connection: &mut SqliteConnection, policy: Option<&str>) -> Result<(), sqlx::Error> {
    let query = match policy {
        Some(name) => sqlx::query(sql::PUT_META).bind(KEY).bind(name.to_owned()),
        None => sqlx::query(sql::DROP_META).bind(KEY),
    };
    query.execute(connection).await.map(|_| ())
}

impl HistoryDatabase {
    /// Reads the name of the policy that an earlier run pinned; `None` if none is.
    ///
    /// # Errors
    /// When SQLite fails.
    pub async fn pinned_policy(&mut self) -> Result<Option<String>, StoreError> {
        let found = sqlx::query_scalar(sql::META).bind(KEY).fetch_optional(&mut self.connection).await;
        found.map_err(|cause| StoreError::Sql { path: self.path.clone(), cause })
    }
}
