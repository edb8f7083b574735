//! One record in, every listener served: log lines, metrics, and finally the store.

use std::sync::Arc;

use super::meter::Meter;
use super::{Listener, log};
use gorgo_routing::model::Record;

/// Shows each record to the log and to the meter, then hands it to the store's queue.
pub struct Fan {
    names: Vec<Arc<str>>,
    meter: Arc<Meter>,
    store: Arc<dyn Listener>,
}

impl Fan {
    /// `names`: the replicas, by id.
    #[must_use]
    pub fn new(names: Vec<Arc<str>>, meter: Arc<Meter>, store: Arc<dyn Listener>) -> Self {
        Self { names, meter, store }
    }
}

impl Listener for Fan {
    fn record(&self, record: Record) {
        let name = |replica: Option<gorgo_routing::model::ReplicaId>| {
            replica.and_then(|replica| self.names.get(replica.index())).map(AsRef::as_ref)
        };
        match &record {
            Record::Decision(decision) => log::decided(decision, name(decision.replica)),
            Record::Outcome(route, outcome) => {
                log::ended(outcome);
                self.meter.ended(*route, outcome);
            }
            Record::Generation(generation) => log::generation(generation),
            Record::Alarm(alarm) => {
                log::alarm(alarm);
                self.meter.alarm(alarm);
            }
            Record::Hold(hold) => self.meter.held(hold),
            Record::Event(event) => log::event(event, name(event.replica)),
            _ => {}
        }
        // Last, because the store takes ownership: log and metrics only borrow, and nothing is cloned.
        self.store.record(record);
    }
}
