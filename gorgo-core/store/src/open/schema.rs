//! The embedded migrations, and the checks before they run: the file's program, version and integrity.

use std::path::Path;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{Connection, SqlSafeStr, SqliteConnection};

use crate::error::{WriteFailure, classify_failure};
use crate::table::MIGRATIONS;
use crate::{StoreError, sql};

/// Application id in the header of each database (`gorg`), by which gorgo and `file` recognise it.
const APPLICATION_ID: i64 = 0x676f_7267;

/// Size up to which a file is checked page by page on opening (about 50 ms); damage in larger ones shows when read.
const CHECKED_BYTES: u64 = 64 << 20;

/// Newest migration of this program.
pub(crate) const NEWEST: i64 = MIGRATIONS[MIGRATIONS.len() - 1].0;

/// Builds the migrator of all migrations.
pub(crate) fn migrator() -> Migrator {
    let migrations = MIGRATIONS.iter().map(|(version, name, text)| {
        Migration::new(*version, (*name).into(), MigrationType::Simple, text.into_sql_str(), false)
    });
    Migrator::with_migrations(migrations.collect())
}

/// Classifies an error of a file that is being opened.
pub(crate) fn opening(path: &Path, cause: sqlx::Error) -> StoreError {
    let path = path.to_owned();
    match (crate::error::sqlite_code(&cause), classify_failure(&cause)) {
        // READONLY, FULL, CANTOPEN
        (Some(8 | 13 | 14), _) => StoreError::NotWritable { path, cause: cause.to_string() },
        (_, WriteFailure::Corrupt) => StoreError::Damaged { path, cause: cause.to_string() },
        _ => StoreError::Sql { path, cause },
    }
}

/// Reads the version of the file's schema; 0 for a new file.
pub(crate) async fn version(connection: &mut SqliteConnection, path: &Path) -> Result<i64, StoreError> {
    let failed = |cause| opening(path, cause);
    let tables: i64 = sqlx::query_scalar(sql::TABLE_COUNT).fetch_one(&mut *connection).await.map_err(failed)?;
    let application: i64 = sqlx::query_scalar(sql::APPLICATION_ID).fetch_one(&mut *connection).await.map_err(failed)?;
    // The first migration sets the id, so a new file has neither id nor tables.
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

/// Checks that an existing file is an intact database of this or an older schema. `connection` only reads: a file that
/// is refused stays unchanged to the byte.
pub(crate) async fn examine(connection: &mut SqliteConnection, path: &Path) -> Result<(), StoreError> {
    connection.ping().await.map_err(|cause| opening(path, cause))?;
    let found = version(connection, path).await?;
    // `quick_check` reads every page, so a large file would delay the start by seconds.
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

/// Migrates a file that was examined, or is new.
pub(crate) async fn prepare(connection: &mut SqliteConnection, path: &Path) -> Result<(), StoreError> {
    migrator().run(connection).await.map_err(|cause| match cause {
        // The disk's and SQLite's failures keep their own message and remedy.
        sqlx::migrate::MigrateError::Execute(cause) => opening(path, cause),
        cause => StoreError::Migration { path: path.to_owned(), cause },
    })
}
