//! The records of a simulated run: the rows that `serve` would write down, made at the same moments and shown to the
//! same tuners, in virtual time. Nobody pays for them unless the policy is tuned or somebody takes them down.
//!
//! What `serve` knows and a simulated run does not: the time that deciding took (0 here), and p99 of token gaps.

use super::live::Live;
use super::run::World;
use crate::trace::Sample;
use gorgo_routing::model::{
    ApiPath, At, AttemptRecord, Connection, DecisionId, DecisionRecord, ErrorClass, Event, EventKind, EventRecord,
    OutcomeRecord, PolicyIndex, ProbeRecord, Record, Refusal, ReplicaId, Route, ScrapeRecord, Verdict,
};
use gorgo_routing::policy::{Routed, Router};

/// Who takes records down.
pub(super) struct Recorder<'a>(pub(super) &'a mut dyn FnMut(Record));

impl std::fmt::Debug for Recorder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}

/// What the tuner of a run's policy did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tuning {
    /// Generations that took over.
    pub accepted: u32,
    /// Generations that were judged and did not.
    pub rejected: u32,
    /// Generations that a change of the fleet, or the end of the run, cut.
    pub cut: u32,
    /// The highest generation that decided anything.
    pub last: u64,
    /// Alarms that were raised, each kind once, in order.
    pub alarms: Vec<String>,
    /// The weights that won, by term.
    pub weights: Vec<(String, f64)>,
    /// The generation they are of; 0: those of the configuration.
    pub incumbent: u64,
    /// What the tuner last said.
    pub said: String,
}

impl Tuning {
    /// Generations that were tried.
    #[must_use]
    pub const fn tried(&self) -> u32 {
        self.accepted + self.rejected + self.cut
    }

    fn take(&mut self, record: &Record, open: &mut bool) {
        match record {
            Record::Generation(row) => {
                *open = row.verdict.is_none();
                match row.verdict {
                    Some(Verdict::Accepted) => self.accepted += 1,
                    Some(Verdict::Rejected) => self.rejected += 1,
                    Some(Verdict::Cut) => self.cut += 1,
                    None => {}
                }
            }
            Record::Weights(row) => self.last = self.last.max(row.generation.0),
            Record::Alarm(row) if !row.over && !self.alarms.contains(&row.kind) => self.alarms.push(row.kind.clone()),
            _ => {}
        }
    }
}

/// The book of a run.
#[derive(Debug)]
pub(super) struct Book<'a> {
    recorder: Option<Recorder<'a>>,
    /// `None` where the policy is not tuned.
    tuning: Option<Tuning>,
    /// A generation is on trial.
    open: bool,
}

impl<'a> Book<'a> {
    pub(super) fn new(router: Option<&(Router, PolicyIndex)>, recorder: Option<Recorder<'a>>) -> Self {
        let tuned = router
            .is_some_and(|(router, policy)| router.policies().get(*policy).is_some_and(|policy| policy.tune.is_some()));
        Self { recorder, tuning: tuned.then(Tuning::default), open: false }
    }

    /// Whether anybody wants records.
    pub(super) const fn is_open(&self) -> bool {
        self.recorder.is_some() || self.tuning.is_some()
    }

    fn write(&mut self, router: &Router, record: Record, at: At) {
        if let Some(tuning) = &mut self.tuning {
            // A decision's weights are taken down before the decision, as in `serve`.
            for said in router.tuning(&record, at) {
                tuning.take(&said, &mut self.open);
                if let Some(recorder) = &mut self.recorder {
                    (recorder.0)(said);
                }
            }
        }
        if let Some(recorder) = &mut self.recorder {
            (recorder.0)(record);
        }
    }

    /// What the tuner did, at the end.
    pub(super) fn close(self, router: Option<&(Router, PolicyIndex)>) -> Option<Tuning> {
        let (mut tuning, (router, policy)) = (self.tuning?, router?);
        tuning.cut += u32::from(self.open);
        let policies = router.policies();
        let (terms, weights) = (&policies.get(*policy)?.terms, router.incumbent(*policy)?);
        tuning.incumbent = weights.generation.0;
        tuning.weights =
            terms.iter().zip(&weights.values).map(|(term, weight)| (term.name.to_string(), *weight)).collect();
        tuning.said = router.tuner_said(*policy).unwrap_or_default();
        Some(tuning)
    }
}

impl World<'_> {
    fn write(&mut self, record: Record, at: At) {
        if let Some((router, _)) = &self.router {
            self.book.write(router, record, at);
        }
    }

    /// A request was routed; what of it stays with the request.
    pub(super) fn book_routed(&mut self, at: At, live: &mut Live, routed: Routed) {
        let Routed { record, reservation, predicted_ttft_ms, predicted_cached_tokens, .. } = routed;
        live.reservation = Some(reservation);
        live.predicted_ttft_ms = predicted_ttft_ms;
        live.predicted_cached_tokens = Some(predicted_cached_tokens);
        let first = live.decision.is_none();
        let id = *live.decision.get_or_insert(record.decision);
        if !self.book.is_open() {
            return;
        }
        let row = if first {
            Record::Decision(record)
        } else {
            let attempt = u16::try_from(live.attempt).unwrap_or(u16::MAX);
            Record::Candidates { decision: id, attempt, rows: record.candidates }
        };
        self.write(row, at);
    }

    /// Nobody could be chosen for a request that was not routed before.
    pub(super) fn book_refused(&mut self, at: At, id: DecisionId, live: &Live, refusal: Refusal) {
        let Some((router, policy)) = self.router.as_ref().filter(|_| self.book.is_open()) else { return };
        let record = DecisionRecord {
            model: live.prompt.model.clone(),
            session_hash: live.prompt.session_hash,
            body_bytes: live.prompt.body_bytes,
            ..DecisionRecord::refused(id, at, live.prompt.path, router.active_build(*policy), refusal)
        };
        self.write(Record::Decision(Box::new(record)), at);
    }

    /// An attempt is over.
    pub(super) fn book_attempt(&mut self, at: At, live: &Live, status: Option<u16>) {
        let Some(decision) = live.decision.filter(|_| self.book.is_open()) else { return };
        let refused = live.failure == Some(ErrorClass::Connect);
        let record = AttemptRecord {
            decision,
            attempt: u16::try_from(live.attempt).unwrap_or(u16::MAX),
            replica: live.replica,
            connection: (!refused).then_some(Connection::Warm),
            connect_us: (!refused).then_some(0),
            sent_us: Some(span(live.sent, live.dispatched)),
            first_byte_us: live.first.map(|first| span(live.sent, first)),
            ended_us: span(live.sent, at),
            status: status.filter(|_| !refused),
            error: live.failure,
        };
        self.write(Record::Attempt(record), at);
    }

    /// A request ended.
    pub(super) fn book_outcome(&mut self, at: At, live: &Live, sample: &Sample, replica: Option<ReplicaId>) {
        let Some(decision) = live.decision.filter(|_| self.book.is_open()) else { return };
        let first_us = live.first.map(|first| span(live.sent, first));
        let outcome = OutcomeRecord {
            decision,
            status: sample.status,
            error: live.failure,
            ttft_us: first_us,
            first_byte_us: first_us,
            e2e_us: span(live.sent, at),
            itl_mean_us: sample.itl_ms.map(whole_micros),
            itl_p99_us: None,
            itl_counts: None,
            prompt_tokens: sample.usage.prompt_tokens,
            cached_tokens: sample.usage.cached_tokens,
            completion_tokens: sample.usage.completion_tokens,
            predicted_ttft_us: live.predicted_ttft_ms.map(whole_micros),
            predicted_cached_tokens: live.predicted_cached_tokens,
        };
        let route = Route { path: ApiPath::ChatCompletions, replica };
        self.write(Record::Outcome(route, Box::new(outcome)), at);
    }

    /// The router was told of something. `restarted`: whose engine turned out to have started anew.
    pub(super) fn book_event(&mut self, at: At, event: &Event, restarted: Option<ReplicaId>) {
        if !self.book.is_open() {
            return;
        }
        if let Some(replica) = restarted {
            self.book_change(at, EventKind::ReplicaRestarted, replica, "its process started anew");
        }
        match event {
            Event::Probe { replica, at, rtt_ms } => {
                let rtt_us = rtt_ms.map(whole_micros);
                self.write(Record::Probe(ProbeRecord { replica: *replica, at: *at, rtt_us }), *at);
            }
            Event::Report { replica, at, report } => {
                let record = ScrapeRecord {
                    replica: *replica,
                    at: *at,
                    ok: true,
                    running: report.running,
                    waiting: report.waiting,
                    kv_used_tokens: report.kv_used_tokens,
                    kv_used_share: report.kv_used_share,
                    throughput: report.throughput,
                };
                self.write(Record::Scrape(record), *at);
            }
            Event::Up { replica } => self.book_change(at, EventKind::ReplicaUp, *replica, "it answers its probes"),
            Event::Down { replica } => {
                self.book_change(at, EventKind::ReplicaDown, *replica, "three probes in a row brought no answer");
            }
            _ => {}
        }
    }

    fn book_change(&mut self, at: At, kind: EventKind, replica: ReplicaId, text: &str) {
        let event = EventRecord { at, kind, replica: Some(replica), text: text.to_owned() };
        self.write(Record::Event(event), at);
    }
}

/// From one moment to another, µs.
fn span(from: At, to: At) -> i64 {
    i64::try_from(to.since(from).as_micros()).unwrap_or(i64::MAX)
}

/// ms as whole µs; what is not finite or below zero becomes 0.
#[expect(clippy::cast_possible_truncation, reason = "clamped to 0 ..= 10^15 on the same line")]
fn whole_micros(millis: f64) -> i64 {
    if millis.is_finite() { (millis * 1e3).round().clamp(0.0, 1e15) as i64 } else { 0 }
}
