//! The only task that writes: it wakes every `flush_ms`, or earlier when a batch is full, and writes the waiting
//! records, one transaction per batch. While the disk is full or another process holds a lock, it retries; meanwhile
//! the queue fills to its bound, and rows dropped beyond it are listed in `gaps` as soon as writing works again.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{Connection, SqliteConnection};
use tokio::sync::mpsc;

use super::batch;
use super::loss::RowLosses;
use super::numbers::RowNumbers;
use super::queue::RecordQueue;
use super::sink::{HistorySink, StoreTrouble, WriterCommand};
use crate::error::{WriteFailure, classify_failure};
use crate::open::lock::WriterLock;
use crate::open::run::StoredIds;
use crate::open::{HistoryDatabase, pin};
use crate::retain::RetentionState;
use crate::{StoreError, sql};
use gorgo_routing::config;
use gorgo_routing::model::{Clock, StoreRecord, UnixMicros};

/// First pause between attempts to write; it doubles up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause between attempts to write.
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// Attempts to write after the end was requested. With the pauses, and a second of waiting for a lock in each, they
/// take about 15 s: less than a service manager usually grants.
const LAST_ATTEMPTS: u32 = 8;

/// Task that writes; the only owner of the connection and of the file's lock.
pub struct HistoryWriter {
    pub(crate) connection: SqliteConnection,
    pub(crate) path: PathBuf,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) retention: RetentionState,
    trouble: Box<dyn Fn(StoreTrouble) + Send + Sync>,
    pub(crate) numbers: RowNumbers,
    queue: Arc<RecordQueue>,
    commands: mpsc::Receiver<WriterCommand>,
    /// Commands that arrived while rows could not be written.
    postponed: VecDeque<WriterCommand>,
    /// The end was requested: attempts are limited.
    ending: bool,
    /// The last batch was not written completely, and that was reported.
    loss_reported: bool,
    flush: Duration,
    batch_decisions: u64,
    /// First and last pause between two attempts to write.
    pub(crate) pauses: [Duration; 2],
    _lock: WriterLock,
}

impl fmt::Debug for HistoryWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HistoryWriter").field("path", &self.path).finish_non_exhaustive()
    }
}

impl HistoryWriter {
    pub(crate) fn new(
        store: HistoryDatabase,
        ids: StoredIds,
        settings: &config::StoreConfig,
        clock: Arc<dyn Clock>,
        trouble: Box<dyn Fn(StoreTrouble) + Send + Sync>,
    ) -> (HistorySink, Self) {
        let queue = Arc::new(RecordQueue::new(settings));
        // Few suffice: each sender waits for its reply.
        let (asking, commands) = mpsc::channel(8);
        let writer = Self {
            connection: store.connection,
            path: store.path,
            clock,
            retention: RetentionState::new(&settings.retention),
            trouble,
            numbers: RowNumbers::new(ids),
            queue: Arc::clone(&queue),
            commands,
            postponed: VecDeque::new(),
            ending: false,
            loss_reported: false,
            flush: Duration::from_millis(settings.flush_ms.max(1)),
            batch_decisions: settings.flush_decisions.max(1),
            pauses: [FIRST_PAUSE, LAST_PAUSE],
            _lock: store.lock,
        };
        (HistorySink { queue, commands: asking }, writer)
    }

    /// Writes until [`HistorySink::finish`] is called or every sink is gone.
    pub async fn run(mut self) {
        loop {
            // Commands that came during a retry go first, in their order.
            let command = match self.postponed.pop_front() {
                Some(command) => command,
                None => {
                    let pause = self.retention.pause().unwrap_or(self.flush).min(self.flush);
                    // Commands first: under load, `enough` is ready almost always.
                    let woken = tokio::select! {
                        biased;
                        command = self.commands.recv() => Some(command),
                        () = self.queue.enough.notified() => None,
                        () = tokio::time::sleep(pause) => None,
                    };
                    match woken {
                        Some(Some(command)) => command,
                        // All sinks are gone without `finish`: the router's start failed, or a test ended.
                        Some(None) => {
                            self.ending = true;
                            self.write_waiting().await.ok();
                            return;
                        }
                        None => {
                            self.write_waiting().await.ok();
                            self.tidy_when_due().await;
                            continue;
                        }
                    }
                }
            };
            // Replies may fail: the caller may have stopped waiting.
            // Failed writes are ignored here, because `write_batch` has counted and reported them.
            match command {
                WriterCommand::Flush(reply) => {
                    self.write_waiting().await.ok();
                    reply.send(()).ok();
                }
                WriterCommand::Prune(reply) => {
                    self.write_waiting().await.ok();
                    self.tidy_to_end().await;
                    reply.send(()).ok();
                }
                WriterCommand::Policies(policies, from, reply) => {
                    let added = self.numbers.ids.add(&mut self.connection, &policies, from).await;
                    let added = added.map_err(|cause| StoreError::Sql { path: self.path.clone(), cause });
                    reply.send(added).ok();
                }
                WriterCommand::Pin(policy, reply) => {
                    let pinned = pin::write(&mut self.connection, policy.as_deref()).await;
                    let pinned = pinned.map_err(|cause| StoreError::Sql { path: self.path.clone(), cause });
                    reply.send(pinned).ok();
                }
                WriterCommand::Finish(ended, reply) => {
                    reply.send(self.finish(ended).await).ok();
                    return;
                }
            }
        }
    }

    /// Writes all waiting records, batch by batch.
    async fn write_waiting(&mut self) -> Result<(), String> {
        let waiting = self.queue.take();
        let mut rest = waiting.as_slice();
        let mut outcome = Ok(());
        loop {
            let (batch, later) = rest.split_at(batch_end(rest, self.batch_decisions));
            rest = later;
            // With every batch, so that `gaps` is complete even if the process is killed soon after.
            let losses = self.queue.take_losses();
            if batch.is_empty() && losses.is_empty() {
                return outcome;
            }
            if let Err(cause) = self.write_batch(batch, &losses).await {
                if self.ending {
                    // There is no time to retry each of the remaining batches as well.
                    self.queue.lost(rest);
                    return Err(cause);
                }
                outcome = Err(cause);
                // Only losses were left to write: they are back in the queue, and another attempt now would loop.
                if batch.is_empty() {
                    return outcome;
                }
            }
        }
    }

    /// Writes one batch, however long it takes, unless retrying is pointless or the end was requested.
    async fn write_batch(&mut self, batch: &[StoreRecord], losses: &RowLosses) -> Result<(), String> {
        let (mut pause, mut stuck, mut last_attempts) = (self.pauses[0], false, 0);
        loop {
            let cause = match batch::write(&mut self.connection, &mut self.numbers, batch, losses).await {
                Ok(refused) => {
                    self.queue.written(batch);
                    self.queue.add_losses(&refused);
                    // A batch of losses alone must not reset `losing`: it does not show that records can be written.
                    if !batch.is_empty() {
                        self.report_loss(refused.rows(), "refused by the schema");
                    }
                    if stuck {
                        (self.trouble)(StoreTrouble::Recovered);
                    }
                    return Ok(());
                }
                Err(cause) => cause,
            };
            // Counted from the end's request: a batch that has been retried for long still gets its last attempts.
            last_attempts += u32::from(self.ending);
            if classify_failure(&cause) != WriteFailure::Transient || last_attempts >= LAST_ATTEMPTS {
                self.queue.lost(batch);
                self.queue.return_losses(losses);
                let mut lost = RowLosses::default();
                batch.iter().for_each(|record| lost.add_record(record));
                let cause = cause.to_string();
                self.report_loss(lost.rows(), &cause);
                return Err(cause);
            }
            // Reported at the first failure only: a full disk fails every second.
            if !stuck {
                stuck = true;
                (self.trouble)(StoreTrouble::Blocked { cause: cause.to_string() });
            }
            self.pause(pause).await;
            pause = (pause * 2).min(self.pauses[1]);
        }
    }

    /// Reports lost rows, and not again before a batch was written completely: there may be four batches a second.
    fn report_loss(&mut self, rows: u64, cause: &str) {
        if rows > 0 && !self.loss_reported {
            (self.trouble)(StoreTrouble::Lost { rows, cause: cause.to_owned() });
        }
        self.loss_reported = rows > 0;
    }

    /// Waits, and notices meanwhile if the end is requested.
    async fn pause(&mut self, length: Duration) {
        let sleep = tokio::time::sleep(length);
        tokio::pin!(sleep);
        while !self.ending {
            tokio::select! {
                () = &mut sleep => return,
                command = self.commands.recv() => {
                    // `finish`, or a closed channel. Other commands wait until rows can be written again.
                    self.ending = !matches!(command, Some(WriterCommand::Flush(_) | WriterCommand::Prune(_) | WriterCommand::Policies(..) | WriterCommand::Pin(..)));
                    self.postponed.extend(command);
                }
            }
        }
        sleep.await;
    }

    async fn finish(mut self, ended: UnixMicros) -> Result<(), StoreError> {
        self.ending = true;
        // Closed before the last write: a record that came later would never be written, and must be counted.
        self.queue.close();
        let before = self.queue.depth().2;
        let mut written = self.write_waiting().await;
        if written.is_ok() {
            written = self.end_run(ended).await;
        }
        // Closing the last connection moves the log into the file; if that fails, the next opening does it.
        self.connection.close().await.ok();
        let rows = self.queue.depth().2 - before;
        written.map_err(|cause| StoreError::Unwritten { path: self.path, rows, cause })
    }

    async fn end_run(&mut self, ended: UnixMicros) -> Result<(), String> {
        // Retried like a batch: without an end, the next start would report that this run was killed.
        let mut attempts = 0;
        loop {
            let query = sqlx::query(sql::END_RUN).bind(ended.micros()).bind(self.numbers.ids.run);
            let Err(cause) = query.execute(&mut self.connection).await else {
                return Ok(());
            };
            attempts += 1;
            if classify_failure(&cause) != WriteFailure::Transient || attempts >= LAST_ATTEMPTS {
                return Err(cause.to_string());
            }
            self.pause(self.pauses[1]).await;
        }
    }

    async fn tidy_when_due(&mut self) {
        if self.retention.due(self.clock.now()) {
            self.tidy_step().await;
        }
    }

    async fn tidy_to_end(&mut self) {
        while self.tidy_step().await {}
    }

    /// Takes one step; returns true if another one should follow at once.
    async fn tidy_step(&mut self) -> bool {
        let now = self.clock.now();
        match self.retention.step(&mut self.connection, &self.path, now).await {
            Ok(log) => {
                if let Some(bytes) = log {
                    (self.trouble)(StoreTrouble::WalTooLong { bytes });
                }
                self.retention.pause().is_some()
            }
            // A lock or a full disk: the next regular step is soon enough.
            Err(cause) if classify_failure(&cause) == WriteFailure::Transient => false,
            Err(cause) => {
                (self.trouble)(StoreTrouble::NotPruned { cause: cause.to_string() });
                false
            }
        }
    }
}

/// Length of the longest head of `records` with at most `decisions` decisions; at least 1 if there is any record.
fn batch_end(records: &[StoreRecord], decisions: u64) -> usize {
    let mut seen = 0;
    let end = records.iter().position(|record| {
        seen += u64::from(matches!(record, StoreRecord::Decision(_)));
        seen > decisions
    });
    end.unwrap_or(records.len())
}
