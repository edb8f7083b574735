//! Opening the history database for writing: [`lock`] keeps other writers out, [`schema`] migrates the file, [`run`]
//! begins a run, and [`resume`] and [`pin`] are what it goes on from.

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

/// The write-ahead log is cut back to this after a checkpoint, bytes.
pub(crate) const WAL_LIMIT_BYTES: u64 = 64 << 20;
const WAL_LIMIT_TEXT: &str = "67108864";

/// How long a statement waits for another process's lock before the writer turns to its own waiting.
const BUSY: Duration = Duration::from_secs(1);

/// An open database that has no run yet: `begin_run` makes a writer of it.
#[derive(Debug)]
pub struct Store {
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
/// A folder that is missing, a file that is in use, not writable, damaged, of another program or of a newer gorgo.
/// The file is left as it was.
pub async fn open(path: &Path) -> Result<Store, StoreError> {
    let lock = WriterLock::take(path)?;
    let failed = |cause| schema::opening(path, cause);
    if std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0) {
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
    Ok(Store { connection, lock, path: path.to_owned(), secret, last_decision, unfinished })
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .auto_vacuum(SqliteAutoVacuum::Incremental)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .foreign_keys(false)
        .pragma("journal_size_limit", WAL_LIMIT_TEXT)
        .busy_timeout(BUSY)
        .disable_statement_logging()
}

impl Store {
    /// Secret of this database, drawn when it was made: hashes that are stored are keyed with it.
    #[must_use]
    pub const fn secret(&self) -> u64 {
        self.secret
    }

    /// The largest id in the database: new ids start above it, also where the clock was set back.
    #[must_use]
    pub const fn last_decision_id(&self) -> Option<DecisionId> {
        self.last_decision
    }

    /// The newest run, where it never ended: its process was killed, or the machine went down.
    #[must_use]
    pub const fn unfinished_run(&self) -> Option<i64> {
        self.unfinished
    }

    /// Closes the file without a run.
    ///
    /// # Errors
    /// What SQLite says.
    pub async fn close(self) -> Result<(), StoreError> {
        let Self { connection, path, .. } = self;
        connection.close().await.map_err(|cause| StoreError::Sql { path, cause })
    }
}
