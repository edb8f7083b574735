//! All facts that one lock guards, and the steps on them.

use std::sync::Arc;

use crate::config::{ProbeConfig, ScrapeConfig};
use crate::feature::admission::{AdmissionGate, WorkAhead};
use crate::feature::answer_stats::AnswerStats;
use crate::feature::backlog::{self, FleetBacklog};
use crate::feature::capacity_correction::{CapacityCorrection, HitObservation};
use crate::feature::fleet::{FleetState, ModelAvailability};
use crate::feature::hit_correction::HitCorrection;
use crate::feature::latency::TtftAverages;
use crate::feature::load::{self, FleetLoad};
use crate::feature::rates::{FleetRates, RateFacts, RateSample};
use crate::feature::report::{EngineReports, RestartedEngine};
use crate::feature::rtt::RoundTrips;
use crate::feature::share::WorkShares;
use crate::feature::ttft_quantile::TtftQuantile;
use crate::model::{Candidates, FleetEvent, PolicyIndex, Replica, ReplicaId, RequestOutcome, RequestView, UnixMicros};
use crate::policy::PolicySet;

/// Age at which an observed TTFT counts half, ms: long enough for a dozen requests at one a second.
const LATENCY_HALF_LIFE_MS: f64 = 10_000.0;

/// Backlog above which a request teaches nothing about service times, ms: its wait would be mistaken for slowness,
/// and the slow replica would get fewer requests to learn from.
const UNHURRIED_BACKLOG_MS: f64 = 50.0;

/// Facts per replica, and turns per policy.
#[derive(Debug)]
pub(super) struct RouterState {
    pub(super) load: FleetLoad,
    pub(super) fleet: FleetState,
    pub(super) rates: FleetRates,
    pub(super) rtt: RoundTrips,
    reports: EngineReports,
    shares: WorkShares,
    latency: TtftAverages,
    pub(super) backlog: FleetBacklog,
    /// Service times of requests that met no backlog; its queue is always 0.
    pub(super) service: FleetRates,
    pub(super) answers: AnswerStats,
    pub(super) hits: HitCorrection,
    pub(super) mirror: CapacityCorrection,
    tail: TtftQuantile,
    pub(super) gate: AdmissionGate,
    /// Decisions so far, by policy.
    decision_counts: Vec<u64>,
}

/// Load reserved in the step that chose, and the predictions at that time. [`RouterState::finish`] takes it back.
#[derive(Debug)]
pub(super) struct ReservedWork {
    pub(super) load: load::LoadTicket,
    backlog: backlog::BacklogTicket,
    pub(super) predicted_ttft_ms: Option<f64>,
    /// Input of the rates; `None` if the round trip was unknown.
    facts: Option<RateFacts>,
    rtt_ms: f64,
    backlog_ms: f64,
    inflight: u32,
    prompt_tokens: u32,
    cached_tokens: u32,
    first_token: Option<UnixMicros>,
}

/// How a request ended, for the mirror of the engine's cache.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndedRequest<'a> {
    pub(super) ending: &'a RequestOutcome,
    pub(super) at: UnixMicros,
    /// True if the blocks believed cached had not been used for long.
    pub(super) long_unused: bool,
    /// True if they were among the least recently used.
    pub(super) near_eviction: bool,
}

/// A request that goes to the replica of a row now.
pub(super) struct Dispatch {
    /// Row of the chosen replica.
    pub(super) row: usize,
    pub(super) at: UnixMicros,
    /// True if its first token will be seen.
    pub(super) streams: bool,
    /// Work in the facts that only waits at the gate: the request does not meet it in the engine.
    pub(super) ahead: WorkAhead,
}

impl RouterState {
    #[expect(clippy::cast_precision_loss, reason = "settings in ms stay far below 2^53")]
    pub(super) fn new(
        fleet: &[Replica],
        models: &[Vec<Arc<str>>],
        policies: &PolicySet,
        probe: &ProbeConfig,
        scrape: &ScrapeConfig,
    ) -> Self {
        let replicas = fleet.len();
        Self {
            load: FleetLoad::new(replicas),
            fleet: FleetState::new(fleet, models),
            rates: FleetRates::new(replicas),
            rtt: RoundTrips::new(replicas, probe.half_life_ms as f64, probe.timeout_ms as f64),
            reports: EngineReports::new(fleet, scrape.stale_after_ms as f64),
            shares: WorkShares::new(policies.windows.clone(), replicas),
            latency: TtftAverages::new(replicas, LATENCY_HALF_LIFE_MS),
            backlog: FleetBacklog::new(replicas),
            service: FleetRates::new(replicas),
            answers: AnswerStats::new(replicas),
            hits: HitCorrection::new(replicas),
            mirror: CapacityCorrection::new(replicas),
            tail: TtftQuantile::new(),
            gate: AdmissionGate::new(fleet),
            decision_counts: vec![0; policies.list.len()],
        }
    }

    /// Fills the candidates' columns except those of the index and the connections. All of them, whatever the policy
    /// and its shadows read: the store's rows, the reservation and the gate need most of them, and checking which of
    /// the rest are needed would take as long as filling them.
    pub(super) fn fill(
        &mut self,
        model: Option<&str>,
        request: &RequestView,
        at: UnixMicros,
        candidates: &mut Candidates,
    ) -> ModelAvailability {
        let serves = self.fleet.mark_available(model, candidates);
        // Without an available replica the request is refused, and nobody reads the facts.
        if serves == ModelAvailability::Available {
            self.load.fill(candidates);
            self.rtt.fill(at, candidates);
            self.reports.fill(at, candidates);
            self.rates.fill(candidates);
            self.latency.fill(at, candidates);
            self.shares.fill(at, candidates);
            self.backlog.fill(at, candidates);
            self.service.fill_service(candidates);
            self.answers.fill(candidates);
            self.hits.fill(request, candidates);
            self.tail.fill(candidates);
        }
        serves
    }

    /// Charges the request to the chosen row.
    pub(super) fn reserve(&mut self, dispatch: &Dispatch, request: &RequestView, facts: &Candidates) -> ReservedWork {
        let Dispatch { row, at, streams, ahead } = *dispatch;
        // Rates learn from the load that the engine saw, without the requests that waited at the gate.
        let replica = facts.replica[row];
        let uncached_tokens = facts.uncached_tokens(request, row);
        let rate_facts = facts.rtt_ms[row].map(|rtt_ms| RateFacts {
            rtt_ms,
            uncached_tokens,
            queued_uncached_tokens: facts.queued_uncached_tokens[row].saturating_sub(ahead.uncached_tokens),
            decoding: facts.decoding[row],
        });
        // An unknown round trip counts as 0 for the backlog; the rates do not learn from such a request at all.
        let rtt_ms = facts.rtt_ms[row].unwrap_or(0.0);
        let work_ms = facts.service_ms_per_token[row] * facts.likely_uncached_tokens[row];
        self.shares.record(at, replica, request.prompt_tokens, uncached_tokens);
        ReservedWork {
            load: self.load.reserve(replica, request.prompt_tokens, uncached_tokens),
            backlog: self.backlog.dispatch(at, replica, rtt_ms, work_ms, streams),
            predicted_ttft_ms: rate_facts.and_then(|facts| self.rates.predict_ms(replica, &facts)),
            facts: rate_facts,
            rtt_ms,
            // The difference of two floating-point sums can fall just below 0.
            backlog_ms: (facts.backlog_ms[row] - ahead.work_ms).max(0.0),
            inflight: facts.inflight[row].saturating_sub(ahead.requests),
            prompt_tokens: request.prompt_tokens,
            cached_tokens: facts.cached_tokens[row],
            first_token: None,
        }
    }

    /// The prefill of a request is done.
    pub(super) fn first_token(&mut self, reserved: &mut ReservedWork, at: UnixMicros) {
        self.load.first_token(&mut reserved.load);
        // Only the first content ends the prefill; later calls change nothing.
        if reserved.first_token.is_none() {
            reserved.first_token = Some(at);
            self.backlog.first_token(at, &reserved.backlog, reserved.rtt_ms);
        }
    }

    /// Releases the load, and learns from a request that ended well. Returns the factor by which the mirror of
    /// that replica's cache must grow, if any.
    pub(super) fn finish(
        &mut self,
        replica: ReplicaId,
        reserved: ReservedWork,
        ended: &EndedRequest<'_>,
    ) -> Option<f64> {
        let EndedRequest { ending, at, .. } = *ended;
        // Released before the early return below, since a failed request frees its place as well.
        self.load.release(reserved.load);
        self.backlog.release(reserved.backlog, reserved.rtt_ms);
        self.latency.record(at, replica, ending);
        // A failed request teaches nothing about the speed of a replica.
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
            // The engine's own count of cached tokens replaces the prediction: the rates learn from the work that was really done.
            if let (Some(prompt), Some(cached)) = (usage.prompt_tokens, usage.cached_tokens) {
                facts.uncached_tokens = prompt.saturating_sub(cached);
            }
            self.rates.learn(replica, &RateSample { facts, ttft_ms });
            if reserved.backlog_ms < UNHURRIED_BACKLOG_MS {
                // These rates have no queue: such a request met almost none.
                facts.queued_uncached_tokens = 0;
                self.service.learn(replica, &RateSample { facts, ttft_ms });
            }
        }
        // An engine that does not report cached tokens teaches nothing about how often the index is right.
        let actual = usage.cached_tokens?;
        // The prediction in the engine's own tokens: bytes only estimate them.
        let (estimated, counted) = (reserved.prompt_tokens, usage.prompt_tokens.unwrap_or(reserved.prompt_tokens));
        // In 64 bits, because the product of two token counts may exceed 32; at least 1 avoids a division by zero.
        let predicted = u64::from(reserved.cached_tokens) * u64::from(counted) / u64::from(estimated.max(1));
        let predicted = u32::try_from(predicted).unwrap_or(u32::MAX);
        self.hits.record(replica, counted, predicted, actual);
        let EndedRequest { long_unused: old, near_eviction: near_tail, .. } = *ended;
        self.mirror.record(
            replica,
            HitObservation { prompt: counted, predicted, actual, long_unused: old, near_eviction: near_tail },
        )
    }

    /// Takes in an event; returns the replica whose engine restarted, if the event shows that.
    pub(super) fn apply(&mut self, event: &FleetEvent) -> Option<ReplicaId> {
        self.rtt.apply(event);
        self.load.apply(event);
        self.fleet.apply(event);
        let restarted = self.reports.apply(event).map(|RestartedEngine(replica)| replica);
        match event {
            // The event itself says so; otherwise the restart is inferred from the engine's report.
            FleetEvent::Restarted { replica } => Some(*replica),
            _ => restarted,
        }
    }

    /// KV capacity of a replica in tokens, if known, corrected by observation, and a model that it serves, whose
    /// tokens these are.
    pub(super) fn capacity(&self, replica: ReplicaId) -> Option<(f64, Option<Arc<str>>)> {
        #[expect(clippy::cast_precision_loss, reason = "KV caches stay far below 2^53 tokens")]
        let tokens = self.reports.capacity_tokens(replica)? as f64 * self.mirror.factor(replica);
        Some((tokens, self.fleet.models(replica).first().cloned()))
    }

    /// Number of decisions that a policy has made.
    pub(super) fn decision_count(&self, policy: PolicyIndex) -> u64 {
        self.decision_counts[policy.index()]
    }

    /// Counts one more decision.
    pub(super) fn count_decision(&mut self, policy: PolicyIndex) {
        self.decision_counts[policy.index()] += 1;
    }
}
