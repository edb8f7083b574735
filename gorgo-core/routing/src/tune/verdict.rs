//! Pairs of a trial → a verdict, or a wait for more pairs.
//!
//! Evaluated after each complete pair. Several evaluations, and an error that is itself estimated from few pairs, make
//! acceptance under no difference likelier than a single evaluation would; therefore the error is stabilized with the
//! noise that earlier generations showed. Measured on a flat objective, see the tests: below the 10 % that were
//! required.

use serde::{Deserialize, Serialize};

use super::cohort::{Statistic, count};
use super::contrast::{ArmContrast, BlockPair, contrast, enough};
use super::exact_floats;
use super::objective::Objective;
use super::optimizer::TrialResult;
use super::trial::{AcceptanceTest, BlockSettings};
use crate::model::GenerationVerdict;

/// Table `guard` of a tune table: limits that no candidate may exceed, whatever its score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GuardLimits {
    /// Highest 95th percentile of E2E, as a multiple of the incumbent's.
    pub max_e2e_p95_ratio: f64,
    /// Highest share of failed requests, unless the incumbent's is higher.
    pub max_error_share: f64,
}

impl Default for GuardLimits {
    fn default() -> Self {
        Self { max_e2e_p95_ratio: 1.10, max_error_share: 0.02 }
    }
}

/// Variance of the difference between the two blocks of a pair, as observed in earlier generations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct PairNoise {
    /// Degrees of freedom behind the variance.
    #[serde(with = "exact_floats")]
    weight: f64,
    #[serde(with = "exact_floats")]
    variance: f64,
}

impl Default for PairNoise {
    fn default() -> Self {
        Self { weight: 0.0, variance: 0.0 }
    }
}

/// Most degrees of freedom that are remembered: noise changes with traffic.
const REMEMBERED: f64 = 24.0;

impl PairNoise {
    /// Error of a contrast over `pairs` pairs, stabilized with earlier noise.
    fn pooled_error(&self, contrast: &ArmContrast, pairs: f64) -> f64 {
        // Per pair, so that generations with different numbers of pairs can be pooled.
        let own = contrast.error * contrast.error * pairs;
        let variance = (self.weight * self.variance + (pairs - 1.0) * own) / (self.weight + pairs - 1.0);
        // Never less than half of the error that these pairs themselves show.
        (variance.max(own / 4.0) / pairs).sqrt()
    }

    /// Learns from a generation that has ended.
    fn learn(&mut self, contrast: &ArmContrast, pairs: f64) {
        let (own, freedom) = (contrast.error * contrast.error * pairs, pairs - 1.0);
        if own.is_finite() && freedom > 0.0 {
            let kept = self.weight * 0.7;
            self.variance = (kept * self.variance + freedom * own) / (kept + freedom);
            self.weight = (kept + freedom).min(REMEMBERED);
        }
    }

    pub(super) fn is_sound(&self) -> bool {
        self.weight >= 0.0 && self.weight <= REMEMBERED && self.variance >= 0.0 && self.variance.is_finite()
    }
}

/// End of a generation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TrialConclusion {
    pub(super) verdict: GenerationVerdict,
    /// Reason, for people.
    pub(super) reason: String,
    pub(super) result: TrialResult,
}

/// Judges the complete pairs of a trial. `last`: there will be no more of them.
pub(super) fn judge(
    objective: &dyn Objective,
    pairs: &[BlockPair],
    replicas: usize,
    (blocks, guard): (&BlockSettings, &GuardLimits),
    noise: &mut PairNoise,
    last: bool,
) -> Option<TrialConclusion> {
    let n = count(pairs.len());
    let sizes = super::contrast::samples(pairs);
    let end = |verdict, told: TrialResult, reason: String| Some(TrialConclusion { verdict, reason, result: told });
    // A candidate that breaks a guard rail counts as infinitely worse, also for the optimizer's steps.
    let none = TrialResult { accepted: false, decided: true, difference: f64::INFINITY, error: 0.0 };
    // The guard comes first, at every look, and stops a harmful candidate before `min_pairs`.
    if let Some(reason) = guard_violation(pairs, replicas, guard, true) {
        return end(GenerationVerdict::Rejected, none, reason);
    }
    let undecided = TrialResult { accepted: false, decided: false, difference: 0.0, error: 0.0 };
    let Some(seen) = contrast(objective, pairs, replicas) else {
        let reason = || {
            let fewest = sizes.0.min(sizes.1);
            if enough(objective, pairs) {
                format!("undecided after {n} pairs: the objective has no value for the {fewest} samples")
            } else {
                format!("undecided after {n} pairs: {fewest} samples are too few for this objective")
            }
        };
        return if last { end(GenerationVerdict::Rejected, undecided, reason()) } else { None };
    };
    let error = noise.pooled_error(&seen, n);
    // No spread at all (all times equal) is no evidence in either direction.
    let ratio = if error > 0.0 { seen.difference / error } else { 0.0 };
    let told = TrialResult { accepted: false, decided: true, difference: seen.difference, error };
    let shown = |what: &str| {
        format!(
            "{what}: {:+.4} ± {:.4} against the incumbent's {:.4} ({ratio:+.2} se) after {} pairs",
            seen.difference,
            error,
            seen.incumbent,
            pairs.len()
        )
    };
    let enough = pairs.len() >= blocks.min_pairs as usize;
    let better = match blocks.test {
        AcceptanceTest::GroupSequential => ratio < -blocks.accept_se,
        AcceptanceTest::AlwaysValid => {
            seen.difference < 0.0 && evidence(seen.difference, error, seen.incumbent) * blocks.alpha >= 1.0
        }
    };
    let ended = if enough && better {
        // Better, but beyond a limit as measured: more pairs may show that this was luck.
        match guard_violation(pairs, replicas, guard, false) {
            None => end(GenerationVerdict::Accepted, TrialResult { accepted: true, ..told }, shown("better")),
            Some(reason) if last => end(GenerationVerdict::Rejected, told, reason),
            Some(_) => None,
        }
    } else if enough && ratio > blocks.reject_se {
        end(GenerationVerdict::Rejected, told, shown("not better"))
    } else if pairs.len() >= 2 && ratio > HOPELESS {
        end(GenerationVerdict::Rejected, told, shown("clearly worse"))
    } else if last {
        end(GenerationVerdict::Rejected, TrialResult { decided: false, ..told }, shown("undecided at the limit"))
    } else {
        None
    };
    if ended.is_some() {
        // Only at the end: during a generation its own pairs are already in `steadied`.
        noise.learn(&seen, n);
    }
    ended
}

/// Effect size at which the always-valid test is most sensitive, as a share of the incumbent's score.
const EXPECTED_EFFECT: f64 = 0.1;

/// Evidence for an effect: a likelihood ratio of "some effect" to "no effect", mixed over effects that are normally
/// distributed around 0. Under no difference the probability that it ever exceeds 1/α is at most α, however often it is
/// evaluated (Robbins 1970; Johari and others, Always Valid Inference, 2022). That holds for a known error; this one is
/// estimated, so the rate is measured as well, see the tests.
fn evidence(difference: f64, error: f64, incumbent: f64) -> f64 {
    let (noise, effect) = (error * error, (EXPECTED_EFFECT * incumbent).powi(2));
    if !(noise > 0.0 && effect > 0.0) {
        return 0.0;
    }
    let exponent = difference * difference * effect / (2.0 * noise * (noise + effect));
    (noise / (noise + effect)).sqrt() * exponent.exp()
}

/// Standard errors above which a candidate is rejected before `min_pairs`.
const HOPELESS: f64 = 3.0;

/// Guard rail that the candidate broke. `surely`: only if chance does not explain it.
fn guard_violation(pairs: &[BlockPair], replicas: usize, guard: &GuardLimits, surely: bool) -> Option<String> {
    let (own, reference) = super::contrast::estimates(pairs, replicas, Statistic::ErrorShare)?;
    let samples: usize = pairs.iter().map(|pair| pair.candidate.len()).sum();
    let failed = own.value * count(samples);
    // Two standard deviations of a Poisson count, and one request: a single early failure must not end a trial.
    let margin = if surely { 2.0 * (guard.max_error_share * count(samples)).sqrt() + 1.0 } else { 0.0 };
    if own.value > guard.max_error_share
        && own.value > reference.value
        && failed > guard.max_error_share.max(reference.value) * count(samples) + margin
    {
        return Some(format!(
            "guard rail: {:.1} % of the candidate's requests failed ({:.1} % of the incumbent's); limit {:.1} %",
            own.value * 100.0,
            reference.value * 100.0,
            guard.max_error_share * 100.0
        ));
    }
    let (own, reference) = super::contrast::estimates(pairs, replicas, Statistic::E2eP95)?;
    // Surely worse: even the ends of the intervals that favour the candidate are too far apart.
    let worse = if surely { own.low.zip(reference.high) } else { Some((own.value, reference.value)) };
    let (own_value, limit) = worse?;
    (own_value > guard.max_e2e_p95_ratio * limit).then(|| {
        format!(
            "guard rail: p95 of end-to-end time is {:.0} ms against {:.0} ms; at most {:.2} times as much is allowed",
            own.value, reference.value, guard.max_e2e_p95_ratio
        )
    })
}
