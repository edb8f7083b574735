//! Listener that stores records in memory, for tests and for the simulator.

use parking_lot::Mutex;

use gorgo_observe::RecordListener;
use gorgo_routing::model::StoreRecord;

/// Stores every record, in order.
#[derive(Debug, Default)]
pub struct MemoryListener {
    records: Mutex<Vec<StoreRecord>>,
}

impl MemoryListener {
    /// Returns a copy of the records so far.
    #[must_use]
    pub fn records(&self) -> Vec<StoreRecord> {
        self.records.lock().clone()
    }

    /// Removes and returns the records so far.
    #[must_use]
    pub fn take(&self) -> Vec<StoreRecord> {
        std::mem::take(&mut self.records.lock())
    }
}

impl RecordListener for MemoryListener {
    fn record(&self, record: StoreRecord) {
        self.records.lock().push(record);
    }
}
