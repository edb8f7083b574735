//! Errors of the history database, each with its remedy. No error here ever leads to deleting data.

use std::io;
use std::path::PathBuf;

/// Reason why the store cannot be used. `serve` ends with exit code 74 on each of them.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder of the file is missing or not a folder.
    #[error("store {path}: cannot use its folder ({cause}); create it, or set `store.path`", path = .path.display())]
    Folder {
        /// The database file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The file, or the lock file beside it, cannot be written.
    #[error("store {path}: not writable ({cause}); check owner, mode and free space, or set `store.path`", path = .path.display())]
    NotWritable {
        /// The database file.
        path: PathBuf,
        /// The error of the system or of SQLite.
        cause: String,
    },
    /// The file does not exist, or cannot be read.
    #[error("store {path}: cannot be read ({cause}); check the path and its permissions", path = .path.display())]
    Unreadable {
        /// The database file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// Another process writes this file.
    #[error(
        "store {path}: in use by {holder}; only one router may write a file: stop the other, or set another `store.path`",
        path = .path.display(), holder = .pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    InUse {
        /// The database file.
        path: PathBuf,
        /// The other process, if the lock file names it.
        pid: Option<u32>,
    },
    /// A newer gorgo wrote this file.
    #[error(
        "store {path}: its schema version is {found}, this program knows versions up to {known}; use a newer gorgo, or set another `store.path`",
        path = .path.display()
    )]
    Newer {
        /// The database file.
        path: PathBuf,
        /// Newest migration in the file.
        found: i64,
        /// Newest migration of this program.
        known: i64,
    },
    /// An older gorgo wrote this file, and it is opened for reading only.
    #[error(
        "store {path}: its schema version is {found}, this program reads {known}; start `gorgo serve` on it once to migrate it",
        path = .path.display()
    )]
    Older {
        /// The database file.
        path: PathBuf,
        /// Newest migration in the file.
        found: i64,
        /// Newest migration of this program.
        known: i64,
    },
    /// A database of another program.
    #[error("store {path}: a database of another program; set another `store.path`", path = .path.display())]
    Foreign {
        /// The database file.
        path: PathBuf,
    },
    /// Not a database, or a damaged one.
    #[error(
        "store {path}: damaged, or not a database ({cause}); the file was not changed: move it away to start with a new one, or restore a backup (`sqlite3 FILE .recover` saves the readable rows)",
        path = .path.display()
    )]
    Damaged {
        /// The database file.
        path: PathBuf,
        /// SQLite's error.
        cause: String,
    },
    /// A migration failed, or was changed after it had been applied; the file is unchanged.
    #[error("store {path}: cannot be migrated ({cause}); the file was not changed", path = .path.display())]
    Migration {
        /// The database file.
        path: PathBuf,
        /// The reason.
        cause: sqlx::migrate::MigrateError,
    },
    /// A statement failed.
    #[error("store {path}: {cause}", path = .path.display())]
    Sql {
        /// The database file.
        path: PathBuf,
        /// SQLite's error.
        cause: sqlx::Error,
    },
    /// A row contains a number that has no meaning in this program.
    #[error("store {path}: {table} has {column} = {value}, which this program does not know; read it with the gorgo that wrote it", path = .path.display())]
    UnknownCode {
        /// The database file.
        path: PathBuf,
        /// The code table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// The number.
        value: i64,
    },
    /// At shutdown rows could not be written in time, because of the disk or a lock.
    #[error("store {path}: {rows} rows could not be written before shutdown and are lost ({cause})", path = .path.display())]
    Unwritten {
        /// The database file.
        path: PathBuf,
        /// Number of lost rows.
        rows: u64,
        /// The last failure.
        cause: String,
    },
    /// The writer has ended already.
    #[error("the store's writer has ended")]
    Ended,
}

/// Consequence of a failed statement for the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteFailure {
    /// Another process holds a lock, or the disk is full or does not answer: retrying may succeed later.
    Transient,
    /// The file itself is broken.
    Corrupt,
    /// A retry would fail again.
    Permanent,
}

/// Returns SQLite's primary result code if the error is one of SQLite's.
pub(crate) fn sqlite_code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    // Extended codes keep the primary one in their low byte.
    Some(code & 0xff)
}

/// Sorts a failure by SQLite's result code (<https://www.sqlite.org/rescode.html>).
pub(crate) fn classify_failure(error: &sqlx::Error) -> WriteFailure {
    match sqlite_code(error) {
        // BUSY, LOCKED, NOMEM, READONLY, IOERR, FULL, CANTOPEN, PROTOCOL
        Some(5 | 6 | 7 | 8 | 10 | 13 | 14 | 15) => WriteFailure::Transient,
        // CORRUPT, NOTADB
        Some(11 | 26) => WriteFailure::Corrupt,
        // Broken constraints and values that cannot be encoded, for example, depend on the rows alone.
        _ => WriteFailure::Permanent,
    }
}
