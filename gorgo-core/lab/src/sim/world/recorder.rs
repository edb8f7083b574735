//! Records of a simulated run: the rows that `serve` would write, made at the same moments of virtual time and passed
//! to the same tuners. They are only made if the policy has a tuner or the caller wants records.
//!
//! Known to `serve` but not to a simulated run: the time that a decision took (0 here), and p99 of token gaps.

use super::live_request::LiveRequest;
use super::run::SimulatedWorld;
use crate::trace::RequestSample;
use gorgo_routing::model::{
    ApiPath, AttemptRecord, ConnectionReuse, DecisionId, DecisionRecord, ErrorClass, EventKind, EventRecord,
    FleetEvent, GenerationVerdict, OutcomeRecord, PolicyIndex, ProbeRecord, RefusalReason, ReplicaId, RouteLabels,
    ScrapeRecord, StoreRecord, UnixMicros,
};
use gorgo_routing::policy::{RoutedRequest, Router};

/// Callback that receives records.
pub(super) struct RecordSink<'a>(pub(super) &'a mut dyn FnMut(StoreRecord));

impl std::fmt::Debug for RecordSink<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RecordSink")
    }
}

/// Summary of what the tuner of a run's policy did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TuningSummary {
    /// Number of generations that were accepted.
    pub accepted: u32,
    /// Number of generations that were rejected.
    pub rejected: u32,
    /// Number of generations whose trial was cut short by a change of the fleet or the end of the run.
    pub cut: u32,
    /// Highest generation that made a decision.
    pub last: u64,
    /// Kinds of alarms raised, each once, in order of the first.
    pub alarms: Vec<String>,
    /// Weights of the incumbent, by term.
    pub weights: Vec<(String, f64)>,
    /// Generation of those weights; 0: the configured ones.
    pub incumbent: u64,
    /// Last status text of the tuner.
    pub status: String,
}

impl TuningSummary {
    /// Returns the number of generations that were tried.
    #[must_use]
    pub const fn tried(&self) -> u32 {
        self.accepted + self.rejected + self.cut
    }

    fn take(&mut self, record: &StoreRecord, open: &mut bool) {
        match record {
            StoreRecord::Generation(row) => {
                // A trial has two records: one without a verdict when it starts, one with a verdict when it ends.
                *open = row.verdict.is_none();
                match row.verdict {
                    Some(GenerationVerdict::Accepted) => self.accepted += 1,
                    Some(GenerationVerdict::Rejected) => self.rejected += 1,
                    Some(GenerationVerdict::Interrupted) => self.cut += 1,
                    None => {}
                }
            }
            StoreRecord::Weights(row) => self.last = self.last.max(row.generation.0),
            StoreRecord::Alarm(row) if !row.cleared && !self.alarms.contains(&row.kind) => {
                self.alarms.push(row.kind.clone())
            }
            _ => {}
        }
    }
}

/// Recorder of a run.
#[derive(Debug)]
pub(super) struct RunRecorder<'a> {
    recorder: Option<RecordSink<'a>>,
    /// Summary of the tuner; `None` if the policy has none.
    tuning: Option<TuningSummary>,
    /// A trial is running.
    trial_running: bool,
}

impl<'a> RunRecorder<'a> {
    pub(super) fn new(router: Option<&(Router, PolicyIndex)>, recorder: Option<RecordSink<'a>>) -> Self {
        let tuned = router
            .is_some_and(|(router, policy)| router.policies().get(*policy).is_some_and(|policy| policy.tune.is_some()));
        Self { recorder, tuning: tuned.then(TuningSummary::default), trial_running: false }
    }

    /// Reports whether records are needed.
    pub(super) const fn is_recording(&self) -> bool {
        self.recorder.is_some() || self.tuning.is_some()
    }

    fn record(&mut self, router: &Router, record: StoreRecord, at: UnixMicros) {
        if let Some(tuning) = &mut self.tuning {
            // The weights of a decision are recorded before the decision itself, as in `serve`.
            for said in router.observe_record(&record, at) {
                tuning.take(&said, &mut self.trial_running);
                if let Some(recorder) = &mut self.recorder {
                    (recorder.0)(said);
                }
            }
        }
        if let Some(recorder) = &mut self.recorder {
            (recorder.0)(record);
        }
    }

    /// Returns the summary of the tuner at the end of the run.
    pub(super) fn finish(self, router: Option<&(Router, PolicyIndex)>) -> Option<TuningSummary> {
        let (mut tuning, (router, policy)) = (self.tuning?, router?);
        // A trial that is still running has no verdict record; the end of the run cuts it.
        tuning.cut += u32::from(self.trial_running);
        let policies = router.policies();
        let (terms, weights) = (&policies.get(*policy)?.terms, router.incumbent(*policy)?);
        tuning.incumbent = weights.generation.0;
        tuning.weights =
            terms.iter().zip(&weights.values).map(|(term, weight)| (term.name.to_string(), *weight)).collect();
        tuning.status = router.tuner_status(*policy).unwrap_or_default();
        Some(tuning)
    }
}

impl SimulatedWorld<'_> {
    fn write(&mut self, record: StoreRecord, at: UnixMicros) {
        if let Some((router, _)) = &self.router {
            self.recorder.record(router, record, at);
        }
    }

    /// Records that a request was routed, and keeps what the request needs later.
    pub(super) fn record_routed(&mut self, at: UnixMicros, live: &mut LiveRequest, routed: RoutedRequest) {
        let RoutedRequest { record, reservation, predicted_ttft_ms, predicted_cached_tokens, .. } = routed;
        live.reservation = Some(reservation);
        live.predicted_ttft_ms = predicted_ttft_ms;
        live.predicted_cached_tokens = Some(predicted_cached_tokens);
        // A request has one decision. Attempts after the first only add their candidates to it.
        let first = live.decision.is_none();
        let id = *live.decision.get_or_insert(record.decision);
        if !self.recorder.is_recording() {
            return;
        }
        let row = if first {
            StoreRecord::Decision(record)
        } else {
            let attempt = u16::try_from(live.attempt).unwrap_or(u16::MAX);
            StoreRecord::Candidates { decision: id, attempt, rows: record.candidates }
        };
        self.write(row, at);
    }

    /// Records that no replica could be chosen for a request that was never routed.
    pub(super) fn record_refused(
        &mut self,
        at: UnixMicros,
        id: DecisionId,
        live: &LiveRequest,
        refusal: RefusalReason,
    ) {
        let Some((router, policy)) = self.router.as_ref().filter(|_| self.recorder.is_recording()) else { return };
        let record = DecisionRecord {
            model: live.prompt.model.clone(),
            session_hash: live.prompt.session_hash,
            body_bytes: live.prompt.body_bytes,
            ..DecisionRecord::refused(id, at, live.prompt.path, router.active_build(*policy), refusal)
        };
        self.write(StoreRecord::Decision(Box::new(record)), at);
    }

    /// Records the end of an attempt.
    pub(super) fn record_attempt(&mut self, at: UnixMicros, live: &LiveRequest, status: Option<u16>) {
        let Some(decision) = live.decision.filter(|_| self.recorder.is_recording()) else { return };
        // A refused connection has neither a connection nor a status. Connection set-up is not modelled, so all
        // others count as warm.
        let refused = live.failure == Some(ErrorClass::Connect);
        let record = AttemptRecord {
            decision,
            attempt: u16::try_from(live.attempt).unwrap_or(u16::MAX),
            replica: live.replica,
            connection: (!refused).then_some(ConnectionReuse::Warm),
            connect_us: (!refused).then_some(0),
            sent_us: Some(span(live.sent, live.dispatched)),
            first_byte_us: live.first.map(|first| span(live.sent, first)),
            ended_us: span(live.sent, at),
            status: status.filter(|_| !refused),
            error: live.failure,
        };
        self.write(StoreRecord::Attempt(record), at);
    }

    /// Records the end of a request.
    pub(super) fn record_outcome(
        &mut self,
        at: UnixMicros,
        live: &LiveRequest,
        sample: &RequestSample,
        replica: Option<ReplicaId>,
    ) {
        let Some(decision) = live.decision.filter(|_| self.recorder.is_recording()) else { return };
        // Content comes with the first byte: there is no head before it in the simulation.
        let first_us = live.first.map(|first| span(live.sent, first));
        let outcome = OutcomeRecord {
            decision,
            status: sample.status,
            error: live.failure,
            ttft_us: first_us,
            first_byte_us: first_us,
            e2e_us: span(live.sent, at),
            itl_mean_us: sample.itl_ms.map(whole_micros),
            // Only the first and the last token are events, so single gaps are not known.
            itl_p99_us: None,
            itl_counts: None,
            prompt_tokens: sample.usage.prompt_tokens,
            cached_tokens: sample.usage.cached_tokens,
            completion_tokens: sample.usage.completion_tokens,
            predicted_ttft_us: live.predicted_ttft_ms.map(whole_micros),
            predicted_cached_tokens: live.predicted_cached_tokens,
        };
        let route = RouteLabels { path: ApiPath::ChatCompletions, replica };
        self.write(StoreRecord::Outcome(route, Box::new(outcome)), at);
    }

    /// Records an event that the router received. `restarted`: replica whose engine turned out to have restarted.
    pub(super) fn record_event(&mut self, at: UnixMicros, event: &FleetEvent, restarted: Option<ReplicaId>) {
        if !self.recorder.is_recording() {
            return;
        }
        if let Some(replica) = restarted {
            self.record_change(at, EventKind::ReplicaRestarted, replica, "the engine process restarted");
        }
        match event {
            FleetEvent::Probe { replica, at, rtt_ms } => {
                let rtt_us = rtt_ms.map(whole_micros);
                self.write(StoreRecord::Probe(ProbeRecord { replica: *replica, at: *at, rtt_us }), *at);
            }
            FleetEvent::Report { replica, at, report } => {
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
                self.write(StoreRecord::Scrape(record), *at);
            }
            FleetEvent::Up { replica } => {
                self.record_change(at, EventKind::ReplicaUp, *replica, "probes are answered again")
            }
            FleetEvent::Down { replica } => {
                self.record_change(at, EventKind::ReplicaDown, *replica, "three probes in a row got no answer");
            }
            _ => {}
        }
    }

    fn record_change(&mut self, at: UnixMicros, kind: EventKind, replica: ReplicaId, text: &str) {
        let event = EventRecord { at, kind, replica: Some(replica), text: text.to_owned() };
        self.write(StoreRecord::Event(event), at);
    }
}

/// Returns the time from `from` to `to`, µs.
fn span(from: UnixMicros, to: UnixMicros) -> i64 {
    i64::try_from(to.elapsed_since(from).as_micros()).unwrap_or(i64::MAX)
}

/// Converts ms to whole µs; values that are negative or not finite become 0.
#[expect(clippy::cast_possible_truncation, reason = "clamped to 0 ..= 10^15 on the same line")]
fn whole_micros(millis: f64) -> i64 {
    if millis.is_finite() { (millis * 1e3).round().clamp(0.0, 1e15) as i64 } else { 0 }
}
