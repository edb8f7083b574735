//! What can be wrong with the history database, and what to do about it. No error here ever leads to deleting data.

use std::io;
use std::path::PathBuf;

/// Why the store cannot be used. `serve` ends with exit code 74 on each of them.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder of the file is missing or not a folder.
    #[error("store {path}: its folder cannot be used ({cause}); create it, or set `store.path`", path = .path.display())]
    Folder {
        /// The database file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The file, or the lock file beside it, cannot be written.
    #[error("store {path}: not writable ({cause}); check owner, mode and free space, or set `store.path`", path = .path.display())]
    NotWritable {
        /// The database file.
        path: PathBuf,
        /// What the system or SQLite said.
        cause: String,
    },
    /// The file cannot be read, or is not there.
    #[error("store {path}: cannot be read ({cause})", path = .path.display())]
    Unreadable {
        /// The database file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Another process writes this file.
    #[error(
        "store {path}: in use by {holder}; one router writes a file, so stop the other or set another `store.path`",
        path = .path.display(), holder = .pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    InUse {
        /// The database file.
        path: PathBuf,
        /// The other process, where the lock file says.
        pid: Option<u32>,
    },
    /// A newer gorgo wrote this file.
    #[error(
        "store {path}: its schema is {found}, this program knows up to {known}; use the newer program, or set another `store.path`",
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
        "store {path}: its schema is {found}, this program reads {known}; start `gorgo serve` on it once to migrate it",
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
    #[error("store {path}: a database, but not one of gorgo; set another `store.path`", path = .path.display())]
    Foreign {
        /// The database file.
        path: PathBuf,
    },
    /// Not a database, or a damaged one.
    #[error(
        "store {path}: damaged or not a database ({cause}); it was left as it is: move it away to start with a new one, or put a copy back (`sqlite3 FILE .recover` saves what can be read)",
        path = .path.display()
    )]
    Damaged {
        /// The database file.
        path: PathBuf,
        /// What SQLite said.
        cause: String,
    },
    /// A migration failed or was changed after it had been applied; the file is as it was before.
    #[error("store {path}: cannot be migrated ({cause}); it was left as it is", path = .path.display())]
    Migration {
        /// The database file.
        path: PathBuf,
        /// What went wrong.
        cause: sqlx::migrate::MigrateError,
    },
    /// A statement failed.
    #[error("store {path}: {cause}", path = .path.display())]
    Sql {
        /// The database file.
        path: PathBuf,
        /// What SQLite said.
        cause: sqlx::Error,
    },
    /// A row holds a number that this program gives no meaning to.
    #[error("store {path}: {table} holds {column} = {value}, which this program does not know", path = .path.display())]
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
    /// At shutdown the disk or a lock held rows back for too long.
    #[error("store {path}: {rows} rows could not be written before the end ({cause})", path = .path.display())]
    Unwritten {
        /// The database file.
        path: PathBuf,
        /// How many rows are lost.
        rows: u64,
        /// The last failure.
        cause: String,
    },
    /// The writer has ended already.
    #[error("the store's writer has ended")]
    Ended,
}

/// What a failed statement means for the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Somebody holds a lock, the disk is full or not answering: the same rows may be written later.
    Passing,
    /// The file itself is broken.
    Damage,
    /// Trying again would fail again.
    Lasting,
}

/// The primary result code of SQLite, where the failure is one of SQLite's.
pub(crate) fn sqlite_code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}

/// Sorts a failure by SQLite's result code (<https://www.sqlite.org/rescode.html>).
pub(crate) fn failure(error: &sqlx::Error) -> Failure {
    match sqlite_code(error) {
        // BUSY, LOCKED, NOMEM, READONLY, IOERR, FULL, CANTOPEN, PROTOCOL
        Some(5 | 6 | 7 | 8 | 10 | 13 | 14 | 15) => Failure::Passing,
        // CORRUPT, NOTADB
        Some(11 | 26) => Failure::Damage,
        _ => Failure::Lasting,
    }
}
