//! Opening the history database for writing: [`lock`] keeps other writers out, [`schema`] migrates the file, [`run`]
//! begins a run, and [`resume`] and [`pin`] read the state that it continues from.

pub(crate) mod lock;
pub(crate) mod pin;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod schema;

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use self::lock::WriterLock;
use crate::{StoreError, sql};
use gorgo_routing::model::DecisionId;

/// Size to which the write-ahead log is truncated after a checkpoint, bytes.
pub(crate) const WAL_LIMIT_BYTES: u64 = 64 << 20;
const WAL_LIMIT_TEXT: &str = "67108864";

/// Time that a statement waits for another process's lock before it fails and the writer's own pauses begin.
const BUSY: Duration = Duration::from_secs(1);

/// Open database that has no run yet; `begin_run` turns it into a writer.
#[derive(Debug)]
pub struct HistoryDatabase {
    pub(crate) connection: SqliteConnection,
    pub(crate) lock: WriterLock,
    pub(crate) path: PathBuf,
    secret: u64,
    last_decision: Option<DecisionId>,
    unfinished: Option<i64>,
}

/// Opens `path` for writing, creates or migrates it, and locks it against a second writer.
///
/// # Errors
/// When the folder is missing, or the file is in use, not writable, damaged, of another program or of a newer gorgo.
/// The file is not changed then.
pub async fn open(path: &Path) -> Result<HistoryDatabase, StoreError> {
    // The lock first: two processes must not migrate the same file at once.
    let lock = WriterLock::take(path)?;
    let failed = |cause| schema::opening(path, cause);
    if std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0) {
        // A read-only connection cannot change a file that is then refused, not even its journal mode.
        let reading = SqliteConnectOptions::new().filename(path).read_only(true).busy_timeout(BUSY);
        let mut reading = reading.disable_statement_logging().connect().await.map_err(failed)?;
        schema::examine(&mut reading, path).await?;
        reading.close().await.map_err(failed)?;
    }
    let mut connection = options(path).connect().await.map_err(failed)?;
    schema::prepare(&mut connection, path).await?;
    let secret: String =
        sqlx::query_scalar(sql::META).bind("secret").fetch_one(&mut connection).await.map_err(failed)?;
    let secret = u64::from_str_radix(&secret, 16)
        .map_err(|cause| StoreError::Damaged { path: path.to_owned(), cause: format!("meta.secret: {cause}") })?;
    let last: Option<i64> = sqlx::query_scalar(sql::LAST_DECISION).fetch_one(&mut connection).await.map_err(failed)?;
    let unfinished: Option<i64> =
        sqlx::query_scalar(sql::UNFINISHED_RUN).fetch_optional(&mut connection).await.map_err(failed)?;
    let last_decision = last.map(DecisionId);
    Ok(HistoryDatabase { connection, lock, path: path.to_owned(), secret, last_decision, unfinished })
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        // Set before the first table: pruning returns free pages in steps, and VACUUM would copy the whole file.
        .auto_vacuum(SqliteAutoVacuum::Incremental)
        .journal_mode(SqliteJournalMode::Wal)
        // With WAL, a power failure may lose the last transactions, but not corrupt the file. FULL syncs each commit.
        .synchronous(SqliteSynchronous::Normal)
        // A row is kept even if a full queue dropped its parent.
        .foreign_keys(false)
        .pragma("journal_size_limit", WAL_LIMIT_TEXT)
        .busy_timeout(BUSY)
        .disable_statement_logging()
}

impl HistoryDatabase {
    /// Secret of this database, drawn when it was created; stored hashes are keyed with it.
    #[must_use]
    pub const fn secret(&self) -> u64 {
        self.secret
    }

    /// Largest decision id in the database; new ids start above it, even if the clock was set back.
    #[must_use]
    pub const fn last_decision_id(&self) -> Option<DecisionId> {
        self.last_decision
    }

    /// Newest run, if it has no end: its process was killed, or the machine went down.
    #[must_use]
    pub const fn unfinished_run(&self) -> Option<i64> {
        self.unfinished
    }

    /// Closes the file without a run.
    ///
    /// # Errors
    /// When SQLite fails.
    pub async fn close(self) -> Result<(), StoreError> {
        let Self { connection, path, .. } = self;
        connection.close().await.map_err(|cause| StoreError::Sql { path, cause })
    }
}
