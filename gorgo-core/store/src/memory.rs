//! Listener that stores records in memory, for tests and for the simulator.

use parking_lot::Mutex;

use gorgo_observe::Listener;
use gorgo_routing::model::Record;

/// Stores every record, in order.
#[derive(Debug, Default)]
pub struct Memory {
    records: Mutex<Vec<Record>>,
}

impl Memory {
    /// Returns a copy of the records so far.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.records.lock().clone()
    }

    /// Removes and returns the records so far.
    #[must_use]
    pub fn take(&self) -> Vec<Record> {
        std::mem::take(&mut self.records.lock())
    }
}

impl Listener for Memory {
    fn record(&self, record: Record) {
        self.records.lock().push(record);
    }
}
