//! All facts that one lock guards, and the steps on them.

use std::sync::Arc;

use crate::config::{Probe, Scrape};
use crate::feature::admission::{AdmissionGate, Ahead};
use crate::feature::answer_stats::Answers;
use crate::feature::backlog::{self, Backlog};
use crate::feature::capacity_correction::{Finding, Mirror};
use crate::feature::fleet::{Fleet, Serves};
use crate::feature::hit_correction::Hits;
use crate::feature::latency::Latency;
use crate::feature::load::{self, Load};
use crate::feature::rates::{RateFacts, Rates, Sample};
use crate::feature::report::{Reports, Restarted};
use crate::feature::rtt::Rtt;
use crate::feature::share::Shares;
use crate::feature::ttft_quantile::TtftQuantile;
use crate::model::{At, Candidates, Ending, Event, PolicyIndex, Replica, ReplicaId, RequestView};
use crate::policy::Policies;

/// Age at which an observed TTFT counts half, ms: long enough for a dozen requests at one a second.
const LATENCY_HALF_LIFE_MS: f64 = 10_000.0;

/// A request that met more backlog than this teaches nothing of what service takes, ms: it would be taken for slowness,
/// and the slow replica be given less to learn from. Source: design study, section 3, "Learning".
const UNHURRIED_BACKLOG_MS: f64 = 50.0;

/// Facts per replica, and turns per policy.
#[derive(Debug)]
pub(super) struct State {
    pub(super) load: Load,
    pub(super) fleet: Fleet,
    pub(super) rates: Rates,
    pub(super) rtt: Rtt,
    reports: Reports,
    shares: Shares,
    latency: Latency,
    pub(super) backlog: Backlog,
    /// What service takes a request that waits for nobody; its queue is always 0.
    pub(super) service: Rates,
    pub(super) answers: Answers,
    pub(super) hits: Hits,
    pub(super) mirror: Mirror,
    tail: TtftQuantile,
    pub(super) gate: AdmissionGate,
    /// Decisions so far, by policy.
    turns: Vec<u64>,
}

/// What was reserved in the step that chose, and what was believed then. [`State::finish`] takes it back.
#[derive(Debug)]
pub(super) struct Reserved {
    pub(super) load: load::Ticket,
    line: backlog::Ticket,
    pub(super) predicted_ttft_ms: Option<f64>,
    /// What the rates learn from; `None` where the round trip was unknown.
    facts: Option<RateFacts>,
    rtt_ms: f64,
    backlog_ms: f64,
    inflight: u32,
    prompt_tokens: u32,
    cached_tokens: u32,
    first_token: Option<At>,
}

/// How a request ended, for the mirror of the engine's cache.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended<'a> {
    pub(super) ending: &'a Ending,
    pub(super) at: At,
    /// Whether what was believed cached had long not been used.
    pub(super) old: bool,
    /// Whether it had been among the least recently used.
    pub(super) near_tail: bool,
}

/// A request that goes to the replica of a row now.
pub(super) struct Dispatch {
    /// Row of the chosen replica.
    pub(super) row: usize,
    pub(super) at: At,
    /// Whether its first token will be seen.
    pub(super) streams: bool,
    /// Work in the facts that only waits at the gate: the request does not meet it in the engine.
    pub(super) ahead: Ahead,
}

impl State {
    #[expect(clippy::cast_precision_loss, reason = "settings in ms stay far below 2^53")]
    pub(super) fn new(
        fleet: &[Replica],
        models: &[Vec<Arc<str>>],
        policies: &Policies,
        probe: &Probe,
        scrape: &Scrape,
    ) -> Self {
        let replicas = fleet.len();
        Self {
            load: Load::new(replicas),
            fleet: Fleet::new(fleet, models),
            rates: Rates::new(replicas),
            rtt: Rtt::new(replicas, probe.half_life_ms as f64, probe.timeout_ms as f64),
            reports: Reports::new(fleet, scrape.stale_after_ms as f64),
            shares: Shares::new(policies.windows.clone(), replicas),
            latency: Latency::new(replicas, LATENCY_HALF_LIFE_MS),
            backlog: Backlog::new(replicas),
            service: Rates::new(replicas),
            answers: Answers::new(replicas),
            hits: Hits::new(replicas),
            mirror: Mirror::new(replicas),
            tail: TtftQuantile::new(),
            gate: AdmissionGate::new(fleet),
            turns: vec![0; policies.list.len()],
        }
    }

    /// Fills the candidates' columns but for what the index and the connections say. All of them, whatever the policy and
    /// its shadows read: the store's rows, the reservation and the gate want most of them, and asking whether the rest is
    /// wanted would take as long as filling it.
    pub(super) fn fill(
        &mut self,
        model: Option<&str>,
        request: &RequestView,
        at: At,
        candidates: &mut Candidates,
    ) -> Serves {
        let serves = self.fleet.mark_available(model, candidates);
        if serves == Serves::Somebody {
            self.load.read(candidates);
            self.rtt.read(at, candidates);
            self.reports.read(at, candidates);
            self.rates.read(candidates);
            self.latency.read(at, candidates);
            self.shares.read(at, candidates);
            self.backlog.read(at, candidates);
            self.service.read_service(candidates);
            self.answers.read(candidates);
            self.hits.read(request, candidates);
            self.tail.read(candidates);
        }
        serves
    }

    /// Charges the request to the chosen row.
    pub(super) fn reserve(&mut self, dispatch: &Dispatch, request: &RequestView, facts: &Candidates) -> Reserved {
        let Dispatch { row, at, streams, ahead } = *dispatch;
        let replica = facts.replica[row];
        let uncached_tokens = facts.uncached_tokens(request, row);
        let rate_facts = facts.rtt_ms[row].map(|rtt_ms| RateFacts {
            rtt_ms,
            uncached_tokens,
            queued_uncached_tokens: facts.queued_uncached_tokens[row].saturating_sub(ahead.uncached_tokens),
            decoding: facts.decoding[row],
        });
        let rtt_ms = facts.rtt_ms[row].unwrap_or(0.0);
        let work_ms = facts.service_ms_per_token[row] * facts.likely_uncached_tokens[row];
        self.shares.record(at, replica, request.prompt_tokens, uncached_tokens);
        Reserved {
            load: self.load.reserve(replica, request.prompt_tokens, uncached_tokens),
            line: self.backlog.dispatch(at, replica, rtt_ms, work_ms, streams),
            predicted_ttft_ms: rate_facts.and_then(|facts| self.rates.predict_ms(replica, &facts)),
            facts: rate_facts,
            rtt_ms,
            backlog_ms: (facts.backlog_ms[row] - ahead.work_ms).max(0.0),
            inflight: facts.inflight[row].saturating_sub(ahead.requests),
            prompt_tokens: request.prompt_tokens,
            cached_tokens: facts.cached_tokens[row],
            first_token: None,
        }
    }

    /// The prefill of a request is done.
    pub(super) fn first_token(&mut self, reserved: &mut Reserved, at: At) {
        self.load.first_token(&mut reserved.load);
        if reserved.first_token.is_none() {
            reserved.first_token = Some(at);
            self.backlog.first_token(at, &reserved.line, reserved.rtt_ms);
        }
    }

    /// Releases the load, and learns from a request that ended well. Gives back how many times as large the mirror of
    /// that replica's cache must become, if it must.
    pub(super) fn finish(&mut self, replica: ReplicaId, reserved: Reserved, ended: &Ended<'_>) -> Option<f64> {
        let Ended { ending, at, .. } = *ended;
        self.load.release(reserved.load);
        self.backlog.release(reserved.line, reserved.rtt_ms);
        self.latency.record(at, replica, ending);
        if !ending.completed {
            return None;
        }
        self.tail.record(ending);
        let usage = ending.usage;
        if let Some(tokens) = usage.completion_tokens {
            let decode_ms = reserved.first_token.map(|first| at.millis_since(first));
            self.answers.record(replica, reserved.inflight, tokens, decode_ms);
        }
        if let (Some(mut facts), Some(ttft_ms)) = (reserved.facts, ending.ttft_ms) {
            if let (Some(prompt), Some(cached)) = (usage.prompt_tokens, usage.cached_tokens) {
                facts.uncached_tokens = prompt.saturating_sub(cached);
            }
            self.rates.learn(replica, &Sample { facts, ttft_ms });
            if reserved.backlog_ms < UNHURRIED_BACKLOG_MS {
                facts.queued_uncached_tokens = 0;
                self.service.learn(replica, &Sample { facts, ttft_ms });
            }
        }
        let actual = usage.cached_tokens?;
        // What was believed, in the engine's own tokens: bytes only estimate them.
        let (estimated, counted) = (reserved.prompt_tokens, usage.prompt_tokens.unwrap_or(reserved.prompt_tokens));
        let predicted = u64::from(reserved.cached_tokens) * u64::from(counted) / u64::from(estimated.max(1));
        let predicted = u32::try_from(predicted).unwrap_or(u32::MAX);
        self.hits.record(replica, counted, predicted, actual);
        let Ended { old, near_tail, .. } = *ended;
        self.mirror.record(replica, Finding { prompt: counted, predicted, actual, old, near_tail })
    }

    /// Takes in an event; answers with the replica whose engine restarted, if it says so.
    pub(super) fn apply(&mut self, event: &Event) -> Option<ReplicaId> {
        self.rtt.apply(event);
        self.load.apply(event);
        self.fleet.apply(event);
        let restarted = self.reports.apply(event).map(|Restarted(replica)| replica);
        match event {
            Event::Restarted { replica } => Some(*replica),
            _ => restarted,
        }
    }

    /// A replica's KV capacity in tokens, where known, corrected by what was found of it, and a model it serves, whose
    /// tokens these are.
    pub(super) fn capacity(&self, replica: ReplicaId) -> Option<(f64, Option<Arc<str>>)> {
        #[expect(clippy::cast_precision_loss, reason = "KV caches stay far below 2^53 tokens")]
        let tokens = self.reports.capacity_tokens(replica)? as f64 * self.mirror.factor(replica);
        Some((tokens, self.fleet.models(replica).first().cloned()))
    }

    /// How many decisions a policy made before.
    pub(super) fn turn(&self, policy: PolicyIndex) -> u64 {
        self.turns[policy.index()]
    }

    /// It made one more.
    pub(super) fn next_turn(&mut self, policy: PolicyIndex) {
        self.turns[policy.index()] += 1;
    }
}
