//! All facts that one lock guards, and the steps on them.

use std::sync::Arc;

use crate::config::{Probe, Scrape};
use crate::feature::fleet::{Fleet, Serves};
use crate::feature::latency::Latency;
use crate::feature::load::{Load, Ticket};
use crate::feature::rates::{RateFacts, Rates, Sample};
use crate::feature::report::{Reports, Restarted};
use crate::feature::rtt::Rtt;
use crate::feature::share::Shares;
use crate::model::{At, Candidates, Ending, Event, PolicyId, Replica, ReplicaId, RequestView};
use crate::policy::Policies;

/// Age at which an observed TTFT counts half, ms: long enough for a dozen requests at one a second.
const LATENCY_HALF_LIFE_MS: f64 = 10_000.0;

/// Facts per replica, and turns per policy.
#[derive(Debug)]
pub(super) struct State {
    pub(super) load: Load,
    pub(super) fleet: Fleet,
    pub(super) rates: Rates,
    rtt: Rtt,
    reports: Reports,
    shares: Shares,
    latency: Latency,
    /// Decisions so far, by policy.
    turns: Vec<u64>,
}

/// What was reserved in the step that chose.
#[derive(Debug)]
pub(super) struct Reserved {
    pub(super) ticket: Ticket,
    pub(super) facts: Option<RateFacts>,
    pub(super) predicted_ttft_ms: Option<f64>,
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
            turns: vec![0; policies.list.len()],
        }
    }

    /// Fills the candidates' columns but for what the index says. All of them: rows for the store want them whichever
    /// policy decides, and shadows want what their own terms read.
    pub(super) fn fill(&mut self, model: Option<&str>, at: At, candidates: &mut Candidates) -> Serves {
        let serves = self.fleet.mark_available(model, candidates);
        if serves == Serves::Somebody {
            self.load.read(candidates);
            self.rtt.read(at, candidates);
            self.reports.read(at, candidates);
            self.rates.read(candidates);
            self.latency.read(at, candidates);
            self.shares.read(at, candidates);
        }
        serves
    }

    /// Charges the request to the chosen row.
    pub(super) fn reserve(&mut self, row: usize, request: &RequestView, at: At, facts: &Candidates) -> Reserved {
        let replica = facts.replica[row];
        let uncached_tokens = facts.uncached_tokens(request, row);
        let rate_facts = facts.rtt_ms[row].map(|rtt_ms| RateFacts {
            rtt_ms,
            uncached_tokens,
            queued_uncached_tokens: facts.queued_uncached_tokens[row],
            decoding: facts.decoding[row],
        });
        self.shares.record(at, replica, request.prompt_tokens, uncached_tokens);
        Reserved {
            ticket: self.load.reserve(replica, request.prompt_tokens, uncached_tokens),
            predicted_ttft_ms: rate_facts.and_then(|facts| self.rates.predict_ms(replica, &facts)),
            facts: rate_facts,
        }
    }

    /// Releases the load, and learns from a request that ended well.
    pub(super) fn finish(
        &mut self,
        replica: ReplicaId,
        ticket: Ticket,
        facts: Option<RateFacts>,
        ending: &Ending,
        at: At,
    ) {
        self.load.release(ticket);
        self.latency.record(at, replica, ending);
        if let (true, Some(mut facts), Some(ttft_ms)) = (ending.completed, facts, ending.ttft_ms) {
            let usage = ending.usage;
            if let (Some(prompt), Some(cached)) = (usage.prompt_tokens, usage.cached_tokens) {
                facts.uncached_tokens = prompt.saturating_sub(cached);
            }
            self.rates.learn(replica, &Sample { facts, ttft_ms });
        }
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

    /// A replica's KV capacity in tokens, where known, and a model it serves, whose tokens these are.
    pub(super) fn capacity(&self, replica: ReplicaId) -> Option<(u64, Option<Arc<str>>)> {
        let tokens = self.reports.capacity_tokens(replica)?;
        Some((tokens, self.fleet.models(replica).first().cloned()))
    }

    /// How many decisions a policy made before.
    pub(super) fn turn(&self, policy: PolicyId) -> u64 {
        self.turns[policy.index()]
    }

    /// It made one more.
    pub(super) fn next_turn(&mut self, policy: PolicyId) {
        self.turns[policy.index()] += 1;
    }
}
