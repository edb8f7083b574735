//! Comparison of candidate and incumbent: a difference of scores with its standard error, from paired blocks.
//!
//! The difference is that of the pooled cohorts, so that a 95th percentile is that of all blocks together and not a
//! mean of percentiles of forty requests. The error comes from the pairs: each sample's influence on the difference
//! (the objective's slope × the sample's influence on the statistic), minus the part that the size of the request
//! explains, is summed per pair, and the variance between pairs is the measure. Drift of traffic between pairs cancels
//! out within each pair.

use super::cohort::{ArmCohort, CohortBaseline, IntervalEstimate, STATISTICS, Statistic, StatisticValues, count};
use super::jackknife;
use super::objective::Objective;
use super::sample::TuningSample;

/// Two blocks with the same traffic.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BlockPair {
    /// Counted samples of the incumbent.
    pub incumbent: Vec<TuningSample>,
    /// Counted samples of the candidate.
    pub candidate: Vec<TuningSample>,
}

/// Result of comparing the arms.
#[derive(Debug, Clone, PartialEq)]
pub struct ArmContrast {
    /// Candidate's score minus incumbent's, adjusted for the sizes of requests; below 0 the candidate is better.
    pub difference: f64,
    /// Standard error of `difference`, from these pairs alone.
    pub error: f64,
    /// Score of the incumbent.
    pub incumbent: f64,
    /// Score of the candidate, not adjusted.
    pub candidate: f64,
    /// Figures of both arms (incumbent, candidate), all statistics.
    pub figures: [StatisticValues; 2],
}

/// All samples of an arm, and the pair to which each belongs.
fn arm(pairs: &[BlockPair], candidate: bool) -> (Vec<&TuningSample>, Vec<usize>) {
    let of = |pair: &'_ BlockPair| if candidate { pair.candidate.len() } else { pair.incumbent.len() };
    let samples = pairs.iter().flat_map(|pair| if candidate { &pair.candidate } else { &pair.incumbent });
    let places = pairs.iter().enumerate().flat_map(|(place, pair)| std::iter::repeat_n(place, of(pair)));
    (samples.collect(), places.collect())
}

/// Facts that both arms share.
#[must_use]
pub fn common(pairs: &[BlockPair], replicas: usize) -> CohortBaseline {
    let both: Vec<&TuningSample> = pairs.iter().flat_map(|pair| pair.incumbent.iter().chain(&pair.candidate)).collect();
    CohortBaseline::from_samples(&both, replicas)
}

/// One statistic of both arms with its interval: candidate's, incumbent's. `None` unless both have samples.
#[must_use]
pub fn estimates(
    pairs: &[BlockPair],
    replicas: usize,
    statistic: Statistic,
) -> Option<(IntervalEstimate, IntervalEstimate)> {
    let common = common(pairs, replicas);
    let (own, reference) = (arm(pairs, true).0, arm(pairs, false).0);
    let of = |samples: &[&TuningSample]| ArmCohort::new(samples, common).estimate(statistic);
    (!own.is_empty() && !reference.is_empty()).then(|| (of(&own), of(&reference)))
}

/// Numbers of samples of the incumbent and of the candidate.
pub(super) fn samples(pairs: &[BlockPair]) -> (usize, usize) {
    (pairs.iter().map(|pair| pair.incumbent.len()).sum(), pairs.iter().map(|pair| pair.candidate.len()).sum())
}

/// Samples per arm below which nothing is decided.
pub(super) fn least_samples(objective: &dyn Objective) -> usize {
    if objective.as_request_objective().is_some() {
        return jackknife::LEAST_SAMPLES;
    }
    objective.statistics().iter().map(|statistic| statistic.least_samples()).max().unwrap_or(2)
}

/// Returns true if there are enough pairs and samples for this objective.
pub(super) fn enough(objective: &dyn Objective, pairs: &[BlockPair]) -> bool {
    let (incumbent, candidate) = samples(pairs);
    pairs.len() >= 2 && incumbent.min(candidate) >= least_samples(objective)
}

/// Compares the arms of these pairs. `None` if there are too few pairs or samples for this objective, or if it yields
/// no number for them.
#[must_use]
pub fn contrast(objective: &dyn Objective, pairs: &[BlockPair], replicas: usize) -> Option<ArmContrast> {
    if !enough(objective, pairs) {
        return None;
    }
    let seen = match objective.as_request_objective() {
        Some(objective) => jackknife::contrast(objective, pairs, replicas),
        None => Some(by_statistics(objective, pairs, replicas)),
    };
    // A plugin or an expression may yield NaN or infinity, on which no test could be based.
    seen.filter(|seen| [seen.difference, seen.error, seen.incumbent, seen.candidate].iter().all(|it| it.is_finite()))
}

fn by_statistics(objective: &dyn Objective, pairs: &[BlockPair], replicas: usize) -> ArmContrast {
    let common = common(pairs, replicas);
    let arms = [arm(pairs, false), arm(pairs, true)];
    let cohorts = [ArmCohort::new(&arms[0].0, common), ArmCohort::new(&arms[1].0, common)];
    let mut figures: [StatisticValues; 2] = [[0.0; STATISTICS]; 2];
    let mut influences: [Vec<(Statistic, Vec<f64>)>; 2] = [Vec::new(), Vec::new()];
    for ((cohort, figures), influences) in cohorts.iter().zip(&mut figures).zip(&mut influences) {
        for statistic in objective.statistics().iter().copied() {
            let (value, influence) = cohort.influence(statistic);
            figures[statistic as usize] = value;
            influences.push((statistic, influence));
        }
    }
    // Both arms are scored against the incumbent's figures; its own score is that against itself.
    let [incumbent, candidate] = [&figures[0], &figures[1]].map(|own| objective.score(own, &figures[0]));
    let mut difference = candidate - incumbent;
    // Sizes are centred over both arms, so that an arm which happened to get larger requests is adjusted for that.
    let sizes: f64 = arms.iter().flat_map(|(samples, _)| samples).map(|sample| sample.size).sum();
    let mean_size = sizes / count(arms[0].0.len() + arms[1].0.len());
    let mut by_pair = vec![0.0; pairs.len()];
    for (which, (samples, places)) in arms.iter().enumerate() {
        // First-order effect of each sample on the difference of scores.
        let mut moved = vec![0.0; samples.len()];
        for (statistic, influence) in &influences[which] {
            let slope = slope(objective, &figures, which, *statistic);
            for (moved, influence) in moved.iter_mut().zip(influence) {
                *moved += slope * influence;
            }
        }
        let beta = slope_on_size(samples, places, &moved, pairs.len());
        let n = count(samples.len());
        for ((moved, sample), place) in moved.iter().zip(samples).zip(places) {
            let explained = beta * (sample.size - mean_size);
            // The size effect is removed from both: the difference becomes fair, and the error smaller.
            difference -= explained / n;
            by_pair[*place] += (moved - explained) / n;
        }
    }
    let n = count(pairs.len());
    let mean = by_pair.iter().sum::<f64>() / n;
    // The variance of a sum of n pair effects, estimated from their spread.
    let variance = by_pair.iter().map(|one| (one - mean).powi(2)).sum::<f64>() * n / (n - 1.0);
    ArmContrast { difference, error: variance.sqrt(), incumbent, candidate, figures }
}

/// Slope of the difference of scores with respect to a statistic of arm `which`.
// Numerically, because the objective may be any expression.
fn slope(objective: &dyn Objective, figures: &[StatisticValues; 2], which: usize, statistic: Statistic) -> f64 {
    let value = figures[which][statistic as usize];
    let step = (value.abs() * 1e-4).max(1e-7);
    let difference = |value: f64| {
        let mut moved = *figures;
        moved[which][statistic as usize] = value;
        // The incumbent's score moves as well when its figures are the ones that move.
        objective.score(&moved[1], &moved[0]) - objective.score(&moved[0], &moved[0])
    };
    let slope = (difference(value + step) - difference(value - step)) / (2.0 * step);
    // At a kink or a jump there is no slope; 0 leaves the statistic out of the error.
    if slope.is_finite() { slope } else { 0.0 }
}

/// Slope of the samples' influence on the size of their requests: least squares within the blocks, so that differences
/// between blocks, which are the subject of the test, cannot leak into it.
fn slope_on_size(samples: &[&TuningSample], places: &[usize], moved: &[f64], pairs: usize) -> f64 {
    let mut sums = vec![(0.0, 0.0, 0.0); pairs];
    for ((sample, place), moved) in samples.iter().zip(places).zip(moved) {
        let sum = &mut sums[*place];
        *sum = (sum.0 + 1.0, sum.1 + sample.size, sum.2 + moved);
    }
    let (mut xx, mut xy) = (0.0, 0.0);
    for ((sample, place), moved) in samples.iter().zip(places).zip(moved) {
        let (n, x, y) = sums[*place];
        let dx = sample.size - x / n;
        xx += dx * dx;
        xy += dx * (moved - y / n);
    }
    // All requests of the same size: there is nothing to adjust for.
    if xx > 1e-9 { xy / xx } else { 0.0 }
}
