//! State machine of tuning: one generation after another is proposed, tried, judged, reported and recorded.
//!
//! Between trials, during warm-up, or when there is nothing to try, the incumbent decides. A trial is aborted, and does
//! not count, if the fleet changes during it (a replica joins, leaves or restarts): the candidate would get the blame.

mod resume;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::cohort::Statistic;
use super::contrast::{estimates, samples};
use super::decisive::Decisive;
use super::drift::Drift;
use super::hacking::hacked;
use super::objective::Objective;
use super::optimizer::{Constants, Optimizer, OptimizerKind, Told};
use super::reference::Reference;
use super::sample::Sample;
use super::space::Space;
use super::trial::{Assignment, Blocks, Stamp, Trial};
use super::verdict::{Ended, Guard, Noise, judge};
use crate::model::{
    AlarmRecord, At, DecisionId, DecisionRecord, Generation, GenerationRecord, OutcomeRecord, Params, PolicyBuildId,
    Record, ScoreRecord, Verdict, WeightRecord, Weights,
};

/// Requests that must have ended before the first trial, and after the fleet changed: the first windows have cold
/// caches, and anything tried in them seems to win.
const WARM_UP: u32 = 160;
/// Number of E2E times behind the wash-out's 95th percentile.
const RECENT: usize = 256;
/// Longest wash-out.
const MAX_WASHOUT: Duration = Duration::from_secs(60);
/// Shortest time after which a counted request is overdue, and a bad sample; the other limit is four times the 95th
/// percentile of E2E.
const OVERDUE: Duration = Duration::from_secs(30);
/// Interval of the search for overdue requests.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Most requests that are tracked at a time. Beyond, which no fleet's generation needs, they are not counted.
const MAX_PENDING: usize = 100_000;

/// Contents of a tune table, from which a tuner is built.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Objective to minimise.
    pub objective: Arc<dyn Objective>,
    /// Kind of the objective.
    pub objective_kind: &'static str,
    /// SHA-256 of the objective's library, hexadecimal, if it is a plugin.
    pub objective_sha256: Option<Arc<str>>,
    /// Kind of the optimizer.
    pub optimizer: &'static OptimizerKind,
    /// Parameters of the optimizer.
    pub optimizer_params: Params,
    /// Weights that may change.
    pub space: Space,
    /// Rule by which requests are assigned to arms.
    pub assignment: Assignment,
    /// Sizes and limits of trials.
    pub blocks: Blocks,
    /// Limits that no candidate may exceed.
    pub guard: Guard,
    /// Seed of proposals and of the order of blocks.
    pub seed: u64,
}

impl Plan {
    /// Requests per arm below which its objective decides nothing.
    #[must_use]
    pub fn least_samples(&self) -> u64 {
        super::contrast::least_samples(&*self.objective) as u64
    }

    /// Builds a tuner of `policy`, whose configured weights are `weights`; `fleet` are the names of the replicas.
    ///
    /// # Errors
    /// The fault in the optimizer's parameters.
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

/// Weights and stamp of a decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Assigned {
    /// Weights to decide with.
    pub weights: Arc<Weights>,
    /// Position in the experiment; `None` outside one.
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
    /// Number of complete pairs at the last evaluation.
    looked_at: usize,
}

/// Tuner of one policy. Fed with decisions and outcomes; the records that it produces are taken by [`Tuner::records`].
#[derive(Debug)]
pub struct Tuner {
    plan: Plan,
    policy: PolicyBuildId,
    fleet: Vec<String>,
    optimizer: Box<dyn Optimizer>,
    reference: Option<Reference>,
    /// Weights of all slots as configured; those of the dimensions are replaced.
    base: Vec<f64>,
    incumbent: Arc<Weights>,
    next_generation: u64,
    next_block: u32,
    /// Generation whose weights the last decision was made with.
    in_force: Generation,
    trial: Option<Running>,
    noise: Noise,
    pending: HashMap<DecisionId, Pending>,
    recent: VecDeque<f64>,
    e2e_p95: Duration,
    /// Requests that have ended since the start or since the fleet changed.
    ended: u32,
    looked: At,
    /// True if the optimizer has nothing to try.
    idle: bool,
    decisive: Decisive,
    drift: Drift,
    /// Kinds of the active alarms.
    alarms: Vec<String>,
    said: String,
    outbox: Vec<Record>,
}

impl Tuner {
    /// Weights and stamp of the next decision. Each must be followed by [`Tuner::decided`], or by [`Tuner::withdrawn`]
    /// if no replica could be chosen.
    pub fn assign(&mut self, session: u64, lot: u64, at: At) -> Assigned {
        if let Some(reference) = &self.reference {
            // The reference loop has no blocks or pairs: every request until convergence counts for the current
            // weights.
            let arm = u8::from(!reference.state.converged);
            let stamp = Stamp { arm, block: None, counted: arm == 1 };
            let weights = self.trial.as_ref().map_or(&self.incumbent, |running| &running.candidate);
            return Assigned { weights: Arc::clone(weights), stamp: Some(stamp) };
        }
        self.look(at);
        if self.trial.is_none() && !self.idle && self.ended >= WARM_UP {
            self.begin(at);
        }
        // Requests of the other arm have mostly ended after the 95th percentile of E2E.
        let washout = self.e2e_p95.min(MAX_WASHOUT);
        let Some(running) = &mut self.trial else {
            return Assigned { weights: Arc::clone(&self.incumbent), stamp: None };
        };
        let mut stamp = running.trial.stamp(session, lot, at, washout);
        // A request that is not tracked would never be reported as ended, and its block would never be complete.
        if stamp.counted && self.pending.len() >= MAX_PENDING {
            stamp.counted = false;
        }
        let weights = Arc::clone(if stamp.arm == 1 { &running.candidate } else { &self.incumbent });
        // In a split both arms are in force at once, so only a switchback has changes to record.
        if self.plan.assignment == Assignment::Switchback && weights.generation != self.in_force {
            self.force(&weights, at);
        }
        Assigned { weights, stamp: Some(stamp) }
    }

    /// Weights that a decision was made with, while its request is in flight.
    #[must_use]
    pub fn weights_of_decision(&self, decision: DecisionId) -> Option<Arc<Weights>> {
        let generation = self.pending.get(&decision)?.generation;
        let known = [Some(&self.incumbent), self.trial.as_ref().map(|running| &running.candidate)];
        known.into_iter().flatten().find(|weights| weights.generation == generation).map(Arc::clone)
    }

    /// Numbers new generations above `last`.
    pub fn number_from(&mut self, last: u64) {
        self.next_generation = self.next_generation.max(last.saturating_add(1));
    }

    /// Takes back an assignment for which no replica could be chosen: the request shows nothing about the weights.
    pub fn withdrawn(&mut self, stamp: Option<Stamp>, at: At) {
        if let (Some(running), Some(Stamp { block: Some(block), counted: true, .. })) = (&mut self.trial, stamp) {
            running.trial.withdrawn(block);
            // The pair may be complete now that this request no longer counts.
            self.weigh(at);
        }
    }

    /// Records a decision.
    pub fn decided(&mut self, decision: &DecisionRecord) {
        let Some(replica) = decision.replica.filter(|_| decision.policy == self.policy) else { return };
        let slots: Vec<usize> = self.plan.space.dimensions.iter().map(|dimension| dimension.slot).collect();
        if let Some(shares) = self.decisive.take(decision, &slots) {
            for (place, share) in shares.into_iter().enumerate() {
                let name = &self.plan.space.dimensions[place].name;
                let kind = format!("term-never-decides:{name}");
                // Below one decision in a thousand the term is irrelevant, whatever its weight within the bounds.
                self.alarm(kind, share < 0.001, share, decision.received);
            }
        }
        // The best case over the fleet, not the chosen replica's: the size must not depend on the weights.
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

    /// Records the end of a request.
    pub fn outcome(&mut self, outcome: &OutcomeRecord, at: At) {
        // Unknown decisions belong to another policy, or were already counted as overdue.
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
        // Drift is watched on the incumbent alone: a candidate's latency differs by design.
        if pending.stamp.is_none_or(|stamp| stamp.arm == 0)
            && pending.generation == self.incumbent.generation
            && let Some(sample) = &sample
            && self.drift.take(sample)
        {
            self.optimizer.reopen();
            self.idle = false;
            // Earlier noise belongs to the situation before the change.
            self.noise = Noise::default();
            self.outbox.push(Record::Alarm(AlarmRecord {
                at,
                kind: "drift".to_owned(),
                value: self.optimizer.sigma(),
                over: false,
            }));
            // An event, not a state: the alarm ends as soon as it begins.
            self.outbox.push(Record::Alarm(AlarmRecord { at, kind: "drift".to_owned(), value: None, over: true }));
            self.said = "the incumbent's latency has changed lastingly: searching widely again".to_owned();
        }
        if let (Some(running), Some(Stamp { block: Some(block), counted: true, .. })) = (&mut self.trial, pending.stamp)
        {
            running.trial.ended(block, sample);
            self.weigh(at);
        }
    }

    /// Reports a change of the fleet: anything that a running trial found would not be the candidate's doing.
    pub fn disturbed(&mut self, why: &str, at: At) {
        self.ended = 0;
        self.drift.reset();
        if self.reference.is_none() && self.trial.is_some() {
            self.cut(format!("cut: {why}"), at);
        }
    }

    /// Reports that the router stops: a running trial does not count, and its row says so.
    pub fn stopped(&mut self, at: At) {
        if self.reference.is_none() && self.trial.is_some() {
            self.cut("cut: the router stopped".to_owned(), at);
        }
    }

    fn cut(&mut self, reason: String, at: At) {
        let told = Told { accepted: false, decided: false, difference: 0.0, error: 0.0 };
        self.conclude(Ended { verdict: Verdict::Cut, reason, told }, at);
    }

    /// Takes the records produced since the last call.
    pub fn records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.outbox)
    }

    /// Weights that won last.
    #[must_use]
    pub const fn incumbent(&self) -> &Arc<Weights> {
        &self.incumbent
    }

    /// Generation that is on trial now.
    #[must_use]
    pub fn trying(&self) -> Option<&Arc<Weights>> {
        self.trial.as_ref().map(|running| &running.candidate)
    }

    /// Status text: the current activity, or the reason for the last decision.
    #[must_use]
    pub fn said(&self) -> &str {
        &self.said
    }

    /// Size of the optimizer's steps, in logarithms.
    #[must_use]
    pub fn sigma(&self) -> Option<f64> {
        self.reference.as_ref().map_or_else(|| self.optimizer.sigma(), |reference| Some(reference.state.sigma))
    }

    fn remember(&mut self, e2e_ms: f64) {
        self.recent.push_back(e2e_ms);
        while self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        // Sorting a few hundred numbers for every request would be a waste.
        if self.ended.is_multiple_of(32) {
            let mut sorted: Vec<f64> = self.recent.iter().copied().collect();
            sorted.sort_by(f64::total_cmp);
            let p95 = sorted[(sorted.len() * 95).div_ceil(100).max(1) - 1];
            self.e2e_p95 = Duration::try_from_secs_f64(p95 / 1e3).unwrap_or(MAX_WASHOUT);
        }
    }

    /// Counts requests that should have ended as bad samples.
    fn look(&mut self, at: At) {
        if at.since(self.looked) < LOOK_EVERY {
            return;
        }
        self.looked = at;
        let limit = OVERDUE.max(self.e2e_p95 * 4);
        let mut overdue: Vec<DecisionId> =
            self.pending.iter().filter(|(_, one)| at.since(one.routed) > limit).map(|(id, _)| *id).collect();
        // A map has no order; sorted, so that the same samples at the same times give the same verdicts.
        overdue.sort_unstable();
        for id in overdue {
            if let Some(pending) = self.pending.remove(&id) {
                let sample = Sample::overdue(at.millis_since(pending.routed), pending.replica, pending.size);
                self.sampled(pending, Some(sample), at);
            }
        }
    }

    /// Weights with those of the dimensions replaced by `point`, and all others as configured.
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
        // A different order of blocks for each generation, reproducible from the plan's seed.
        let seed = self.plan.seed ^ self.next_generation.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.next_generation += 1;
        let trial = Trial::new(self.plan.blocks, self.plan.assignment, seed, self.next_block, at);
        self.said = format!("generation {} on trial: {}", candidate.generation.0, self.shown(&point));
        let running = Running { candidate: Arc::clone(&candidate), started: at, trial, looked_at: 0 };
        // The row is written at the start, without a verdict, so that a crash leaves a trace of the trial.
        let row = self.row(&running, None);
        self.outbox.push(Record::Generation(Box::new(row)));
        self.trial = Some(running);
        if self.plan.assignment != Assignment::Switchback {
            // Both arms decide at the same time; the row of the candidate has the times.
            self.force(&candidate, at);
        }
    }

    fn shown(&self, point: &[f64]) -> String {
        let each = self.plan.space.dimensions.iter().zip(point);
        each.map(|(dimension, weight)| format!("{} = {weight:.4}", dimension.name)).collect::<Vec<_>>().join(", ")
    }

    /// Puts weights into force for the decisions from now on.
    fn force(&mut self, weights: &Weights, at: At) {
        self.in_force = weights.generation;
        self.outbox.push(Record::Weights(WeightRecord {
            policy: self.policy,
            at,
            generation: weights.generation,
            values: weights.values.clone(),
        }));
    }

    /// Evaluates a trial that has another complete pair.
    fn weigh(&mut self, at: At) {
        let Some(running) = &mut self.trial else { return };
        let whole = running.trial.whole_pairs();
        // One evaluation per pair: further looks at the same data would only raise the false positive rate.
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
        // Blocks are numbered on after the last one that was used, scored or not, so that none is ever used twice.
        self.next_block = running.trial.range().1;
        self.optimizer.tell(&told);
        self.idle = false;
        self.said = format!("generation {} {}: {reason}", running.candidate.generation.0, verdict.name());
        // Computed against the old incumbent's arm, before the candidate may replace it.
        let scores = self.scores(&running);
        let parent = self.incumbent.generation;
        if told.accepted {
            self.incumbent = Arc::clone(&running.candidate);
            // New weights change what latency is normal.
            self.drift.reset();
            self.check_bounds(at);
            let hacked = hacked(&running.trial.pairs(), self.fleet.len());
            if let Some(hacked) = &hacked {
                reason = format!("{reason}; {}", hacked.told());
                self.said = format!("generation {} {}: {reason}", running.candidate.generation.0, verdict.name());
            }
            let value = hacked.as_ref().map_or(0.0, super::hacking::Hacked::ratio);
            self.alarm("reward-hacking".to_owned(), hacked.is_some(), value, at);
        }
        // Saved after the optimizer has its result, so that a restart continues with the next generation.
        let mut row = self.row(&running, Some(self.save()));
        row.parent = Some(parent);
        (row.ended, row.verdict, row.reason, row.scores) = (Some(at), Some(verdict), Some(reason), scores);
        self.outbox.push(Record::Generation(Box::new(row)));
        // The trial may have ended within a candidate's block.
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

    /// All statistics of both arms with intervals, and the score.
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

    /// Raises or clears an alarm, but only on a change.
    fn alarm(&mut self, kind: String, on: bool, value: f64, at: At) {
        let was = self.alarms.iter().position(|known| *known == kind);
        match (was, on) {
            (None, true) => self.alarms.push(kind.clone()),
            (Some(place), false) => drop(self.alarms.remove(place)),
            _ => return,
        }
        self.outbox.push(Record::Alarm(AlarmRecord { at, kind, value: Some(value), over: !on }));
    }

    /// Passes a sample to the loop of the reference implementation.
    fn hop(&mut self, ttft_ms: f64, routed_by: Generation, at: At) {
        if self.trial.is_none() {
            // Its first generation consists of the weights as configured.
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
        // Generation 0 are the configured weights, which have no row.
        if running.candidate.generation.0 > 0 {
            let mut row = self.row(&running, Some(self.save()));
            row.parent = Some(parent);
            (row.ended, row.verdict, row.reason) = (Some(at), Some(verdict), Some(reason));
            row.blocks = (0, 0);
            row.scores =
                vec![ScoreRecord { arm: 1, statistic: "score", value: hop.score, low: None, high: None, samples: 128 }];
            self.outbox.push(Record::Generation(Box::new(row)));
        }
        // Once converged it keeps its best weights under the generation that won.
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
