//! Candidate against incumbent: a difference of scores with its standard error, from paired blocks.
//!
//! The difference is of the pooled cohorts, so that a 95th percentile is that of all blocks together and not a mean of
//! percentiles of forty requests. Its error comes from the pairs: each sample's influence on the difference (the
//! objective's slope × the sample's influence on the statistic), less what the size of the request explains of it, is
//! summed by pair, and the pairs vary as they vary. Traffic that drifts from one pair to the next cancels within both.

use super::cohort::{Cohort, Common, Estimate, Figures, STATISTICS, Statistic, count};
use super::jackknife;
use super::objective::Objective;
use super::sample::Sample;

/// Two blocks under the same traffic.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pair {
    /// The incumbent's counted samples.
    pub incumbent: Vec<Sample>,
    /// The candidate's.
    pub candidate: Vec<Sample>,
}

/// What the pairs say.
#[derive(Debug, Clone, PartialEq)]
pub struct Contrast {
    /// Candidate's score less incumbent's, adjusted for the sizes of requests; below 0 the candidate is better.
    pub difference: f64,
    /// The standard error of `difference`, from these pairs alone.
    pub error: f64,
    /// The incumbent's score.
    pub incumbent: f64,
    /// The candidate's score, not adjusted.
    pub candidate: f64,
    /// Figures of both arms: incumbent, candidate. All statistics.
    pub figures: [Figures; 2],
}

/// All samples of an arm, and to which pair each belongs.
fn arm(pairs: &[Pair], candidate: bool) -> (Vec<&Sample>, Vec<usize>) {
    let of = |pair: &'_ Pair| if candidate { pair.candidate.len() } else { pair.incumbent.len() };
    let samples = pairs.iter().flat_map(|pair| if candidate { &pair.candidate } else { &pair.incumbent });
    let places = pairs.iter().enumerate().flat_map(|(place, pair)| std::iter::repeat_n(place, of(pair)));
    (samples.collect(), places.collect())
}

/// What both arms share.
#[must_use]
pub fn common(pairs: &[Pair], replicas: usize) -> Common {
    let both: Vec<&Sample> = pairs.iter().flat_map(|pair| pair.incumbent.iter().chain(&pair.candidate)).collect();
    Common::of(&both, replicas)
}

/// One statistic of both arms with its interval: candidate's, incumbent's. `None` without samples in both.
#[must_use]
pub fn estimates(pairs: &[Pair], replicas: usize, statistic: Statistic) -> Option<(Estimate, Estimate)> {
    let common = common(pairs, replicas);
    let (own, reference) = (arm(pairs, true).0, arm(pairs, false).0);
    let of = |samples: &[&Sample]| Cohort::new(samples, common).estimate(statistic);
    (!own.is_empty() && !reference.is_empty()).then(|| (of(&own), of(&reference)))
}

/// Samples of the incumbent and of the candidate.
pub(super) fn samples(pairs: &[Pair]) -> (usize, usize) {
    (pairs.iter().map(|pair| pair.incumbent.len()).sum(), pairs.iter().map(|pair| pair.candidate.len()).sum())
}

/// Samples of an arm below which nothing is decided.
pub(super) fn least_samples(objective: &dyn Objective) -> usize {
    if objective.of_requests().is_some() {
        return jackknife::LEAST_SAMPLES;
    }
    objective.statistics().iter().map(|statistic| statistic.least_samples()).max().unwrap_or(2)
}

/// Whether there are pairs and samples enough for this objective.
pub(super) fn enough(objective: &dyn Objective, pairs: &[Pair]) -> bool {
    let (incumbent, candidate) = samples(pairs);
    pairs.len() >= 2 && incumbent.min(candidate) >= least_samples(objective)
}

/// Compares the arms of these pairs. `None`: too few pairs or samples for this objective, or it gives no number for
/// them.
#[must_use]
pub fn contrast(objective: &dyn Objective, pairs: &[Pair], replicas: usize) -> Option<Contrast> {
    if !enough(objective, pairs) {
        return None;
    }
    let seen = match objective.of_requests() {
        Some(objective) => jackknife::contrast(objective, pairs, replicas),
        None => Some(by_statistics(objective, pairs, replicas)),
    };
    seen.filter(|seen| [seen.difference, seen.error, seen.incumbent, seen.candidate].iter().all(|it| it.is_finite()))
}

fn by_statistics(objective: &dyn Objective, pairs: &[Pair], replicas: usize) -> Contrast {
    let common = common(pairs, replicas);
    let arms = [arm(pairs, false), arm(pairs, true)];
    let cohorts = [Cohort::new(&arms[0].0, common), Cohort::new(&arms[1].0, common)];
    let mut figures: [Figures; 2] = [[0.0; STATISTICS]; 2];
    let mut influences: [Vec<(Statistic, Vec<f64>)>; 2] = [Vec::new(), Vec::new()];
    for ((cohort, figures), influences) in cohorts.iter().zip(&mut figures).zip(&mut influences) {
        for statistic in objective.statistics().iter().copied() {
            let (value, influence) = cohort.influence(statistic);
            figures[statistic as usize] = value;
            influences.push((statistic, influence));
        }
    }
    let [incumbent, candidate] = [&figures[0], &figures[1]].map(|own| objective.score(own, &figures[0]));
    let mut difference = candidate - incumbent;
    let sizes: f64 = arms.iter().flat_map(|(samples, _)| samples).map(|sample| sample.size).sum();
    let mean_size = sizes / count(arms[0].0.len() + arms[1].0.len());
    let mut by_pair = vec![0.0; pairs.len()];
    for (which, (samples, places)) in arms.iter().enumerate() {
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
            difference -= explained / n;
            by_pair[*place] += (moved - explained) / n;
        }
    }
    let n = count(pairs.len());
    let mean = by_pair.iter().sum::<f64>() / n;
    let variance = by_pair.iter().map(|one| (one - mean).powi(2)).sum::<f64>() * n / (n - 1.0);
    Contrast { difference, error: variance.sqrt(), incumbent, candidate, figures }
}

/// By how much the difference of scores moves with a statistic of arm `which`.
fn slope(objective: &dyn Objective, figures: &[Figures; 2], which: usize, statistic: Statistic) -> f64 {
    let value = figures[which][statistic as usize];
    let step = (value.abs() * 1e-4).max(1e-7);
    let difference = |value: f64| {
        let mut moved = *figures;
        moved[which][statistic as usize] = value;
        objective.score(&moved[1], &moved[0]) - objective.score(&moved[0], &moved[0])
    };
    let slope = (difference(value + step) - difference(value - step)) / (2.0 * step);
    if slope.is_finite() { slope } else { 0.0 }
}

/// How much of a sample's influence goes with the size of its request: least squares within the blocks, so that
/// differences between blocks, which are to be tested, cannot leak into it.
fn slope_on_size(samples: &[&Sample], places: &[usize], moved: &[f64], pairs: usize) -> f64 {
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
    if xx > 1e-9 { xy / xx } else { 0.0 }
}
