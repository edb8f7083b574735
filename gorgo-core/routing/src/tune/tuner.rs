//! The whole machine: generations one after another, each asked for, tried, judged, told and written down.
//!
//! Between trials, while it warms up, or when there is nothing to try, the incumbent decides. A trial is cut, and not
//! counted, when the fleet changes under it (a replica comes, goes or restarts): the candidate would get the blame.

mod resume;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::cohort::Statistic;
use super::contrast::{estimates, samples};
use super::decisive_terms::Decisive;
use super::drift::Drift;
use super::objective::Objective;
use super::optimizer::{Constants, Optimizer, OptimizerKind, Told};
use super::reference_tuner::Reference;
use super::reward_hacking::hacked;
use super::sample::Sample;
use super::space::Space;
use super::trial::{Assignment, Blocks, Stamp, Trial};
use super::verdict::{Ended, Guard, Noise, judge};
use crate::model::{
    AlarmRecord, At, DecisionId, DecisionRecord, Generation, GenerationRecord, OutcomeRecord, Params, PolicyBuildId,
    Record, ScoreRecord, Verdict, WeightRecord, Weights,
};

/// Requests that must have ended before the first trial, and after the fleet changed: first windows are of cold
/// caches, and whatever is tried in them seems to win.
const WARM_UP: u32 = 160;
/// E2E times that the wash-out's 95th percentile is of.
const RECENT: usize = 256;
/// Longest wash-out.
const MAX_WASHOUT: Duration = Duration::from_secs(60);
/// A counted request is overdue, and a bad sample, after this long or four times the 95th percentile of E2E.
const OVERDUE: Duration = Duration::from_secs(30);
/// How often overdue requests are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Most requests that are waited for at a time; beyond it, which no fleet's generation needs, they are not counted.
const MAX_PENDING: usize = 100_000;

/// What a tune table says; what a tuner is made of.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What is minimised.
    pub objective: Arc<dyn Objective>,
    /// Its kind.
    pub objective_kind: &'static str,
    /// SHA-256 of its library, hexadecimal, where it is a plugin.
    pub objective_sha256: Option<Arc<str>>,
    /// What proposes.
    pub optimizer: &'static OptimizerKind,
    /// Its parameters.
    pub optimizer_params: Params,
    /// The weights that may move.
    pub space: Space,
    /// How requests are given to arms.
    pub assignment: Assignment,
    /// Sizes and limits of trials.
    pub blocks: Blocks,
    /// What no candidate may do.
    pub guard: Guard,
    /// Seed of proposals and of the order of blocks.
    pub seed: u64,
}

impl Plan {
    /// Requests of an arm below which its objective decides nothing.
    #[must_use]
    pub fn least_samples(&self) -> u64 {
        super::contrast::least_samples(&*self.objective) as u64
    }

    /// A tuner of `policy`, whose weights as configured are `weights`; `fleet` are the names of the replicas.
    ///
    /// # Errors
    /// What is wrong with the optimizer's parameters.
    pub fn tuner(&self, policy: PolicyBuildId, weights: Weights, fleet: Vec<String>) -> Result<Tuner, String> {
        let reference = if self.optimizer_params.text("mode") == Some("reference") {
            Some(Reference::new(Constants::read(&self.optimizer_params)?, &self.space, self.seed))
        } else {
            None
        };
        let incumbent = Arc::new(weights);
        Ok(Tuner {
            optimizer: (self.optimizer.build)(&self.optimizer_params, &self.space, self.seed)?,
            reference,
            next_generation: incumbent.generation.0 + 1,
            in_force: incumbent.generation,
            base: incumbent.values.clone(),
            incumbent,
            plan: self.clone(),
            policy,
            fleet,
            trial: None,
            next_block: 0,
            noise: Noise::default(),
            pending: HashMap::new(),
            recent: VecDeque::new(),
            e2e_p95: Duration::ZERO,
            ended: 0,
            looked: At(0),
            idle: false,
            decisive: Decisive::default(),
            drift: Drift::default(),
            alarms: Vec::new(),
            said: "warming up".to_owned(),
            outbox: Vec::new(),
        })
    }
}

/// What a decision is made with, and stamped with.
#[derive(Debug, Clone, PartialEq)]
pub struct Assigned {
    /// The weights.
    pub weights: Arc<Weights>,
    /// The place in the experiment; `None` outside one.
    pub stamp: Option<Stamp>,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    routed: At,
    generation: Generation,
    stamp: Option<Stamp>,
    replica: u16,
    size: f64,
}

#[derive(Debug)]
struct Running {
    candidate: Arc<Weights>,
    started: At,
    trial: Trial,
    /// Whole pairs at the last look.
    looked_at: usize,
}

/// Tunes one policy. Fed with decisions and outcomes; what it has to write down is taken by [`Tuner::records`].
#[derive(Debug)]
pub struct Tuner {
    plan: Plan,
    policy: PolicyBuildId,
    fleet: Vec<String>,
    optimizer: Box<dyn Optimizer>,
    reference: Option<Reference>,
    /// Weights of all slots as configured; the dimensions' are replaced.
    base: Vec<f64>,
    incumbent: Arc<Weights>,
    next_generation: u64,
    next_block: u32,
    /// Whose weights the last decision was made with.
    in_force: Generation,
    trial: Option<Running>,
    noise: Noise,
    pending: HashMap<DecisionId, Pending>,
    recent: VecDeque<f64>,
    e2e_p95: Duration,
    /// Requests that ended since the start or since the fleet changed.
    ended: u32,
    looked: At,
    /// The optimizer has nothing to try.
    idle: bool,
    decisive: Decisive,
    drift: Drift,
    /// Kinds of the alarms that are on.
    alarms: Vec<String>,
    said: String,
    outbox: Vec<Record>,
}

impl Tuner {
    /// The weights and the stamp of the next decision. Each must be followed by [`Tuner::decided`], or by
    /// [`Tuner::withdrawn`] where nobody could be chosen.
    pub fn assign(&mut self, session: u64, lot: u64, at: At) -> Assigned {
        if let Some(reference) = &self.reference {
            let arm = u8::from(!reference.state.converged);
            let stamp = Stamp { arm, block: None, counted: arm == 1 };
            let weights = self.trial.as_ref().map_or(&self.incumbent, |running| &running.candidate);
            return Assigned { weights: Arc::clone(weights), stamp: Some(stamp) };
        }
        self.look(at);
        if self.trial.is_none() && !self.idle && self.ended >= WARM_UP {
            self.begin(at);
        }
        let washout = self.e2e_p95.min(MAX_WASHOUT);
        let Some(running) = &mut self.trial else {
            return Assigned { weights: Arc::clone(&self.incumbent), stamp: None };
        };
        let mut stamp = running.trial.stamp(session, lot, at, washout);
        if stamp.counted && self.pending.len() >= MAX_PENDING {
            stamp.counted = false;
        }
        let weights = Arc::clone(if stamp.arm == 1 { &running.candidate } else { &self.incumbent });
        if self.plan.assignment == Assignment::Switchback && weights.generation != self.in_force {
            self.force(&weights, at);
        }
        Assigned { weights, stamp: Some(stamp) }
    }

    /// The weights that a decision was made with, while it is in flight.
    #[must_use]
    pub fn weights_of_decision(&self, decision: DecisionId) -> Option<Arc<Weights>> {
        let generation = self.pending.get(&decision)?.generation;
        let known = [Some(&self.incumbent), self.trial.as_ref().map(|running| &running.candidate)];
        known.into_iter().flatten().find(|weights| weights.generation == generation).map(Arc::clone)
    }

    /// New generations are numbered above `last`.
    pub fn number_from(&mut self, last: u64) {
        self.next_generation = self.next_generation.max(last.saturating_add(1));
    }

    /// Nobody could be chosen: the request says nothing of the weights.
    pub fn withdrawn(&mut self, stamp: Option<Stamp>, at: At) {
        if let (Some(running), Some(Stamp { block: Some(block), counted: true, .. })) = (&mut self.trial, stamp) {
            running.trial.withdrawn(block);
            self.weigh(at);
        }
    }

    /// A decision was made.
    pub fn decided(&mut self, decision: &DecisionRecord) {
        let Some(replica) = decision.replica.filter(|_| decision.policy == self.policy) else { return };
        let slots: Vec<usize> = self.plan.space.dimensions.iter().map(|dimension| dimension.slot).collect();
        if let Some(shares) = self.decisive.take(decision, &slots) {
            for (place, share) in shares.into_iter().enumerate() {
                let name = &self.plan.space.dimensions[place].name;
                let kind = format!("term-never-decides:{name}");
                self.alarm(kind, share < 0.001, share, decision.received);
            }
        }
        let cached = decision.candidates.iter().map(|row| row.cached_tokens).max().unwrap_or(0);
        let uncached = decision.prompt_tokens.saturating_sub(cached);
        let stamp = decision.arm.map(|arm| Stamp { arm, block: decision.block, counted: decision.counted });
        self.pending.insert(
            decision.decision,
            Pending {
                routed: decision.received,
                generation: decision.generation,
                stamp,
                replica: replica.0,
                size: f64::from(uncached).ln_1p(),
            },
        );
    }

    /// A request ended.
    pub fn outcome(&mut self, outcome: &OutcomeRecord, at: At) {
        let Some(pending) = self.pending.remove(&outcome.decision) else { return };
        let sample = Sample::of(outcome, pending.replica, pending.size);
        self.ended = self.ended.saturating_add(1);
        if let Some(sample) = &sample {
            self.remember(sample.e2e_ms);
        }
        self.sampled(pending, sample, at);
    }

    fn sampled(&mut self, pending: Pending, sample: Option<Sample>, at: At) {
        if self.reference.is_some() {
            if let Some(ttft) = sample.and_then(|sample| sample.ttft_ms) {
                self.hop(ttft, pending.generation, at);
            }
            return;
        }
        if pending.stamp.is_none_or(|stamp| stamp.arm == 0)
            && pending.generation == self.incumbent.generation
            && let Some(sample) = &sample
            && self.drift.take(sample)
        {
            self.optimizer.reopen();
            self.idle = false;
            self.noise = Noise::default();
            self.outbox.push(Record::Alarm(AlarmRecord {
                at,
                kind: "drift".to_owned(),
                value: self.optimizer.sigma(),
                over: false,
            }));
            // A moment, not a state: over as soon as it is on.
            self.outbox.push(Record::Alarm(AlarmRecord { at, kind: "drift".to_owned(), value: None, over: true }));
            self.said = "the incumbent's latency changed for good: searching widely again".to_owned();
        }
        if let (Some(running), Some(Stamp { block: Some(block), counted: true, .. })) = (&mut self.trial, pending.stamp)
        {
            running.trial.ended(block, sample);
            self.weigh(at);
        }
    }

    /// The fleet changed: what a running trial would find is not the candidate's doing.
    pub fn disturbed(&mut self, why: &str, at: At) {
        self.ended = 0;
        self.drift.reset();
        if self.reference.is_none() && self.trial.is_some() {
            self.cut(format!("cut: {why}"), at);
        }
    }

    /// The router stops: a trial under way is not counted, and says so.
    pub fn stopped(&mut self, at: At) {
        if self.reference.is_none() && self.trial.is_some() {
            self.cut("cut: the router stopped".to_owned(), at);
        }
    }

    fn cut(&mut self, reason: String, at: At) {
        let told = Told { accepted: false, decided: false, difference: 0.0, error: 0.0 };
        self.conclude(Ended { verdict: Verdict::Cut, reason, told }, at);
    }

    /// What is to be written down since the last call.
    pub fn records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.outbox)
    }

    /// The weights that won last.
    #[must_use]
    pub const fn incumbent(&self) -> &Arc<Weights> {
        &self.incumbent
    }

    /// The generation that is tried now.
    #[must_use]
    pub fn trying(&self) -> Option<&Arc<Weights>> {
        self.trial.as_ref().map(|running| &running.candidate)
    }

    /// What it does, or why it decided as it last did, for people.
    #[must_use]
    pub fn said(&self) -> &str {
        &self.said
    }

    /// The size of the optimizer's steps, in logarithms.
    #[must_use]
    pub fn sigma(&self) -> Option<f64> {
        self.reference.as_ref().map_or_else(|| self.optimizer.sigma(), |reference| Some(reference.state.sigma))
    }

    fn remember(&mut self, e2e_ms: f64) {
        self.recent.push_back(e2e_ms);
        while self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        // Sorting a few hundred numbers for every request would be waste.
        if self.ended.is_multiple_of(32) {
            let mut sorted: Vec<f64> = self.recent.iter().copied().collect();
            sorted.sort_by(f64::total_cmp);
            let p95 = sorted[(sorted.len() * 95).div_ceil(100).max(1) - 1];
            self.e2e_p95 = Duration::try_from_secs_f64(p95 / 1e3).unwrap_or(MAX_WASHOUT);
        }
    }

    /// Counts requests that should have ended as bad ones.
    fn look(&mut self, at: At) {
        if at.since(self.looked) < LOOK_EVERY {
            return;
        }
        self.looked = at;
        let limit = OVERDUE.max(self.e2e_p95 * 4);
        let mut overdue: Vec<DecisionId> =
            self.pending.iter().filter(|(_, one)| at.since(one.routed) > limit).map(|(id, _)| *id).collect();
        overdue.sort_unstable();
        for id in overdue {
            if let Some(pending) = self.pending.remove(&id) {
                let sample = Sample::overdue(at.millis_since(pending.routed), pending.replica, pending.size);
                self.sampled(pending, Some(sample), at);
            }
        }
    }

    /// The dimensions' weights in their slots, all others as configured.
    fn weights_of(&self, point: &[f64], generation: u64) -> Arc<Weights> {
        let mut values = self.base.clone();
        for (dimension, weight) in self.plan.space.dimensions.iter().zip(point) {
            values[dimension.slot] = *weight;
        }
        Arc::new(Weights { generation: Generation(generation), values })
    }

    fn begin(&mut self, at: At) {
        let Some(point) = self.optimizer.ask() else {
            self.idle = true;
            self.said = "nothing to try".to_owned();
            return;
        };
        let candidate = self.weights_of(&point, self.next_generation);
        let seed = self.plan.seed ^ self.next_generation.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.next_generation += 1;
        let trial = Trial::new(self.plan.blocks, self.plan.assignment, seed, self.next_block, at);
        self.said = format!("generation {} on trial: {}", candidate.generation.0, self.shown(&point));
        let running = Running { candidate: Arc::clone(&candidate), started: at, trial, looked_at: 0 };
        let row = self.row(&running, None);
        self.outbox.push(Record::Generation(Box::new(row)));
        self.trial = Some(running);
        if self.plan.assignment != Assignment::Switchback {
            // Both decide at once; the candidate's row says from when to when.
            self.force(&candidate, at);
        }
    }

    fn shown(&self, point: &[f64]) -> String {
        let each = self.plan.space.dimensions.iter().zip(point);
        each.map(|(dimension, weight)| format!("{} = {weight:.4}", dimension.name)).collect::<Vec<_>>().join(", ")
    }

    /// From now on decisions are made with these.
    fn force(&mut self, weights: &Weights, at: At) {
        self.in_force = weights.generation;
        self.outbox.push(Record::Weights(WeightRecord {
            policy: self.policy,
            at,
            generation: weights.generation,
            values: weights.values.clone(),
        }));
    }

    /// Looks at a trial that got another whole pair.
    fn weigh(&mut self, at: At) {
        let Some(running) = &mut self.trial else { return };
        let whole = running.trial.whole_pairs();
        if whole <= running.looked_at {
            return;
        }
        running.looked_at = whole;
        let (pairs, last) = (running.trial.pairs(), running.trial.is_exhausted());
        let limits = (&self.plan.blocks, &self.plan.guard);
        let ended = judge(&*self.plan.objective, &pairs, self.fleet.len(), limits, &mut self.noise, last);
        match ended {
            Some(ended) => self.conclude(ended, at),
            None => {
                let generation = running.candidate.generation.0;
                self.said =
                    format!("generation {generation} on trial: {whole} of {} pairs", self.plan.blocks.max_pairs);
            }
        }
    }

    fn conclude(&mut self, ended: Ended, at: At) {
        let Some(running) = self.trial.take() else { return };
        let Ended { verdict, mut reason, told } = ended;
        self.next_block = running.trial.range().1;
        self.optimizer.tell(&told);
        self.idle = false;
        self.said = format!("generation {} {}: {reason}", running.candidate.generation.0, verdict.name());
        let scores = self.scores(&running);
        let parent = self.incumbent.generation;
        if told.accepted {
            self.incumbent = Arc::clone(&running.candidate);
            self.drift.reset();
            self.check_bounds(at);
            let hacked = hacked(&running.trial.pairs(), self.fleet.len());
            if let Some(hacked) = &hacked {
                reason = format!("{reason}; {}", hacked.told());
                self.said = format!("generation {} {}: {reason}", running.candidate.generation.0, verdict.name());
            }
            let value = hacked.as_ref().map_or(0.0, super::reward_hacking::Hacked::ratio);
            self.alarm("reward-hacking".to_owned(), hacked.is_some(), value, at);
        }
        let mut row = self.row(&running, Some(self.save()));
        row.parent = Some(parent);
        (row.ended, row.verdict, row.reason, row.scores) = (Some(at), Some(verdict), Some(reason), scores);
        self.outbox.push(Record::Generation(Box::new(row)));
        if self.in_force != self.incumbent.generation {
            let incumbent = Arc::clone(&self.incumbent);
            self.force(&incumbent, at);
        }
    }

    fn row(&self, running: &Running, state: Option<String>) -> GenerationRecord {
        GenerationRecord {
            policy: self.policy,
            generation: running.candidate.generation,
            parent: Some(self.incumbent.generation),
            started: running.started,
            ended: None,
            optimizer: self.plan.optimizer.kind,
            sigma: self.sigma(),
            state,
            blocks: running.trial.scored(),
            verdict: None,
            reason: None,
            scores: Vec::new(),
        }
    }

    /// Every statistic of both arms, with intervals, and the score.
    fn scores(&self, running: &Running) -> Vec<ScoreRecord> {
        let pairs = running.trial.pairs();
        let sizes = samples(&pairs);
        if sizes.0 == 0 || sizes.1 == 0 {
            return Vec::new();
        }
        let mut scores = Vec::new();
        for statistic in Statistic::ALL {
            let Some((candidate, incumbent)) = estimates(&pairs, self.fleet.len(), statistic) else { continue };
            for (arm, estimate, samples) in [(0, incumbent, sizes.0), (1, candidate, sizes.1)] {
                scores.push(ScoreRecord {
                    arm,
                    statistic: statistic.name(),
                    value: estimate.value,
                    low: estimate.low,
                    high: estimate.high,
                    samples: samples as u64,
                });
            }
        }
        if let Some(seen) = super::contrast::contrast(&*self.plan.objective, &pairs, self.fleet.len()) {
            let score = |arm, value: f64, half: Option<f64>, samples: usize| ScoreRecord {
                arm,
                statistic: "score",
                value,
                low: half.map(|half| value - half),
                high: half.map(|half| value + half),
                samples: samples as u64,
            };
            scores.push(score(0, seen.incumbent, None, sizes.0));
            scores.push(score(1, seen.candidate, None, sizes.1));
            let difference = score(1, seen.difference, Some(1.96 * seen.error), sizes.0 + sizes.1);
            scores.push(ScoreRecord { statistic: "score_difference", ..difference });
        }
        scores
    }

    fn check_bounds(&mut self, at: At) {
        let point = self.optimizer.incumbent().to_vec();
        let at_bound: Vec<(String, f64)> =
            self.plan.space.at_bound(&point).map(|(dimension, weight)| (dimension.name.clone(), weight)).collect();
        for dimension in self.plan.space.dimensions.clone() {
            let found = at_bound.iter().find(|(name, _)| *name == dimension.name);
            let value = found.map_or(0.0, |(_, weight)| *weight);
            self.alarm(format!("weight-at-bound:{}", dimension.name), found.is_some(), value, at);
        }
    }

    /// Raises or clears an alarm; repeated ones are not.
    fn alarm(&mut self, kind: String, on: bool, value: f64, at: At) {
        let was = self.alarms.iter().position(|known| *known == kind);
        match (was, on) {
            (None, true) => self.alarms.push(kind.clone()),
            (Some(place), false) => drop(self.alarms.remove(place)),
            _ => return,
        }
        self.outbox.push(Record::Alarm(AlarmRecord { at, kind, value: Some(value), over: !on }));
    }

    /// A sample for the reference's loop.
    fn hop(&mut self, ttft_ms: f64, routed_by: Generation, at: At) {
        if self.trial.is_none() {
            // Its first generation are the weights as configured.
            let candidate = Arc::clone(&self.incumbent);
            let trial = Trial::new(self.plan.blocks, Assignment::Request, 0, 0, at);
            self.trial = Some(Running { candidate, started: at, trial, looked_at: 0 });
        }
        let now = self.trial.as_ref().map_or(0, |running| running.candidate.generation.0);
        let Some(reference) = &mut self.reference else { return };
        let Some(hop) = reference.take(ttft_ms, routed_by.0, now) else { return };
        let (next, best, converged) =
            (reference.state.current.clone(), reference.state.best.clone(), reference.state.converged);
        let Some(running) = self.trial.take() else { return };
        let verdict = if hop.accepted { Verdict::Accepted } else { Verdict::Rejected };
        let reason = format!(
            "reference: score {:.1} against {:.1} so far; {:.0} % of the window are other generations'",
            hop.score,
            hop.before,
            hop.foreign * 100.0
        );
        let parent = self.incumbent.generation;
        if hop.accepted {
            self.incumbent = Arc::clone(&running.candidate);
        }
        self.said = format!("generation {} {}: {reason}", running.candidate.generation.0, verdict.name());
        if running.candidate.generation.0 > 0 {
            let mut row = self.row(&running, Some(self.save()));
            row.parent = Some(parent);
            (row.ended, row.verdict, row.reason) = (Some(at), Some(verdict), Some(reason));
            row.blocks = (0, 0);
            row.scores =
                vec![ScoreRecord { arm: 1, statistic: "score", value: hop.score, low: None, high: None, samples: 128 }];
            self.outbox.push(Record::Generation(Box::new(row)));
        }
        let candidate = if converged {
            self.weights_of(&best, self.incumbent.generation.0)
        } else {
            let candidate = self.weights_of(&next, self.next_generation);
            self.next_generation += 1;
            candidate
        };
        self.force(&candidate, at);
        let trial = Trial::new(self.plan.blocks, Assignment::Request, 0, 0, at);
        self.trial = Some(Running { candidate, started: at, trial, looked_at: 0 });
    }
}
