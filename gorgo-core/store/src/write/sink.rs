//! The store as seen by the rest of the router: records go in without waiting, and a few figures come out.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::queue::RecordQueue;
use crate::{PolicyInfo, StoreError};
use gorgo_observe::RecordListener;
use gorgo_routing::model::{StoreRecord, UnixMicros};

/// Trouble of the store that an operator should know about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreTrouble {
    /// Rows cannot be written at present; they wait. Reported once until it is over.
    Blocked {
        /// SQLite's error.
        cause: String,
    },
    /// Rows are written again.
    Recovered,
    /// Rows are lost; `gaps` lists them. Reported once until a batch is written completely.
    Lost {
        /// Number of rows of the first such batch; [`HistorySink::dropped_rows`] has the total.
        rows: u64,
        /// The reason.
        cause: String,
    },
    /// The write-ahead log cannot be truncated: a reader has been open for a long time.
    WalTooLong {
        /// Size of the log, bytes.
        bytes: u64,
    },
    /// Old rows could not be pruned this time.
    NotPruned {
        /// SQLite's error.
        cause: String,
    },
}

/// Entrance for records. Cheap to clone; taking a record never waits.
#[derive(Debug, Clone)]
pub struct HistorySink {
    pub(crate) queue: Arc<RecordQueue>,
    pub(crate) commands: mpsc::Sender<WriterCommand>,
}

/// Request of a sink to the writer.
#[derive(Debug)]
pub(crate) enum WriterCommand {
    Flush(oneshot::Sender<()>),
    Prune(oneshot::Sender<()>),
    Policies(Vec<PolicyInfo>, UnixMicros, oneshot::Sender<Result<(), StoreError>>),
    Pin(Option<String>, oneshot::Sender<Result<(), StoreError>>),
    Finish(UnixMicros, oneshot::Sender<Result<(), StoreError>>),
}

impl RecordListener for HistorySink {
    fn record(&self, record: StoreRecord) {
        // Not by the channel of commands: a record must not wait for the writer.
        self.queue.push(record);
    }
}

impl HistorySink {
    /// Returns when all records taken so far are written, or lost and counted.
    ///
    /// # Errors
    /// [`StoreError::Ended`] after the writer has ended.
    pub async fn flush(&self) -> Result<(), StoreError> {
        // By the writer, which is the only one to know when a batch is committed.
        self.request(WriterCommand::Flush).await
    }

    /// Applies the retention completely, instead of in small steps with pauses; returns when that is done.
    ///
    /// # Errors
    /// [`StoreError::Ended`] after the writer has ended.
    pub async fn prune(&self) -> Result<(), StoreError> {
        self.request(WriterCommand::Prune).await
    }

    /// Stores policies that the run did not begin with, and their weights from `from` onwards. Their numbers follow
    /// those assigned so far; no decision may name them before this returns.
    ///
    /// # Errors
    /// When SQLite fails, or [`StoreError::Ended`]; nothing is added then.
    pub async fn add_policies(&self, policies: Vec<PolicyInfo>, from: UnixMicros) -> Result<(), StoreError> {
        self.request(|reply| WriterCommand::Policies(policies, from, reply)).await?
    }

    /// Stores the pinned policy, for later runs; `None` if none is pinned.
    ///
    /// # Errors
    /// When SQLite fails, or [`StoreError::Ended`].
    pub async fn pin_policy(&self, policy: Option<String>) -> Result<(), StoreError> {
        self.request(|reply| WriterCommand::Pin(policy, reply)).await?
    }

    /// Writes all records taken so far, marks the run as ended at `ended`, and closes the file. Drops later records.
    ///
    /// # Errors
    /// [`StoreError::Unwritten`] if rows could not be written in time, because of the disk or a lock.
    pub async fn finish(&self, ended: UnixMicros) -> Result<(), StoreError> {
        self.request(|reply| WriterCommand::Finish(ended, reply)).await?
    }

    async fn request<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> WriterCommand) -> Result<T, StoreError> {
        // Both failures mean that the writer is gone: it dropped the receiver, or the reply.
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| StoreError::Ended)?;
        answer.await.map_err(|_| StoreError::Ended)
    }

    /// Number of decisions that wait to be written.
    #[must_use]
    pub fn queued_decisions(&self) -> u64 {
        self.queue.depth().0
    }

    /// Number of rows of all tables that wait to be written.
    #[must_use]
    pub fn queued_rows(&self) -> u64 {
        self.queue.depth().1
    }

    /// Number of rows lost since the start of the run: `gorgo_store_dropped_rows_total`.
    #[must_use]
    pub fn dropped_rows(&self) -> u64 {
        self.queue.depth().2
    }
}
