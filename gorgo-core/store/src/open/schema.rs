//! The migrations, embedded, and the checks before they run: whose file it is, which version, whether it is whole.

use std::path::Path;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{Connection, SqlSafeStr, SqliteConnection};

use crate::error::{Failure, failure};
use crate::table::MIGRATIONS;
use crate::{StoreError, sql};

/// `gorg` in the header of each database, so that `file` and we know whose it is.
const APPLICATION_ID: i64 = 0x676f_7267;

/// Files up to this size are checked page by page when they are opened (some 50 ms); larger ones when they are read.
const CHECKED_BYTES: u64 = 64 << 20;

/// The newest migration of this program.
pub(crate) const NEWEST: i64 = MIGRATIONS[MIGRATIONS.len() - 1].0;

/// All migrations.
pub(crate) fn migrator() -> Migrator {
    let migrations = MIGRATIONS.iter().map(|(version, name, text)| {
        Migration::new(*version, (*name).into(), MigrationType::Simple, text.into_sql_str(), false)
    });
    Migrator::with_migrations(migrations.collect())
}

/// Sorts an error of a file that is being opened.
pub(crate) fn opening(path: &Path, cause: sqlx::Error) -> StoreError {
    let path = path.to_owned();
    match (crate::error::sqlite_code(&cause), failure(&cause)) {
        // READONLY, FULL, CANTOPEN
        (Some(8 | 13 | 14), _) => StoreError::NotWritable { path, cause: cause.to_string() },
        (_, Failure::Damage) => StoreError::Damaged { path, cause: cause.to_string() },
        _ => StoreError::Sql { path, cause },
    }
}

/// The version of the file's schema; 0 for a new file.
pub(crate) async fn version(connection: &mut SqliteConnection, path: &Path) -> Result<i64, StoreError> {
    let failed = |cause| opening(path, cause);
    let tables: i64 = sqlx::query_scalar(sql::TABLE_COUNT).fetch_one(&mut *connection).await.map_err(failed)?;
    let application: i64 = sqlx::query_scalar(sql::APPLICATION_ID).fetch_one(&mut *connection).await.map_err(failed)?;
    if tables > 0 && application != APPLICATION_ID {
        return Err(StoreError::Foreign { path: path.to_owned() });
    }
    let migrated: i64 = sqlx::query_scalar(sql::HAS_MIGRATIONS).fetch_one(&mut *connection).await.map_err(failed)?;
    if migrated == 0 {
        return Ok(0);
    }
    let found = sqlx::query_scalar(sql::SCHEMA_VERSION).fetch_one(&mut *connection).await.map_err(failed)?;
    if found > NEWEST {
        return Err(StoreError::Newer { path: path.to_owned(), found, known: NEWEST });
    }
    Ok(found)
}

/// Whether a file that exists is a sound database of this or an older schema. Over a connection that only reads: a file
/// that is refused is left as it was, to the byte.
pub(crate) async fn examine(connection: &mut SqliteConnection, path: &Path) -> Result<(), StoreError> {
    connection.ping().await.map_err(|cause| opening(path, cause))?;
    let found = version(connection, path).await?;
    if found > 0 && std::fs::metadata(path).is_ok_and(|file| file.len() <= CHECKED_BYTES) {
        let verdict: String = sqlx::query_scalar(sql::QUICK_CHECK)
            .fetch_one(&mut *connection)
            .await
            .map_err(|cause| opening(path, cause))?;
        if verdict != "ok" {
            return Err(StoreError::Damaged { path: path.to_owned(), cause: verdict });
        }
    }
    Ok(())
}

/// Brings the schema of a file that was examined, or is new, up to date.
pub(crate) async fn prepare(connection: &mut SqliteConnection, path: &Path) -> Result<(), StoreError> {
    migrator().run(connection).await.map_err(|cause| match cause {
        sqlx::migrate::MigrateError::Execute(cause) => opening(path, cause),
        cause => StoreError::Migration { path: path.to_owned(), cause },
    })
}
