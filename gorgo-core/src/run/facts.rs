//! Events on their way to the router's facts, and what follows from them at once: rows for the history, snapshots of the
//! index that may be used again, and whether new requests are welcome.

use std::sync::Arc;

use super::operate;
use super::warm::Warm;
use gorgo_observe::{Listener, TakeEvent};
use gorgo_routing::model::{Clock, Event, EventKind, EventRecord, Record, ReplicaId};
use gorgo_routing::policy::Router;
use gorgo_wire::edge::Readiness;

/// Everything that an event changes.
pub(super) struct FactKeeper {
    pub(super) router: Arc<Router>,
    pub(super) warm: Arc<Warm>,
    pub(super) readiness: Readiness,
    pub(super) records: Arc<dyn Listener>,
    pub(super) clock: Arc<dyn Clock>,
}

impl FactKeeper {
    /// The function that the loops and the data plane hand their events to.
    pub(super) fn taker(self) -> TakeEvent {
        Arc::new(move |event| self.take(&event))
    }

    fn take(&self, event: &Event) {
        if let Some(replica) = self.router.apply(event) {
            let text = "its metrics say that the process started anew; its index entries were dropped".to_owned();
            self.note(EventKind::ReplicaRestarted, replica, text);
        }
        if matches!(event, Event::Report { .. }) {
            for (replica, text) in self.router.take_admission_news() {
                self.note(EventKind::GateResync, replica, text);
            }
        }
        self.warm.seen(event, self.clock.now());
        if matches!(event, Event::Up { .. } | Event::Down { .. }) {
            self.readiness.set(operate::welcomes(&self.router));
        }
    }

    /// The router found this out itself, so that it is a row and no event any more.
    fn note(&self, kind: EventKind, replica: ReplicaId, text: String) {
        self.records.record(Record::Event(EventRecord { at: self.clock.now(), kind, replica: Some(replica), text }));
    }
}
