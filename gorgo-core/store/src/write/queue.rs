//! The bounded queue between requests and the disk. Taking a record is one short lock and one push; where there is no
//! room the record is dropped and counted. Nobody ever waits here.

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::loss::Losses;
use gorgo_routing::config;
use gorgo_routing::model::Record;

/// Rows of any table that may wait per decision that may wait: 3 replicas and one attempt make 6. It bounds memory
/// where a decision has many candidates, and where probes and scrapes pile up.
const ROWS_PER_DECISION: u64 = 8;

/// What waits, and what was lost.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Told when enough waits for a batch.
    pub(crate) enough: Notify,
    batch_decisions: u64,
    max_decisions: u64,
    max_rows: u64,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Record>,
    /// Decisions in `waiting`.
    waiting_decisions: u64,
    /// Decisions in `waiting` and in the writer's hands.
    decisions: u64,
    /// Rows in `waiting` and in the writer's hands.
    rows: u64,
    losses: Losses,
    dropped_rows: u64,
    closed: bool,
}

/// How much a record takes of the bounds: decisions, rows.
fn weight(record: &Record) -> (u64, u64) {
    (u64::from(matches!(record, Record::Decision(_))), record.rows())
}

impl Queue {
    pub(crate) fn new(settings: &config::Store) -> Self {
        Self {
            state: Mutex::default(),
            enough: Notify::new(),
            batch_decisions: settings.flush_decisions.max(1),
            max_decisions: settings.queue_decisions,
            max_rows: settings.queue_decisions.saturating_mul(ROWS_PER_DECISION),
        }
    }

    /// Takes a record or drops and counts it. New weights are always taken: they are few, and without them the
    /// decisions made with them could not be explained.
    pub(crate) fn push(&self, record: Record) {
        let (decisions, rows) = weight(&record);
        let mut state = self.state.lock();
        let room = state.decisions + decisions <= self.max_decisions && state.rows + rows <= self.max_rows;
        if state.closed || !(room || matches!(record, Record::Weights(_))) {
            state.losses.add_record(&record);
            state.dropped_rows += rows;
            drop(state);
            drop(record);
            return;
        }
        state.decisions += decisions;
        state.rows += rows;
        state.waiting_decisions += decisions;
        state.waiting.push(record);
        let full_batch = decisions == 1 && state.waiting_decisions == self.batch_decisions;
        drop(state);
        if full_batch {
            self.enough.notify_one();
        }
    }

    /// Everything that waits. It keeps counting against the bounds until [`Queue::written`] or [`Queue::lost`].
    pub(crate) fn take(&self) -> Vec<Record> {
        let mut state = self.state.lock();
        state.waiting_decisions = 0;
        std::mem::take(&mut state.waiting)
    }

    /// The records are on disk.
    pub(crate) fn written(&self, records: &[Record]) {
        let (decisions, rows) = records.iter().map(weight).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let mut state = self.state.lock();
        state.decisions -= decisions;
        state.rows -= rows;
    }

    /// The records will never be on disk.
    pub(crate) fn lost(&self, records: &[Record]) {
        self.written(records);
        let mut losses = Losses::default();
        for record in records {
            losses.add_record(record);
        }
        self.add_losses(&losses);
    }

    /// Counts rows as lost.
    pub(crate) fn add_losses(&self, losses: &Losses) {
        let mut state = self.state.lock();
        state.dropped_rows += losses.rows();
        state.losses.merge(losses);
    }

    /// The losses that stand nowhere yet, to be written down.
    pub(crate) fn take_losses(&self) -> Losses {
        std::mem::take(&mut self.state.lock().losses)
    }

    /// The losses could not be written down; they stay counted once.
    pub(crate) fn return_losses(&self, losses: &Losses) {
        self.state.lock().losses.merge(losses);
    }

    /// From now on everything is dropped.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
    }

    /// Decisions and rows that wait, and rows dropped since the start.
    pub(crate) fn depth(&self) -> (u64, u64, u64) {
        let state = self.state.lock();
        (state.decisions, state.rows, state.dropped_rows)
    }
}
