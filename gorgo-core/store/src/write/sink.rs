//! The store as the rest of the router sees it: records go in without waiting, and a few figures come out.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::queue::Queue;
use crate::{PolicyInfo, StoreError};
use gorgo_observe::Listener;
use gorgo_routing::model::{At, Record};

/// What a person should know of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// Rows cannot be written for now; they wait. Told once until it is over.
    Stuck {
        /// What SQLite says.
        cause: String,
    },
    /// Rows are written again.
    Recovered,
    /// Rows are lost; they are counted in `gaps`. Told once until a batch is written whole.
    Lost {
        /// How many so far; [`Sink::dropped_rows`] has all.
        rows: u64,
        /// Why.
        cause: String,
    },
    /// The write-ahead log cannot be cut back: some reader has been open for long.
    LongLog {
        /// Its size, bytes.
        bytes: u64,
    },
    /// Old rows could not be pruned this time.
    NotPruned {
        /// What SQLite says.
        cause: String,
    },
}

/// Where records go. Cheap to clone; taking a record never waits.
#[derive(Debug, Clone)]
pub struct Sink {
    pub(crate) queue: Arc<Queue>,
    pub(crate) commands: mpsc::Sender<Command>,
}

/// What a sink asks of the writer.
#[derive(Debug)]
pub(crate) enum Command {
    Flush(oneshot::Sender<()>),
    Tidy(oneshot::Sender<()>),
    Policies(Vec<PolicyInfo>, At, oneshot::Sender<Result<(), StoreError>>),
    Pin(Option<String>, oneshot::Sender<Result<(), StoreError>>),
    Finish(At, oneshot::Sender<Result<(), StoreError>>),
}

impl Listener for Sink {
    fn record(&self, record: Record) {
        self.queue.push(record);
    }
}

impl Sink {
    /// Returns when all records taken so far are written, or lost and counted.
    ///
    /// # Errors
    /// [`StoreError::Ended`] after the writer has ended.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.ask(Command::Flush).await
    }

    /// Applies the retention now and to its end, instead of in small steps; returns when that is done.
    ///
    /// # Errors
    /// [`StoreError::Ended`] after the writer has ended.
    pub async fn tidy(&self) -> Result<(), StoreError> {
        self.ask(Command::Tidy).await
    }

    /// Writes down policies that the run did not begin with, and the weights that they begin with at `from`. Their numbers
    /// follow those that were given so far; no decision may name them before this returns.
    ///
    /// # Errors
    /// What SQLite says, or [`StoreError::Ended`]; nothing is added then.
    pub async fn add_policies(&self, policies: Vec<PolicyInfo>, from: At) -> Result<(), StoreError> {
        self.ask(|reply| Command::Policies(policies, from, reply)).await?
    }

    /// Writes down which policy is pinned, for the next run too; `None`: none is.
    ///
    /// # Errors
    /// What SQLite says, or [`StoreError::Ended`].
    pub async fn pin_policy(&self, policy: Option<String>) -> Result<(), StoreError> {
        self.ask(|reply| Command::Pin(policy, reply)).await?
    }

    /// Writes all that was taken, marks the run as ended at `ended`, and closes the file. Records that come later are
    /// dropped.
    ///
    /// # Errors
    /// [`StoreError::Unwritten`] where the disk or a lock held rows back for too long.
    pub async fn finish(&self, ended: At) -> Result<(), StoreError> {
        self.ask(|reply| Command::Finish(ended, reply)).await?
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| StoreError::Ended)?;
        answer.await.map_err(|_| StoreError::Ended)
    }

    /// Decisions that wait to be written.
    #[must_use]
    pub fn queued_decisions(&self) -> u64 {
        self.queue.depth().0
    }

    /// Rows of all tables that wait to be written.
    #[must_use]
    pub fn queued_rows(&self) -> u64 {
        self.queue.depth().1
    }

    /// Rows lost since the start of the run: `gorgo_store_dropped_rows_total`.
    #[must_use]
    pub fn dropped_rows(&self) -> u64 {
        self.queue.depth().2
    }
}
