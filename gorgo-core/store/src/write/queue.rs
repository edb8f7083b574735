//! The bounded queue between requests and the disk. Taking a record is one short lock and one push; without room the
//! record is dropped and counted. No caller ever waits here.

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::loss::RowLosses;
use gorgo_routing::config;
use gorgo_routing::model::StoreRecord;

/// Limit of waiting rows, of all tables together, per decision that may wait: 3 replicas and one attempt make 6. It
/// bounds memory when decisions have many candidates, and when probes and scrapes pile up.
const ROWS_PER_DECISION: u64 = 8;

/// Records that wait, and losses that are not written yet.
#[derive(Debug)]
pub(crate) struct RecordQueue {
    state: Mutex<QueueState>,
    /// Notified when enough decisions wait for a batch.
    pub(crate) enough: Notify,
    batch_decisions: u64,
    max_decisions: u64,
    max_rows: u64,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: Vec<StoreRecord>,
    /// Decisions in `waiting`.
    waiting_decisions: u64,
    /// Decisions in `waiting` and in the writer's hands.
    decisions: u64,
    /// Rows in `waiting` and in the writer's hands.
    rows: u64,
    losses: RowLosses,
    dropped_rows: u64,
    closed: bool,
}

/// Weight of a record against the bounds: decisions, rows.
fn weight(record: &StoreRecord) -> (u64, u64) {
    (u64::from(matches!(record, StoreRecord::Decision(_))), record.rows())
}

impl RecordQueue {
    pub(crate) fn new(settings: &config::StoreConfig) -> Self {
        Self {
            state: Mutex::default(),
            enough: Notify::new(),
            batch_decisions: settings.flush_decisions.max(1),
            max_decisions: settings.queue_decisions,
            max_rows: settings.queue_decisions.saturating_mul(ROWS_PER_DECISION),
        }
    }

    /// Takes a record, or drops and counts it. New weights are always taken: they are few, and without them the
    /// decisions made with them could not be explained.
    pub(crate) fn push(&self, record: StoreRecord) {
        let (decisions, rows) = weight(&record);
        let mut state = self.state.lock();
        let room = state.decisions + decisions <= self.max_decisions && state.rows + rows <= self.max_rows;
        // A closed queue takes nothing at all, not even weights: no write would follow.
        if state.closed || !(room || matches!(record, StoreRecord::Weights(_))) {
            state.losses.add_record(&record);
            state.dropped_rows += rows;
            // Freeing a decision with all its candidates takes a while: not under the lock that every request needs.
            drop(state);
            drop(record);
            return;
        }
        state.decisions += decisions;
        state.rows += rows;
        state.waiting_decisions += decisions;
        state.waiting.push(record);
        // Equal, not at least: one wake-up per batch, even if the writer is slow to come.
        let full_batch = decisions == 1 && state.waiting_decisions == self.batch_decisions;
        drop(state);
        if full_batch {
            self.enough.notify_one();
        }
    }

    /// Takes all waiting records. They count against the bounds until [`RecordQueue::written`] or [`RecordQueue::lost`].
    pub(crate) fn take(&self) -> Vec<StoreRecord> {
        let mut state = self.state.lock();
        state.waiting_decisions = 0;
        std::mem::take(&mut state.waiting)
    }

    /// Releases the room of records that are on disk.
    pub(crate) fn written(&self, records: &[StoreRecord]) {
        // Summed before the lock is taken: a batch has hundreds of records.
        let (decisions, rows) = records.iter().map(weight).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let mut state = self.state.lock();
        state.decisions -= decisions;
        state.rows -= rows;
    }

    /// Releases the room of records that will never be on disk, and counts their rows as lost.
    pub(crate) fn lost(&self, records: &[StoreRecord]) {
        self.written(records);
        let mut losses = RowLosses::default();
        for record in records {
            losses.add_record(record);
        }
        self.add_losses(&losses);
    }

    /// Counts rows as lost.
    pub(crate) fn add_losses(&self, losses: &RowLosses) {
        let mut state = self.state.lock();
        state.dropped_rows += losses.rows();
        state.losses.merge(losses);
    }

    /// Takes the losses that are not written yet.
    pub(crate) fn take_losses(&self) -> RowLosses {
        std::mem::take(&mut self.state.lock().losses)
    }

    /// Returns losses that could not be written. Their rows are already in `dropped_rows`.
    pub(crate) fn return_losses(&self, losses: &RowLosses) {
        self.state.lock().losses.merge(losses);
    }

    /// Closes the queue: from now on every record is dropped.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
    }

    /// Numbers of waiting decisions, of waiting rows, and of rows dropped since the start.
    pub(crate) fn depth(&self) -> (u64, u64, u64) {
        let state = self.state.lock();
        (state.decisions, state.rows, state.dropped_rows)
    }
}
