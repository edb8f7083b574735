//! The only outlet for observations. An observation leaves in one call: the router's facts take the event, history, log
//! and metrics take the row that belongs to it, and no caller can report to one and forget the other.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Listener;
use gorgo_routing::model::{
    At, Clock, EngineReport, Event, EventKind, EventRecord, ProbeRecord, Record, ReplicaId, ScrapeRecord,
};

/// Function that applies events to the router's facts. Called on the hot path, so it must not wait.
pub type TakeEvent = Arc<dyn Fn(Event) + Send + Sync>;

/// Outlet for facts and rows. Clones share the same destinations.
#[derive(Clone)]
pub struct FactOutlet {
    clock: Arc<dyn Clock>,
    facts: TakeEvent,
    records: Arc<dyn Listener>,
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
    pub fn new(clock: Arc<dyn Clock>, facts: TakeEvent, records: Arc<dyn Listener>) -> Self {
        Self { clock, facts, records }
    }

    /// Reports a probe that returned, or was lost.
    pub fn probed(&self, replica: ReplicaId, at: At, rtt_ms: Option<f64>) {
        // Facts before the row, here and below: a listener that reacts to the row must find the new facts.
        (self.facts)(Event::Probe { replica, at, rtt_ms });
        self.records.record(Record::Probe(ProbeRecord { replica, at, rtt_us: rtt_ms.map(micros) }));
    }

    /// Reports a scrape of a metrics page. A page that could not be read, or reported nothing, changes no fact: the age
    /// of the previous reading grows by itself.
    pub fn scraped(&self, replica: ReplicaId, at: At, report: Option<EngineReport>) {
        if let Some(report) = report {
            (self.facts)(Event::Report { replica, at, report });
        }
        // A failed scrape is a row of unknowns with `ok` = false, so that the history shows the gap.
        let read = report.unwrap_or_default();
        self.records.record(Record::Scrape(ScrapeRecord {
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
    pub fn described(&self, replica: ReplicaId, at: At, report: EngineReport) {
        (self.facts)(Event::Report { replica, at, report });
    }

    /// Reports the models that an engine lists. No row: the history does not store them.
    pub fn lists_models(&self, replica: ReplicaId, models: Vec<Arc<str>>) {
        // Lists rarely change, and `GET /v1/models` shows the current one.
        (self.facts)(Event::Models { replica, models });
    }

    /// Reports the kernel's round trip of a live connection, once per answer. No row: that of the attempt suffices.
    pub fn kernel_rtt(&self, replica: ReplicaId, at: At, (smoothed_ms, min_ms): (f64, f64)) {
        (self.facts)(Event::KernelRtt { replica, at, smoothed_ms, min_ms });
    }

    /// Reports that a replica can be used again.
    pub fn up(&self, replica: ReplicaId, text: String) {
        (self.facts)(Event::Up { replica });
        self.note(EventKind::ReplicaUp, replica, text);
    }

    /// Reports that a replica cannot be used.
    pub fn down(&self, replica: ReplicaId, text: String) {
        (self.facts)(Event::Down { replica });
        self.note(EventKind::ReplicaDown, replica, text);
    }

    /// Reports that an engine restarted in place.
    pub fn restarted(&self, replica: ReplicaId, text: String) {
        (self.facts)(Event::Restarted { replica });
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
        self.records.record(Record::Event(EventRecord { at, kind, replica, text }));
    }

    /// Records a row of a request, a policy or a tuner. No event: the router made the row and knows its facts.
    pub fn record(&self, record: Record) {
        self.records.record(record);
    }
}

fn micros(ms: f64) -> i64 {
    // By way of `Duration`: NaN and negative values become 0, and no cast can wrap.
    At::default().plus(Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()).micros()
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[derive(Default)]
    struct Kept {
        events: Mutex<Vec<Event>>,
        records: Mutex<Vec<Record>>,
    }

    impl Listener for Kept {
        fn record(&self, record: Record) {
            self.records.lock().push(record);
        }
    }

    struct Noon;

    impl Clock for Noon {
        fn now(&self) -> At {
            At(12)
        }
    }

    fn left(tell: impl FnOnce(&FactOutlet)) -> (Vec<Event>, Vec<Record>) {
        let kept = Arc::new(Kept::default());
        let facts = Arc::clone(&kept);
        let take = Arc::new(move |event| facts.events.lock().push(event));
        tell(&FactOutlet::new(Arc::new(Noon), take, Arc::clone(&kept) as Arc<dyn Listener>));
        (std::mem::take(&mut kept.events.lock()), std::mem::take(&mut kept.records.lock()))
    }

    const A: ReplicaId = ReplicaId(3);

    #[test]
    fn a_change_of_standing_is_a_fact_and_a_row() {
        let told = |kind| Record::Event(EventRecord { at: At(12), kind, replica: Some(A), text: "why".to_owned() });
        let expected = |event, kind| (vec![event], vec![told(kind)]);
        let text = || "why".to_owned();
        assert_eq!(left(|out| out.up(A, text())), expected(Event::Up { replica: A }, EventKind::ReplicaUp));
        assert_eq!(left(|out| out.down(A, text())), expected(Event::Down { replica: A }, EventKind::ReplicaDown));
        let restarted = expected(Event::Restarted { replica: A }, EventKind::ReplicaRestarted);
        assert_eq!(left(|out| out.restarted(A, text())), restarted);
        assert_eq!(left(|out| out.note(EventKind::ReplicaUp, A, text())), (vec![], vec![told(EventKind::ReplicaUp)]));
    }

    #[test]
    fn a_reading_is_a_fact_and_a_row_of_the_same_figures() {
        let (events, records) = left(|out| out.probed(A, At(5), Some(1.5)));
        assert_eq!(events, [Event::Probe { replica: A, at: At(5), rtt_ms: Some(1.5) }]);
        assert_eq!(records, [Record::Probe(ProbeRecord { replica: A, at: At(5), rtt_us: Some(1_500) })]);
        let report = EngineReport { running: Some(2.0), kv_used_share: Some(0.5), ..EngineReport::default() };
        let (events, records) = left(|out| out.scraped(A, At(5), Some(report)));
        assert_eq!(events, [Event::Report { replica: A, at: At(5), report }]);
        let [Record::Scrape(row)] = records[..] else { panic!("one row of the page: {records:?}") };
        assert_eq!((row.ok, row.running, row.kv_used_share, row.waiting), (true, Some(2.0), Some(0.5), None));
    }

    #[test]
    fn a_page_that_failed_is_a_row_and_no_fact() {
        let (events, records) = left(|out| out.scraped(A, At(5), None));
        assert_eq!(events, []);
        let [Record::Scrape(row)] = records[..] else { panic!("one row of the page: {records:?}") };
        assert!(!row.ok && row.running.is_none());
    }
}
