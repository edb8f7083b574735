//! One record in, every listener served: log lines, metrics, and finally the store.

use std::sync::Arc;

use super::meter::RouterMetrics;
use super::{RecordListener, log};
use gorgo_routing::model::StoreRecord;

/// Shows each record to the log and to the meter, then hands it to the store's queue.
pub struct RecordFanout {
    names: Vec<Arc<str>>,
    meter: Arc<RouterMetrics>,
    store: Arc<dyn RecordListener>,
}

impl RecordFanout {
    /// `names`: the replicas, by id.
    #[must_use]
    pub fn new(names: Vec<Arc<str>>, meter: Arc<RouterMetrics>, store: Arc<dyn RecordListener>) -> Self {
        Self { names, meter, store }
    }
}

impl RecordListener for RecordFanout {
    fn record(&self, record: StoreRecord) {
        let name = |replica: Option<gorgo_routing::model::ReplicaId>| {
            replica.and_then(|replica| self.names.get(replica.index())).map(AsRef::as_ref)
        };
        match &record {
            StoreRecord::Decision(decision) => log::decided(decision, name(decision.replica)),
            StoreRecord::Outcome(route, outcome) => {
                log::ended(outcome);
                self.meter.record_outcome(*route, outcome);
            }
            StoreRecord::Generation(generation) => log::generation(generation),
            StoreRecord::Alarm(alarm) => {
                log::alarm(alarm);
                self.meter.record_alarm(alarm);
            }
            StoreRecord::Hold(hold) => self.meter.record_admission(hold),
            StoreRecord::Event(event) => log::event(event, name(event.replica)),
            _ => {}
        }
        // Last, because the store takes ownership: log and metrics only borrow, and nothing is cloned.
        self.store.record(record);
    }
}
