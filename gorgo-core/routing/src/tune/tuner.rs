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
use super::decisive_terms::DecisiveCounter;
use super::drift::DriftDetector;
use super::objective::Objective;
use super::optimizer::{EsConstants, Optimizer, OptimizerKind, TrialResult};
use super::reference_tuner::ReferenceTuner;
use super::reward_hacking::detect_reward_hacking;
use super::sample::TuningSample;
use super::space::SearchSpace;
use super::trial::{ArmAssignment, BlockSettings, TrialStamp, TuningTrial};
use super::verdict::{GuardLimits, PairNoise, TrialConclusion, judge};
use crate::model::{
    AlarmRecord, DecisionId, DecisionRecord, Generation, GenerationRecord, GenerationVerdict, OutcomeRecord,
    ParamValues, PolicyBuildId, PolicyWeights, ScoreRecord, StoreRecord, UnixMicros, WeightRecord,
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
pub struct TuningPlan {
    /// Objective to minimise.
    pub objective: Arc<dyn Objective>,
    /// Kind of the objective.
    pub objective_kind: &'static str,
    /// SHA-256 of the objective's library, hexadecimal, if it is a plugin.
    pub objective_sha256: Option<Arc<str>>,
    /// Kind of the optimizer.
    pub optimizer: &'static OptimizerKind,
    /// Parameters of the optimizer.
    pub optimizer_params: ParamValues,
    /// Weights that may change.
    pub space: SearchSpace,
    /// Rule by which requests are assigned to arms.
    pub assignment: ArmAssignment,
    /// Sizes and limits of trials.
    pub blocks: BlockSettings,
    /// Limits that no candidate may exceed.
    pub guard: GuardLimits,
    /// Seed of proposals and of the order of blocks.
    pub seed: u64,
}

impl TuningPlan {
    /// Requests per arm below which its objective decides nothing.
    #[must_use]
    pub fn least_samples(&self) -> u64 {
        super::contrast::least_samples(&*self.objective) as u64
    }

    /// Builds a tuner of `policy`, whose configured weights are `weights`; `fleet` are the names of the replicas.
    ///
    /// # Errors
    /// The fault in the optimizer's parameters.
    pub fn tuner(&self, policy: PolicyBuildId, weights: PolicyWeights, fleet: Vec<String>) -> Result<Tuner, String> {
        let reference = if self.optimizer_params.text("mode") == Some("reference") {
            Some(ReferenceTuner::new(EsConstants::read(&self.optimizer_params)?, &self.space, self.seed))
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
            noise: PairNoise::default(),
            pending: HashMap::new(),
            recent: VecDeque::new(),
            e2e_p95: Duration::ZERO,
            ended: 0,
            last_overdue_check: UnixMicros(0),
            idle: false,
            decisive: DecisiveCounter::default(),
            drift: DriftDetector::default(),
            alarms: Vec::new(),
            status: "warming up".to_owned(),
            outbox: Vec::new(),
        })
    }
}

/// Weights and stamp of a decision.
#[derive(Debug, Clone, PartialEq)]
pub struct AssignedWeights {
    /// Weights to decide with.
    pub weights: Arc<PolicyWeights>,
    /// Position in the experiment; `None` outside one.
    pub stamp: Option<TrialStamp>,
}

#[derive(Debug, Clone, Copy)]
struct PendingSample {
    routed: UnixMicros,
    generation: Generation,
    stamp: Option<TrialStamp>,
    replica: u16,
    size: f64,
}

#[derive(Debug)]
struct RunningTrial {
    candidate: Arc<PolicyWeights>,
    started: UnixMicros,
    trial: TuningTrial,
    /// Number of complete pairs at the last evaluation.
    looked_at: usize,
}

/// Tuner of one policy. Fed with decisions and outcomes; the records that it produces are taken by [`Tuner::take_records`].
#[derive(Debug)]
pub struct Tuner {
    plan: TuningPlan,
    policy: PolicyBuildId,
    fleet: Vec<String>,
    optimizer: Box<dyn Optimizer>,
    reference: Option<ReferenceTuner>,
    /// Weights of all slots as configured; those of the dimensions are replaced.
    base: Vec<f64>,
    incumbent: Arc<PolicyWeights>,
    next_generation: u64,
    next_block: u32,
    /// Generation whose weights the last decision was made with.
    in_force: Generation,
    trial: Option<RunningTrial>,
    noise: PairNoise,
    pending: HashMap<DecisionId, PendingSample>,
    recent: VecDeque<f64>,
    e2e_p95: Duration,
    /// Requests that have ended since the start or since the fleet changed.
    ended: u32,
    last_overdue_check: UnixMicros,
    /// True if the optimizer has nothing to try.
    idle: bool,
    decisive: DecisiveCounter,
    drift: DriftDetector,
    /// Kinds of the active alarms.
    alarms: Vec<String>,
    status: String,
    outbox: Vec<StoreRecord>,
}

impl Tuner {
    /// Weights and stamp of the next decision. Each must be followed by [`Tuner::observe_decision`], or by [`Tuner::withdraw`]
    /// if no replica could be chosen.
    pub fn assign(&mut self, session: u64, lot: u64, at: UnixMicros) -> AssignedWeights {
        if let Some(reference) = &self.reference {
            // The reference loop has no blocks or pairs: every request until convergence counts for the current
            // weights.
            let arm = u8::from(!reference.state.converged);
            let stamp = TrialStamp { arm, block: None, counted: arm == 1 };
            let weights = self.trial.as_ref().map_or(&self.incumbent, |running| &running.candidate);
            return AssignedWeights { weights: Arc::clone(weights), stamp: Some(stamp) };
        }
        self.expire_overdue(at);
        if self.trial.is_none() && !self.idle && self.ended >= WARM_UP {
            self.begin(at);
        }
        // Requests of the other arm have mostly ended after the 95th percentile of E2E.
        let washout = self.e2e_p95.min(MAX_WASHOUT);
        let Some(running) = &mut self.trial else {
            return AssignedWeights { weights: Arc::clone(&self.incumbent), stamp: None };
        };
        let mut stamp = running.trial.stamp(session, lot, at, washout);
        // A request that is not tracked would never be reported as ended, and its block would never be complete.
        if stamp.counted && self.pending.len() >= MAX_PENDING {
            stamp.counted = false;
        }
        let weights = Arc::clone(if stamp.arm == 1 { &running.candidate } else { &self.incumbent });
        // In a split both arms are in force at once, so only a switchback has changes to record.
        if self.plan.assignment == ArmAssignment::Switchback && weights.generation != self.in_force {
            self.set_in_force(&weights, at);
        }
        AssignedWeights { weights, stamp: Some(stamp) }
    }

    /// Weights that a decision was made with, while its request is in flight.
    #[must_use]
    pub fn weights_of_decision(&self, decision: DecisionId) -> Option<Arc<PolicyWeights>> {
        let generation = self.pending.get(&decision)?.generation;
        let known = [Some(&self.incumbent), self.trial.as_ref().map(|running| &running.candidate)];
        known.into_iter().flatten().find(|weights| weights.generation == generation).map(Arc::clone)
    }

    /// Numbers new generations above `last`.
    pub fn start_generations_after(&mut self, last: u64) {
        self.next_generation = self.next_generation.max(last.saturating_add(1));
    }

    /// Takes back an assignment for which no replica could be chosen: the request shows nothing about the weights.
    pub fn withdraw(&mut self, stamp: Option<TrialStamp>, at: UnixMicros) {
        if let (Some(running), Some(TrialStamp { block: Some(block), counted: true, .. })) = (&mut self.trial, stamp) {
            running.trial.withdraw(block);
            // The pair may be complete now that this request no longer counts.
            self.evaluate_trial(at);
        }
    }

    /// Records a decision.
    pub fn observe_decision(&mut self, decision: &DecisionRecord) {
        let Some(replica) = decision.replica.filter(|_| decision.policy == self.policy) else { return };
        let slots: Vec<usize> = self.plan.space.dimensions.iter().map(|dimension| dimension.slot).collect();
        if let Some(shares) = self.decisive.observe(decision, &slots) {
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
        let stamp = decision.arm.map(|arm| TrialStamp { arm, block: decision.block, counted: decision.counted });
        self.pending.insert(
            decision.decision,
            PendingSample {
                routed: decision.received,
                generation: decision.generation,
                stamp,
                replica: replica.0,
                size: f64::from(uncached).ln_1p(),
            },
        );
    }

    /// Records the end of a request.
    pub fn observe_outcome(&mut self, outcome: &OutcomeRecord, at: UnixMicros) {
        // Unknown decisions belong to another policy, or were already counted as overdue.
        let Some(pending) = self.pending.remove(&outcome.decision) else { return };
        let sample = TuningSample::from_outcome(outcome, pending.replica, pending.size);
        self.ended = self.ended.saturating_add(1);
        if let Some(sample) = &sample {
            self.record_e2e(sample.e2e_ms);
        }
        self.sampled(pending, sample, at);
    }

    fn sampled(&mut self, pending: PendingSample, sample: Option<TuningSample>, at: UnixMicros) {
        if self.reference.is_some() {
            if let Some(ttft) = sample.and_then(|sample| sample.ttft_ms) {
                self.observe_reference(ttft, pending.generation, at);
            }
            return;
        }
        // Drift is watched on the incumbent alone: a candidate's latency differs by design.
        if pending.stamp.is_none_or(|stamp| stamp.arm == 0)
            && pending.generation == self.incumbent.generation
            && let Some(sample) = &sample
            && self.drift.observe(sample)
        {
            self.optimizer.reopen();
            self.idle = false;
            // Earlier noise belongs to the situation before the change.
            self.noise = PairNoise::default();
            self.outbox.push(StoreRecord::Alarm(AlarmRecord {
                at,
                kind: "drift".to_owned(),
                value: self.optimizer.sigma(),
                cleared: false,
            }));
            // An event, not a state: the alarm ends as soon as it begins.
            self.outbox.push(StoreRecord::Alarm(AlarmRecord {
                at,
                kind: "drift".to_owned(),
                value: None,
                cleared: true,
            }));
            self.status = "the incumbent's latency has changed lastingly: searching widely again".to_owned();
        }
        if let (Some(running), Some(TrialStamp { block: Some(block), counted: true, .. })) =
            (&mut self.trial, pending.stamp)
        {
            running.trial.record_end(block, sample);
            self.evaluate_trial(at);
        }
    }

    /// Reports a change of the fleet: anything that a running trial found would not be the candidate's doing.
    pub fn fleet_changed(&mut self, why: &str, at: UnixMicros) {
        self.ended = 0;
        self.drift.reset();
        if self.reference.is_none() && self.trial.is_some() {
            self.interrupt_trial(format!("cut: {why}"), at);
        }
    }

    /// Reports that the router stops: a running trial does not count, and its row says so.
    pub fn stop(&mut self, at: UnixMicros) {
        if self.reference.is_none() && self.trial.is_some() {
            self.interrupt_trial("cut: the router stopped".to_owned(), at);
        }
    }

    fn interrupt_trial(&mut self, reason: String, at: UnixMicros) {
        let told = TrialResult { accepted: false, decided: false, difference: 0.0, error: 0.0 };
        self.conclude(TrialConclusion { verdict: GenerationVerdict::Interrupted, reason, result: told }, at);
    }

    /// Takes the records produced since the last call.
    pub fn take_records(&mut self) -> Vec<StoreRecord> {
        std::mem::take(&mut self.outbox)
    }

    /// Weights that won last.
    #[must_use]
    pub const fn incumbent(&self) -> &Arc<PolicyWeights> {
        &self.incumbent
    }

    /// Generation that is on trial now.
    #[must_use]
    pub fn candidate(&self) -> Option<&Arc<PolicyWeights>> {
        self.trial.as_ref().map(|running| &running.candidate)
    }

    /// Status text: the current activity, or the reason for the last decision.
    #[must_use]
    pub fn status(&self) -> &str {
        &self.status
    }

    /// Size of the optimizer's steps, in logarithms.
    #[must_use]
    pub fn sigma(&self) -> Option<f64> {
        self.reference.as_ref().map_or_else(|| self.optimizer.sigma(), |reference| Some(reference.state.sigma))
    }

    fn record_e2e(&mut self, e2e_ms: f64) {
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
    fn expire_overdue(&mut self, at: UnixMicros) {
        if at.elapsed_since(self.last_overdue_check) < LOOK_EVERY {
            return;
        }
        self.last_overdue_check = at;
        let limit = OVERDUE.max(self.e2e_p95 * 4);
        let mut overdue: Vec<DecisionId> =
            self.pending.iter().filter(|(_, one)| at.elapsed_since(one.routed) > limit).map(|(id, _)| *id).collect();
        // A map has no order; sorted, so that the same samples at the same times give the same verdicts.
        overdue.sort_unstable();
        for id in overdue {
            if let Some(pending) = self.pending.remove(&id) {
                let sample = TuningSample::overdue(at.millis_since(pending.routed), pending.replica, pending.size);
                self.sampled(pending, Some(sample), at);
            }
        }
    }

    /// Weights with those of the dimensions replaced by `point`, and all others as configured.
    fn weights_of(&self, point: &[f64], generation: u64) -> Arc<PolicyWeights> {
        let mut values = self.base.clone();
        for (dimension, weight) in self.plan.space.dimensions.iter().zip(point) {
            values[dimension.slot] = *weight;
        }
        Arc::new(PolicyWeights { generation: Generation(generation), values })
    }

    fn begin(&mut self, at: UnixMicros) {
        let Some(point) = self.optimizer.ask() else {
            self.idle = true;
            self.status = "nothing to try".to_owned();
            return;
        };
        let candidate = self.weights_of(&point, self.next_generation);
        // A different order of blocks for each generation, reproducible from the plan's seed.
        let seed = self.plan.seed ^ self.next_generation.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.next_generation += 1;
        let trial = TuningTrial::new(self.plan.blocks, self.plan.assignment, seed, self.next_block, at);
        self.status = format!("generation {} on trial: {}", candidate.generation.0, self.describe_point(&point));
        let running = RunningTrial { candidate: Arc::clone(&candidate), started: at, trial, looked_at: 0 };
        // The row is written at the start, without a verdict, so that a crash leaves a trace of the trial.
        let row = self.generation_record(&running, None);
        self.outbox.push(StoreRecord::Generation(Box::new(row)));
        self.trial = Some(running);
        if self.plan.assignment != ArmAssignment::Switchback {
            // Both arms decide at the same time; the row of the candidate has the times.
            self.set_in_force(&candidate, at);
        }
    }

    fn describe_point(&self, point: &[f64]) -> String {
        let each = self.plan.space.dimensions.iter().zip(point);
        each.map(|(dimension, weight)| format!("{} = {weight:.4}", dimension.name)).collect::<Vec<_>>().join(", ")
    }

    /// Puts weights into force for the decisions from now on.
    fn set_in_force(&mut self, weights: &PolicyWeights, at: UnixMicros) {
        self.in_force = weights.generation;
        self.outbox.push(StoreRecord::Weights(WeightRecord {
            policy: self.policy,
            at,
            generation: weights.generation,
            values: weights.values.clone(),
        }));
    }

    /// Evaluates a trial that has another complete pair.
    fn evaluate_trial(&mut self, at: UnixMicros) {
        let Some(running) = &mut self.trial else { return };
        let whole = running.trial.complete_pairs();
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
                self.status =
                    format!("generation {generation} on trial: {whole} of {} pairs", self.plan.blocks.max_pairs);
            }
        }
    }

    fn conclude(&mut self, ended: TrialConclusion, at: UnixMicros) {
        let Some(running) = self.trial.take() else { return };
        let TrialConclusion { verdict, mut reason, result: told } = ended;
        // Blocks are numbered on after the last one that was used, scored or not, so that none is ever used twice.
        self.next_block = running.trial.range().1;
        self.optimizer.tell(&told);
        self.idle = false;
        self.status = format!("generation {} {}: {reason}", running.candidate.generation.0, verdict.name());
        // Computed against the old incumbent's arm, before the candidate may replace it.
        let scores = self.scores(&running);
        let parent = self.incumbent.generation;
        if told.accepted {
            self.incumbent = Arc::clone(&running.candidate);
            // New weights change what latency is normal.
            self.drift.reset();
            self.check_bounds(at);
            let hacked = detect_reward_hacking(&running.trial.pairs(), self.fleet.len());
            if let Some(hacked) = &hacked {
                reason = format!("{reason}; {}", hacked.message());
                self.status = format!("generation {} {}: {reason}", running.candidate.generation.0, verdict.name());
            }
            let value = hacked.as_ref().map_or(0.0, super::reward_hacking::RewardHacking::ratio);
            self.alarm("reward-hacking".to_owned(), hacked.is_some(), value, at);
        }
        // Saved after the optimizer has its result, so that a restart continues with the next generation.
        let mut row = self.generation_record(&running, Some(self.save()));
        row.parent = Some(parent);
        (row.ended, row.verdict, row.reason, row.scores) = (Some(at), Some(verdict), Some(reason), scores);
        self.outbox.push(StoreRecord::Generation(Box::new(row)));
        // The trial may have ended within a candidate's block.
        if self.in_force != self.incumbent.generation {
            let incumbent = Arc::clone(&self.incumbent);
            self.set_in_force(&incumbent, at);
        }
    }

    fn generation_record(&self, running: &RunningTrial, state: Option<String>) -> GenerationRecord {
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
    fn scores(&self, running: &RunningTrial) -> Vec<ScoreRecord> {
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

    fn check_bounds(&mut self, at: UnixMicros) {
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
    fn alarm(&mut self, kind: String, on: bool, value: f64, at: UnixMicros) {
        let was = self.alarms.iter().position(|known| *known == kind);
        match (was, on) {
            (None, true) => self.alarms.push(kind.clone()),
            (Some(place), false) => drop(self.alarms.remove(place)),
            _ => return,
        }
        self.outbox.push(StoreRecord::Alarm(AlarmRecord { at, kind, value: Some(value), cleared: !on }));
    }

    /// Passes a sample to the loop of the reference implementation.
    fn observe_reference(&mut self, ttft_ms: f64, routed_by: Generation, at: UnixMicros) {
        if self.trial.is_none() {
            // Its first generation consists of the weights as configured.
            let candidate = Arc::clone(&self.incumbent);
            let trial = TuningTrial::new(self.plan.blocks, ArmAssignment::Request, 0, 0, at);
            self.trial = Some(RunningTrial { candidate, started: at, trial, looked_at: 0 });
        }
        let now = self.trial.as_ref().map_or(0, |running| running.candidate.generation.0);
        let Some(reference) = &mut self.reference else { return };
        let Some(hop) = reference.observe(ttft_ms, routed_by.0, now) else { return };
        let (next, best, converged) =
            (reference.state.current.clone(), reference.state.best.clone(), reference.state.converged);
        let Some(running) = self.trial.take() else { return };
        let verdict = if hop.accepted { GenerationVerdict::Accepted } else { GenerationVerdict::Rejected };
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
        self.status = format!("generation {} {}: {reason}", running.candidate.generation.0, verdict.name());
        // Generation 0 are the configured weights, which have no row.
        if running.candidate.generation.0 > 0 {
            let mut row = self.generation_record(&running, Some(self.save()));
            row.parent = Some(parent);
            (row.ended, row.verdict, row.reason) = (Some(at), Some(verdict), Some(reason));
            row.blocks = (0, 0);
            row.scores =
                vec![ScoreRecord { arm: 1, statistic: "score", value: hop.score, low: None, high: None, samples: 128 }];
            self.outbox.push(StoreRecord::Generation(Box::new(row)));
        }
        // Once converged it keeps its best weights under the generation that won.
        let candidate = if converged {
            self.weights_of(&best, self.incumbent.generation.0)
        } else {
            let candidate = self.weights_of(&next, self.next_generation);
            self.next_generation += 1;
            candidate
        };
        self.set_in_force(&candidate, at);
        let trial = TuningTrial::new(self.plan.blocks, ArmAssignment::Request, 0, 0, at);
        self.trial = Some(RunningTrial { candidate, started: at, trial, looked_at: 0 });
    }
}
