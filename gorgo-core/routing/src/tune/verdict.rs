//! From what the pairs say to a verdict, or to waiting for more.
//!
//! Looked at after each whole pair. Several looks and an error that is itself estimated from few pairs make acceptance
//! likelier under no difference than one look would; the error is therefore steadied with what earlier generations
//! showed of it. Measured on a flat objective, see the tests: below the 10 % that were asked for.

use serde::{Deserialize, Serialize};

use super::cohort::{Statistic, count};
use super::contrast::{Contrast, Pair, contrast, enough};
use super::exact_floats;
use super::objective::Objective;
use super::optimizer::Told;
use super::trial::{Blocks, Test};
use crate::model::Verdict;

/// `guard` of a tune table: what no candidate may do, whatever its score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guard {
    /// 95th percentile of E2E as a multiple of the incumbent's.
    pub max_e2e_p95_ratio: f64,
    /// Share of failed requests, unless the incumbent's is higher.
    pub max_error_share: f64,
}

impl Default for Guard {
    fn default() -> Self {
        Self { max_e2e_p95_ratio: 1.10, max_error_share: 0.02 }
    }
}

/// Variance of the difference between the two blocks of a pair, as earlier generations showed it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Noise {
    /// How many degrees of freedom stand behind it.
    #[serde(with = "exact_floats")]
    weight: f64,
    #[serde(with = "exact_floats")]
    variance: f64,
}

impl Default for Noise {
    fn default() -> Self {
        Self { weight: 0.0, variance: 0.0 }
    }
}

/// At most so many degrees of freedom are remembered: noise changes with traffic.
const REMEMBERED: f64 = 24.0;

impl Noise {
    /// The error of a contrast of `pairs` pairs, steadied.
    fn steadied(&self, contrast: &Contrast, pairs: f64) -> f64 {
        let own = contrast.error * contrast.error * pairs;
        let variance = (self.weight * self.variance + (pairs - 1.0) * own) / (self.weight + pairs - 1.0);
        // Never less than the half of what these pairs say themselves.
        (variance.max(own / 4.0) / pairs).sqrt()
    }

    /// Learns from a generation that ended.
    fn learn(&mut self, contrast: &Contrast, pairs: f64) {
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

/// How a generation ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ended {
    pub(super) verdict: Verdict,
    /// For people.
    pub(super) reason: String,
    pub(super) told: Told,
}

/// Judges the whole pairs of a trial. `last`: there will be no more of them.
pub(super) fn judge(
    objective: &dyn Objective,
    pairs: &[Pair],
    replicas: usize,
    (blocks, guard): (&Blocks, &Guard),
    noise: &mut Noise,
    last: bool,
) -> Option<Ended> {
    let n = count(pairs.len());
    let sizes = super::contrast::samples(pairs);
    let end = |verdict, told: Told, reason: String| Some(Ended { verdict, reason, told });
    let none = Told { accepted: false, decided: true, difference: f64::INFINITY, error: 0.0 };
    if let Some(reason) = broken(pairs, replicas, guard, true) {
        return end(Verdict::Rejected, none, reason);
    }
    let undecided = Told { accepted: false, decided: false, difference: 0.0, error: 0.0 };
    let Some(seen) = contrast(objective, pairs, replicas) else {
        let reason = || {
            let fewest = sizes.0.min(sizes.1);
            if enough(objective, pairs) {
                format!("undecided after {n} pairs: the objective gives no number for the {fewest} samples")
            } else {
                format!("undecided after {n} pairs: {fewest} samples are too few for this objective")
            }
        };
        return if last { end(Verdict::Rejected, undecided, reason()) } else { None };
    };
    let error = noise.steadied(&seen, n);
    let ratio = if error > 0.0 { seen.difference / error } else { 0.0 };
    let told = Told { accepted: false, decided: true, difference: seen.difference, error };
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
        Test::Group => ratio < -blocks.accept_se,
        Test::AlwaysValid => {
            seen.difference < 0.0 && evidence(seen.difference, error, seen.incumbent) * blocks.alpha >= 1.0
        }
    };
    let ended = if enough && better {
        match broken(pairs, replicas, guard, false) {
            None => end(Verdict::Accepted, Told { accepted: true, ..told }, shown("better")),
            Some(reason) if last => end(Verdict::Rejected, told, reason),
            Some(_) => None,
        }
    } else if enough && ratio > blocks.reject_se {
        end(Verdict::Rejected, told, shown("not better"))
    } else if pairs.len() >= 2 && ratio > HOPELESS {
        end(Verdict::Rejected, told, shown("clearly worse"))
    } else if last {
        end(Verdict::Rejected, Told { decided: false, ..told }, shown("undecided at the limit"))
    } else {
        None
    };
    if ended.is_some() {
        noise.learn(&seen, n);
    }
    ended
}

/// The effect that the always-valid test is made to see soonest, as a share of the incumbent's score.
const EXPECTED_EFFECT: f64 = 0.1;

/// How much more likely the difference is if there is an effect than if there is none: a likelihood ratio, mixed over
/// effects that are normal around 0. Under no difference it passes 1/α at any time with a chance of at most α, however
/// often one looks (Robbins 1970; Johari and others, Always Valid Inference, 2022). That holds for a known error; this
/// one is estimated, so the rate is measured too, see the tests.
fn evidence(difference: f64, error: f64, incumbent: f64) -> f64 {
    let (noise, effect) = (error * error, (EXPECTED_EFFECT * incumbent).powi(2));
    if !(noise > 0.0 && effect > 0.0) {
        return 0.0;
    }
    let exponent = difference * difference * effect / (2.0 * noise * (noise + effect));
    (noise / (noise + effect)).sqrt() * exponent.exp()
}

/// Standard errors above which a candidate is given up before `min_pairs`.
const HOPELESS: f64 = 3.0;

/// Which guard rail the candidate broke. `surely`: only what luck does not explain.
fn broken(pairs: &[Pair], replicas: usize, guard: &Guard, surely: bool) -> Option<String> {
    let (own, reference) = super::contrast::estimates(pairs, replicas, Statistic::ErrorShare)?;
    let samples: usize = pairs.iter().map(|pair| pair.candidate.len()).sum();
    let failed = own.value * count(samples);
    let margin = if surely { 2.0 * (guard.max_error_share * count(samples)).sqrt() + 1.0 } else { 0.0 };
    if own.value > guard.max_error_share
        && own.value > reference.value
        && failed > guard.max_error_share.max(reference.value) * count(samples) + margin
    {
        return Some(format!(
            "guard rail: {:.1} % of its requests failed ({:.1} % of the incumbent's), allowed are {:.1} %",
            own.value * 100.0,
            reference.value * 100.0,
            guard.max_error_share * 100.0
        ));
    }
    let (own, reference) = super::contrast::estimates(pairs, replicas, Statistic::E2eP95)?;
    let worse = if surely { own.low.zip(reference.high) } else { Some((own.value, reference.value)) };
    let (own_value, limit) = worse?;
    (own_value > guard.max_e2e_p95_ratio * limit).then(|| {
        format!(
            "guard rail: its p95 of end-to-end time is {:.0} ms against {:.0} ms, allowed is {:.2} times as much",
            own.value, reference.value, guard.max_e2e_p95_ratio
        )
    })
}
