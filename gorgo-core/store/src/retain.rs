//! Retention: the database keeps rows younger than `max_age_days`, and a file below `max_size_mb`. The writer takes one
//! small step between two batches, so that pruning never delays rows for long; freed pages are returned to the system
//! in steps too, and the write-ahead log is truncated when a reader has let it grow.

use std::path::Path;
use std::time::Duration;

use sqlx::SqliteConnection;

use crate::open::WAL_LIMIT_BYTES;
use crate::sql;
use crate::table::{RetentionRule, TABLES};
use crate::write::loss::moment_of;
use gorgo_routing::config;
use gorgo_routing::model::{DecisionId, UnixMicros};

/// Time between two steps while there is nothing to prune.
const INTERVAL: Duration = Duration::from_secs(10);
/// Pause between two steps while there is; the queue is written in between, so that pruning cannot starve it.
const STEP_PAUSE: Duration = Duration::from_millis(20);
/// Decisions, or rows of a table keyed by time, deleted in one step: about 10 ms of work, and more per second than two
/// thousand requests per second add.
const STEP_ROWS: i64 = 2_000;
/// Divisor: free pages are returned when they exceed this part of the file; fewer will be used again soon.
const FREE_PART: i64 = 8;

/// The state of pruning.
#[derive(Debug)]
pub(crate) struct RetentionState {
    max_age_us: u64,
    max_bytes: i64,
    /// Size above which the write-ahead log is truncated, bytes.
    pub(crate) max_log_bytes: u64,
    /// A log that could not be truncated has been reported already.
    log_warned: bool,
    last: Option<UnixMicros>,
    more: bool,
}

/// Pages of the file.
#[derive(Debug, Clone, Copy)]
struct PageCounts {
    all: i64,
    free: i64,
    bytes: i64,
}

impl RetentionState {
    pub(crate) fn new(settings: &config::RetentionConfig) -> Self {
        let max_age = Duration::try_from_secs_f64(settings.max_age_days * 86_400.0).unwrap_or(Duration::MAX);
        Self {
            max_age_us: u64::try_from(max_age.as_micros()).unwrap_or(u64::MAX),
            max_bytes: i64::try_from(settings.max_size_mb.saturating_mul(1 << 20)).unwrap_or(i64::MAX),
            max_log_bytes: WAL_LIMIT_BYTES,
            log_warned: false,
            last: None,
            more: false,
        }
    }

    /// Returns the pause before the next step if there is more to do; `None` if not.
    pub(crate) fn pause(&self) -> Option<Duration> {
        self.more.then_some(STEP_PAUSE)
    }

    pub(crate) fn due(&self, now: UnixMicros) -> bool {
        self.more || self.last.is_none_or(|last| now.elapsed_since(last) >= INTERVAL)
    }

    /// Takes one step. Returns the size of the write-ahead log, bytes, when it first could not be truncated.
    pub(crate) async fn step(
        &mut self,
        connection: &mut SqliteConnection,
        path: &Path,
        now: UnixMicros,
    ) -> Result<Option<u64>, sqlx::Error> {
        // Set before anything can fail: a failed step is retried after `INTERVAL`, not at once.
        self.last = Some(now);
        self.more = false;
        let oldest_us = i64::try_from(now.0.saturating_sub(self.max_age_us)).unwrap_or(i64::MAX);
        let first = first_id(oldest_us);
        let end = chunk_end(connection, first).await?;
        self.more = prune(connection, end.unwrap_or(first), oldest_us).await? || end.is_some();

        // Free pages do not count against the limit: they are the space that pruning has already gained.
        let pages = pages(connection).await?;
        if (pages.all - pages.free).saturating_mul(pages.bytes) > self.max_bytes {
            // A last step's worth of decisions stays, however small the limit: `chunk_end` finds no end among so few.
            if let Some(end) = chunk_end(connection, i64::MAX).await? {
                prune(connection, end, moment_of(DecisionId(end))).await?;
                self.more = true;
            }
        } else {
            let over = pages.all.saturating_mul(pages.bytes) > self.max_bytes;
            if pages.free > 0 && (over || pages.free > pages.all / FREE_PART) {
                sqlx::query(sql::VACUUM_STEP).execute(&mut *connection).await?;
                self.more = true;
            }
        }
        // SQLite checkpoints by itself, but reuses the file only when no reader needs it: a long read lets it grow.
        if log_bytes(path) > self.max_log_bytes {
            sqlx::query(sql::CHECKPOINT).fetch_all(&mut *connection).await?;
        }
        let bytes = log_bytes(path);
        let told_before = std::mem::replace(&mut self.log_warned, bytes > self.max_log_bytes);
        Ok((self.log_warned && !told_before).then_some(bytes))
    }
}

/// Smallest id of a decision made at `at_us` or later: ids are milliseconds × 2^20 + a counter.
fn first_id(at_us: i64) -> i64 {
    (at_us / 1_000).saturating_mul(1 << 20)
}

/// Returns the decision after the oldest [`STEP_ROWS`] below `first`, if there are more than that.
async fn chunk_end(connection: &mut SqliteConnection, first: i64) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar(sql::CHUNK_END).bind(first).bind(STEP_ROWS).fetch_optional(connection).await
}

/// Deletes the decisions below `end` with all rows that belong to them, and up to [`STEP_ROWS`] rows older than
/// `oldest_us` in each table keyed by time. Returns true if more of the latter are left.
pub(crate) async fn prune(connection: &mut SqliteConnection, end: i64, oldest_us: i64) -> Result<bool, sqlx::Error> {
    sqlx::query(sql::BEGIN).execute(&mut *connection).await?;
    let pruned = match prune_tables(connection, end, oldest_us).await {
        Ok(more) => sqlx::query(sql::COMMIT).execute(&mut *connection).await.map(|_| more),
        Err(cause) => Err(cause),
    };
    if pruned.is_err() {
        // Fails if SQLite has already rolled back by itself, as it does on some errors: nothing is left to do then.
        let _ = sqlx::query(sql::ROLLBACK).execute(&mut *connection).await;
    }
    pruned
}

async fn prune_tables(connection: &mut SqliteConnection, end: i64, oldest_us: i64) -> Result<bool, sqlx::Error> {
    let mut more = false;
    // In reverse: `decisions` is first in the list and deleted last, after the rows that belong to its decisions.
    for table in TABLES.iter().rev() {
        match table.retention {
            RetentionRule::WithDecision(text) => {
                sqlx::query(text).bind(end).execute(&mut *connection).await?;
            }
            RetentionRule::ByAge(text) => {
                let query = sqlx::query(text).bind(oldest_us).bind(STEP_ROWS);
                let gone = query.execute(&mut *connection).await?.rows_affected();
                // A full step suggests that the limit cut it short.
                more |= i64::try_from(gone).is_ok_and(|gone| gone == STEP_ROWS);
            }
            RetentionRule::OnceEnded(text) => {
                sqlx::query(text).bind(oldest_us).execute(&mut *connection).await?;
            }
            RetentionRule::Never => {}
        }
    }
    Ok(more)
}

async fn pages(connection: &mut SqliteConnection) -> Result<PageCounts, sqlx::Error> {
    let (all, free, bytes) = sqlx::query_as(sql::PAGES).fetch_one(connection).await?;
    Ok(PageCounts { all, free, bytes })
}

/// Size of the write-ahead log, bytes; 0 where there is none.
fn log_bytes(path: &Path) -> u64 {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    std::fs::metadata(name).map_or(0, |file| file.len())
}
