//! Events on their way to the router's facts, and their immediate consequences: rows for the history, index snapshots
//! that become usable, and whether the router is ready for requests.

use std::sync::Arc;

use super::operate;
use super::warm::WarmStart;
use gorgo_observe::{RecordListener, TakeEvent};
use gorgo_routing::model::{Clock, EventKind, EventRecord, FleetEvent, ReplicaId, StoreRecord};
use gorgo_routing::policy::Router;
use gorgo_wire::edge::ReadinessFlag;

/// Everything that an event changes.
pub(super) struct FactKeeper {
    pub(super) router: Arc<Router>,
    pub(super) warm: Arc<WarmStart>,
    pub(super) readiness: ReadinessFlag,
    pub(super) records: Arc<dyn RecordListener>,
    pub(super) clock: Arc<dyn Clock>,
}

impl FactKeeper {
    /// Returns the function that the loops and the data plane call with their events.
    pub(super) fn taker(self) -> TakeEvent {
        Arc::new(move |event| self.take(&event))
    }

    fn take(&self, event: &FleetEvent) {
        // A metrics page may reveal a restart, which no caller knows of: this is the only place to record it.
        if let Some(replica) = self.router.apply(event) {
            let text = "its metrics show that the process restarted; its index entries were dropped".to_owned();
            self.record_event(EventKind::ReplicaRestarted, replica, text);
        }
        // The gate corrects its counts against an engine's report, so only a report can bring news of it.
        if matches!(event, FleetEvent::Report { .. }) {
            for (replica, text) in self.router.take_admission_news() {
                self.record_event(EventKind::GateResync, replica, text);
            }
        }
        // After `apply`, which drops the index entries of a restarted engine, and would drop a restored snapshot too.
        self.warm.observe(event, self.clock.now());
        if matches!(event, FleetEvent::Up { .. } | FleetEvent::Down { .. }) {
            self.readiness.set(operate::accepts_requests(&self.router));
        }
    }

    /// Records a discovery of the router itself: a row only, since the router's facts already include it.
    fn record_event(&self, kind: EventKind, replica: ReplicaId, text: String) {
        self.records.record(StoreRecord::Event(EventRecord {
            at: self.clock.now(),
            kind,
            replica: Some(replica),
            text,
        }));
    }
}
