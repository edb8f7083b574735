//! A made-up world: weights → how long requests take, with the noise of real windows.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::model::{
    ApiPath, CandidateRecord, ConfigValue, DecisionId, DecisionRecord, ErrorClass, Generation, GenerationVerdict,
    OutcomeRecord, ParamSpec, ParamType, ParamValues, PolicyBuildId, PolicyWeights, ReplicaId, RttSource, StoreRecord,
    UnixMicros,
};
use crate::tune::space::{normal, step_rng, uniform};
use crate::tune::{
    ArmAssignment, BlockSettings, GuardLimits, OBJECTIVES, OPTIMIZERS, SearchSpace, TunedWeight, Tuner, TuningPlan,
};

/// Parameters as declared, with some set.
pub(super) fn params(declared: &[ParamSpec], set: &[(&'static str, ConfigValue)]) -> ParamValues {
    let mut params = ParamValues::default();
    for param in declared {
        let default = match param.ty {
            ParamType::Number { default, .. } => default.map(ConfigValue::Float),
            ParamType::Integer { default, .. } => default.map(ConfigValue::Integer),
            // Only an expression has a text that must be given.
            ParamType::Text { default, .. } => Some(ConfigValue::Text(default.unwrap_or("ttft_p95").to_owned())),
            _ => None,
        };
        let given = set.iter().find(|(name, _)| *name == param.name).map(|(_, value)| value.clone());
        params.values.extend(given.or(default).map(|value| (param.name, value)));
    }
    params
}

/// The shipped plan, with another objective, optimizer and seed.
pub(super) fn plan(objective: &str, optimizer: &str, set: &[(&'static str, ConfigValue)], seed: u64) -> TuningPlan {
    let objective = OBJECTIVES.iter().find(|kind| kind.kind == objective).unwrap();
    let optimizer = OPTIMIZERS.iter().find(|kind| kind.kind == optimizer).unwrap();
    let dimension = |slot, name: &str, init, min, max| TunedWeight { slot, name: name.to_owned(), init, min, max };
    TuningPlan {
        objective: (objective.build)(&params(objective.params, &[])).unwrap().into(),
        objective_kind: objective.kind,
        objective_sha256: None,
        optimizer,
        optimizer_params: params(optimizer.params, set),
        space: SearchSpace {
            dimensions: vec![dimension(0, "rtt", 0.276, 0.05, 2.0), dimension(2, "queue", 0.5, 0.05, 0.5)],
        },
        assignment: ArmAssignment::Switchback,
        blocks: BlockSettings::default(),
        guard: GuardLimits::default(),
        seed,
    }
}

pub(super) fn tuner(plan: &TuningPlan) -> Tuner {
    let weights = PolicyWeights { generation: Generation(0), values: vec![0.276, 1.0, 0.5] };
    plan.tuner(PolicyBuildId(0), weights, vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]).unwrap()
}

/// Standard deviation of ln TTFT that makes ln p95 of 128 requests vary by 0.2; six tenths of its square are the sizes of
/// the requests, which the covariate knows.
pub(super) const NOISE: f64 = 1.16;
const KNOWN: f64 = 0.6;

/// Requests every 400 ms, routed by a tuner and answered after as long as `factor` says.
pub(super) struct SyntheticTraffic<F> {
    /// ln of how many times as long as at best requests take with these weights, at request number n.
    pub(super) factor: F,
    pub(super) seed: u64,
    pub(super) sent: u64,
    /// Multiplies the noise.
    pub(super) noise: f64,
    /// How many times as long the gaps between tokens are with these weights.
    pub(super) stretch: fn(&[f64]) -> f64,
    /// Share of requests that fail with the candidate's weights.
    pub(super) failing: f64,
    flying: BinaryHeap<Reverse<(u64, u64)>>,
    ends: Vec<Option<OutcomeRecord>>,
    pub(super) records: Vec<StoreRecord>,
}

impl<F: Fn(&[f64], u64) -> f64> SyntheticTraffic<F> {
    pub(super) fn new(seed: u64, factor: F) -> Self {
        Self {
            factor,
            seed,
            sent: 0,
            noise: NOISE,
            stretch: |_| 1.0,
            failing: 0.0,
            flying: BinaryHeap::new(),
            ends: Vec::new(),
            records: Vec::new(),
        }
    }

    /// Sends that many more requests.
    pub(super) fn run(&mut self, tuner: &mut Tuner, requests: u64) {
        for _ in 0..requests {
            self.send(tuner);
        }
    }

    pub(super) fn now(&self) -> UnixMicros {
        UnixMicros(1_000_000_000 + self.sent * 400_000)
    }

    fn send(&mut self, tuner: &mut Tuner) {
        let at = self.now();
        while let Some(Reverse((end, number))) = self.flying.peek().copied().filter(|Reverse((end, _))| *end <= at.0) {
            self.flying.pop();
            let outcome = self.ends[usize::try_from(number).unwrap()].take().unwrap();
            tuner.observe_outcome(&outcome, UnixMicros(end));
        }
        let mut random = step_rng(self.seed, self.sent);
        let id = DecisionId(i64::try_from(self.sent).unwrap());
        let assigned = tuner.assign(self.sent % 97, self.sent.wrapping_mul(0x9e37_79b9), at);
        let size = 7.0 + normal(&mut random);
        let uncached = size.exp().round();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few million at most")]
        let uncached = uncached as u32;
        let replica = u16::try_from(self.sent % 3).unwrap();
        tuner.observe_decision(&decision(id, at, &assigned, uncached, replica));
        let longer = (self.factor)(&assigned.weights.values, self.sent);
        let known = KNOWN.sqrt() * (f64::from(uncached).ln_1p() - 7.0);
        let unknown = (1.0 - KNOWN).sqrt() * normal(&mut random);
        let ttft_ms = (300.0_f64.ln() + longer + self.noise * (known + unknown)).exp();
        let tokens = 20 + u32::try_from(self.sent % 109).unwrap();
        let gap_ms = 10.0 * longer.exp() * (self.stretch)(&assigned.weights.values);
        let e2e_ms = ttft_ms + f64::from(tokens) * gap_ms;
        let failed =
            assigned.weights.generation.0 != tuner.incumbent().generation.0 && uniform(&mut random) < self.failing;
        let micros = |ms: f64| {
            #[expect(clippy::cast_possible_truncation, reason = "far below 2^63")]
            let whole = (ms * 1e3) as i64;
            whole
        };
        let outcome = OutcomeRecord {
            decision: id,
            status: Some(if failed { 502 } else { 200 }),
            error: failed.then_some(ErrorClass::UpstreamClosed),
            ttft_us: (!failed).then(|| micros(ttft_ms)),
            first_byte_us: None,
            e2e_us: if failed { 1_000 } else { micros(e2e_ms) },
            itl_mean_us: (!failed).then_some(micros(gap_ms)),
            itl_p99_us: None,
            itl_counts: None,
            prompt_tokens: None,
            cached_tokens: None,
            completion_tokens: (!failed).then_some(tokens),
            predicted_ttft_us: None,
            predicted_cached_tokens: None,
        };
        let end = at.0 + u64::try_from(outcome.e2e_us).unwrap();
        self.ends.push(Some(outcome));
        self.flying.push(Reverse((end, self.sent)));
        self.sent += 1;
        self.records.append(&mut tuner.take_records());
    }

    /// Verdicts so far: accepted, rejected, cut.
    pub(super) fn verdicts(&self) -> (usize, usize, usize) {
        let mut counts = (0, 0, 0);
        for record in &self.records {
            if let StoreRecord::Generation(row) = record {
                match row.verdict {
                    Some(GenerationVerdict::Accepted) => counts.0 += 1,
                    Some(GenerationVerdict::Rejected) => counts.1 += 1,
                    Some(GenerationVerdict::Interrupted) => counts.2 += 1,
                    None => {}
                }
            }
        }
        counts
    }
}

pub(super) fn decision(
    id: DecisionId,
    at: UnixMicros,
    assigned: &crate::tune::AssignedWeights,
    uncached: u32,
    replica: u16,
) -> DecisionRecord {
    let row = |replica: u16| CandidateRecord {
        replica: ReplicaId(replica),
        excluded_by: None,
        cost_milli: i64::from(replica),
        rtt_us: None,
        rtt_source: RttSource::Unknown,
        cached_tokens: 0,
        queued_tokens: 0,
        queued_uncached_tokens: 0,
        inflight: 0,
        report_age_ms: None,
        signals_milli: vec![0; 3],
        costs_milli: vec![i64::from(replica), 0, 0],
    };
    DecisionRecord {
        decision: id,
        received: at,
        path: ApiPath::ChatCompletions,
        model: None,
        session_hash: 0,
        policy: PolicyBuildId(0),
        generation: assigned.weights.generation,
        arm: assigned.stamp.map(|stamp| stamp.arm),
        block: assigned.stamp.and_then(|stamp| stamp.block),
        counted: assigned.stamp.is_some_and(|stamp| stamp.counted),
        seed: 0,
        replica: Some(ReplicaId(replica)),
        refusal: None,
        propensity: 1.0,
        ties: 1,
        prompt_tokens: uncached,
        parent: None,
        shared_tokens: 0,
        body_bytes: 0,
        decide_us: 0,
        candidates: (0..3).map(row).collect(),
        shadows: Vec::new(),
    }
}

/// ln of how much longer than at best: 25 % at the start weights, best at 0.6 and 0.12.
pub(super) fn valley(weights: &[f64], best: [f64; 2], start: [f64; 2]) -> f64 {
    let off = |from: [f64; 2]| {
        let d = [(from[0] / best[0]).ln(), (from[1] / best[1]).ln()];
        d[0] * d[0] + d[1] * d[1]
    };
    0.25 * (off([weights[0], weights[2]]) / off(start)).min(4.0)
}

#[test]
fn tune_the_made_up_noise_is_that_of_real_windows() {
    let mut random = step_rng(11, 0);
    let draws: Vec<f64> = (0..400)
        .map(|_| {
            let mut window: Vec<f64> = (0..128)
                .map(|_| NOISE * (KNOWN.sqrt() * normal(&mut random) + (1.0 - KNOWN).sqrt() * normal(&mut random)))
                .collect();
            window.sort_by(f64::total_cmp);
            window[121]
        })
        .collect();
    let mean = draws.iter().sum::<f64>() / 400.0;
    let deviation = (draws.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / 399.0).sqrt();
    println!("sd of ln p95 of 128 samples: {deviation:.3}");
    assert!((0.185..0.215).contains(&deviation), "{deviation}");
}
