//! The only outlet for observations. An observation leaves in one call: the router's facts take the event, history, log
//! and metrics take the row that belongs to it, and no caller can report to one and forget the other.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::RecordListener;
use gorgo_routing::model::{
    Clock, EngineReport, EventKind, EventRecord, FleetEvent, ProbeRecord, ReplicaId, ScrapeRecord, StoreRecord,
    UnixMicros,
};

/// Function that applies events to the router's facts. Called on the hot path, so it must not wait.
pub type TakeEvent = Arc<dyn Fn(FleetEvent) + Send + Sync>;

/// Outlet for facts and rows. Clones share the same destinations.
#[derive(Clone)]
pub struct FactOutlet {
    clock: Arc<dyn Clock>,
    facts: TakeEvent,
    records: Arc<dyn RecordListener>,
}

impl fmt::Debug for FactOutlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Function and listener cannot be printed.
        f.debug_struct("FactOutlet").finish_non_exhaustive()
    }
}

impl FactOutlet {
    /// Sends events to `facts` and rows to `records`; `clock` dates the events that operators look up.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, facts: TakeEvent, records: Arc<dyn RecordListener>) -> Self {
        Self { clock, facts, records }
    }

    /// Reports a probe that returned, or was lost.
    pub fn probed(&self, replica: ReplicaId, at: UnixMicros, rtt_ms: Option<f64>) {
        // Facts before the row, here and below: a listener that reacts to the row must find the new facts.
        (self.facts)(FleetEvent::Probe { replica, at, rtt_ms });
        self.records.record(StoreRecord::Probe(ProbeRecord { replica, at, rtt_us: rtt_ms.map(micros) }));
    }

    /// Reports a scrape of a metrics page. A page that could not be read, or reported nothing, changes no fact: the age
    /// of the previous reading grows by itself.
    pub fn scraped(&self, replica: ReplicaId, at: UnixMicros, report: Option<EngineReport>) {
        if let Some(report) = report {
            (self.facts)(FleetEvent::Report { replica, at, report });
        }
        // A failed scrape is a row of unknowns with `ok` = false, so that the history shows the gap.
        let read = report.unwrap_or_default();
        self.records.record(StoreRecord::Scrape(ScrapeRecord {
            replica,
            at,
            ok: report.is_some(),
            running: read.running,
            waiting: read.waiting,
            kv_used_tokens: read.kv_used_tokens,
            kv_used_share: read.kv_used_share,
            throughput: read.throughput,
        }));
    }

    /// Reports properties of an engine, read from another page than the metrics. No row: those are of metrics pages.
    pub fn described(&self, replica: ReplicaId, at: UnixMicros, report: EngineReport) {
        (self.facts)(FleetEvent::Report { replica, at, report });
    }

    /// Reports the models that an engine lists. No row: the history does not store them.
    pub fn lists_models(&self, replica: ReplicaId, models: Vec<Arc<str>>) {
        // Lists rarely change, and `GET /v1/models` shows the current one.
        (self.facts)(FleetEvent::Models { replica, models });
    }

    /// Reports the kernel's round trip of a live connection, once per answer. No row: that of the attempt suffices.
    pub fn kernel_rtt(&self, replica: ReplicaId, at: UnixMicros, (smoothed_ms, min_ms): (f64, f64)) {
        (self.facts)(FleetEvent::KernelRtt { replica, at, smoothed_ms, min_ms });
    }

    /// Reports that a replica can be used again.
    pub fn up(&self, replica: ReplicaId, text: String) {
        (self.facts)(FleetEvent::Up { replica });
        self.note(EventKind::ReplicaUp, replica, text);
    }

    /// Reports that a replica cannot be used.
    pub fn down(&self, replica: ReplicaId, text: String) {
        (self.facts)(FleetEvent::Down { replica });
        self.note(EventKind::ReplicaDown, replica, text);
    }

    /// Reports that an engine restarted in place.
    pub fn restarted(&self, replica: ReplicaId, text: String) {
        (self.facts)(FleetEvent::Restarted { replica });
        self.note(EventKind::ReplicaRestarted, replica, text);
    }

    /// Records an event of a replica that an operator should be able to look up, and that changes no fact.
    pub fn note(&self, kind: EventKind, replica: ReplicaId, text: String) {
        self.event(kind, Some(replica), text);
    }

    /// Records an event of the whole process that an operator should be able to look up.
    pub fn announce(&self, kind: EventKind, text: String) {
        self.event(kind, None, text);
    }

    fn event(&self, kind: EventKind, replica: Option<ReplicaId>, text: String) {
        // Dated here, so that callers without a clock can report too.
        let at = self.clock.now();
        self.records.record(StoreRecord::Event(EventRecord { at, kind, replica, text }));
    }

    /// Records a row of a request, a policy or a tuner. No event: the router made the row and knows its facts.
    pub fn record(&self, record: StoreRecord) {
        self.records.record(record);
    }
}

fn micros(ms: f64) -> i64 {
    // By way of `Duration`: NaN and negative values become 0, and no cast can wrap.
    UnixMicros::default().plus(Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()).micros()
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[derive(Default)]
    struct Kept {
        events: Mutex<Vec<FleetEvent>>,
        records: Mutex<Vec<StoreRecord>>,
    }

    impl RecordListener for Kept {
        fn record(&self, record: StoreRecord) {
            self.records.lock().push(record);
        }
    }

    struct Noon;

    impl Clock for Noon {
        fn now(&self) -> UnixMicros {
            UnixMicros(12)
        }
    }

    fn left(tell: impl FnOnce(&FactOutlet)) -> (Vec<FleetEvent>, Vec<StoreRecord>) {
        let kept = Arc::new(Kept::default());
        let facts = Arc::clone(&kept);
        let take = Arc::new(move |event| facts.events.lock().push(event));
        tell(&FactOutlet::new(Arc::new(Noon), take, Arc::clone(&kept) as Arc<dyn RecordListener>));
        (std::mem::take(&mut kept.events.lock()), std::mem::take(&mut kept.records.lock()))
    }

    const A: ReplicaId = ReplicaId(3);

    #[test]
    fn a_change_of_standing_is_a_fact_and_a_row() {
        let told = |kind| {
            StoreRecord::Event(EventRecord { at: UnixMicros(12), kind, replica: Some(A), text: "why".to_owned() })
        };
        let expected = |event, kind| (vec![event], vec![told(kind)]);
        let text = || "why".to_owned();
        assert_eq!(left(|out| out.up(A, text())), expected(FleetEvent::Up { replica: A }, EventKind::ReplicaUp));
        assert_eq!(left(|out| out.down(A, text())), expected(FleetEvent::Down { replica: A }, EventKind::ReplicaDown));
        let restarted = expected(FleetEvent::Restarted { replica: A }, EventKind::ReplicaRestarted);
        assert_eq!(left(|out| out.restarted(A, text())), restarted);
        assert_eq!(left(|out| out.note(EventKind::ReplicaUp, A, text())), (vec![], vec![told(EventKind::ReplicaUp)]));
    }

    #[test]
    fn a_reading_is_a_fact_and_a_row_of_the_same_figures() {
        let (events, records) = left(|out| out.probed(A, UnixMicros(5), Some(1.5)));
        assert_eq!(events, [FleetEvent::Probe { replica: A, at: UnixMicros(5), rtt_ms: Some(1.5) }]);
        assert_eq!(records, [StoreRecord::Probe(ProbeRecord { replica: A, at: UnixMicros(5), rtt_us: Some(1_500) })]);
        let report = EngineReport { running: Some(2.0), kv_used_share: Some(0.5), ..EngineReport::default() };
        let (events, records) = left(|out| out.scraped(A, UnixMicros(5), Some(report)));
        assert_eq!(events, [FleetEvent::Report { replica: A, at: UnixMicros(5), report }]);
        let [StoreRecord::Scrape(row)] = records[..] else { panic!("one row of the page: {records:?}") };
        assert_eq!((row.ok, row.running, row.kv_used_share, row.waiting), (true, Some(2.0), Some(0.5), None));
    }

    #[test]
    fn a_page_that_failed_is_a_row_and_no_fact() {
        let (events, records) = left(|out| out.scraped(A, UnixMicros(5), None));
        assert_eq!(events, []);
        let [StoreRecord::Scrape(row)] = records[..] else { panic!("one row of the page: {records:?}") };
        assert!(!row.ok && row.running.is_none());
    }
}
