//! Candidate against incumbent for an objective that nobody knows the inside of: the pairs are left out one by one.
//!
//! A plugin makes a number of an arm's requests, and does not say by how much each of them moves it. So the error of the
//! difference comes from how it varies when a pair is missing: the delete-one-group jackknife, (n − 1)/n · Σ (dᵢ − d̄)².
//! For means and shares that is the error of [`super::contrast`]; a median or a tail needs many requests in a pair, as
//! blocks have. What the sizes of the requests explain is not taken out here.

use super::cohort::{Common, STATISTICS, count};
use super::contrast::{Contrast, Pair, common};
use super::objective::OfRequests;
use super::request_columns::Requests;
use super::sample::Sample;

/// Requests of an arm below which nothing is decided: what is asked of the tail of a built-in objective.
pub(super) const LEAST_SAMPLES: usize = 20;

/// Compares the arms of these pairs; there are two at least. `None`: the objective gives no number for them.
pub(super) fn contrast(objective: &dyn OfRequests, pairs: &[Pair], replicas: usize) -> Option<Contrast> {
    let common = common(pairs, replicas);
    let without = |left_out: Option<usize>, candidate: bool| {
        let kept = pairs.iter().enumerate().filter(|(place, _)| Some(*place) != left_out);
        let samples: Vec<&Sample> =
            kept.flat_map(|(_, pair)| if candidate { &pair.candidate } else { &pair.incumbent }).collect();
        measured(objective, &samples, &common)
    };
    let (incumbent, candidate) = (without(None, false)?, without(None, true)?);
    let mut differences = Vec::with_capacity(pairs.len());
    for place in 0..pairs.len() {
        differences.push(without(Some(place), true)? - without(Some(place), false)?);
    }
    let n = count(pairs.len());
    let mean = differences.iter().sum::<f64>() / n;
    let variance = (n - 1.0) / n * differences.iter().map(|one| (one - mean).powi(2)).sum::<f64>();
    let figures = [[0.0; STATISTICS]; 2];
    Some(Contrast { difference: candidate - incumbent, error: variance.sqrt(), incumbent, candidate, figures })
}

fn measured(objective: &dyn OfRequests, samples: &[&Sample], common: &Common) -> Option<f64> {
    objective.measure(&Requests::of(samples, common)).filter(|score| score.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::contrast;
    use crate::tune::objective::OBJECTIVES;
    use crate::tune::sample::Fate;
    use crate::tune::space::{randomness, uniform};

    /// The mean of TTFT, seen from outside.
    #[derive(Debug)]
    struct MeanTtft;

    impl OfRequests for MeanTtft {
        fn measure(&self, requests: &Requests) -> Option<f64> {
            Some(requests.ttft_ms.iter().sum::<f64>() / count(requests.ttft_ms.len()))
        }
    }

    fn pairs(how_many: u64, slower_ms: f64) -> Vec<Pair> {
        let block = |seed: u64, more: f64| {
            let mut random = randomness(seed, 7);
            let mut sample = || Sample {
                ttft_ms: Some(100.0 + 50.0 * uniform(&mut random) + more),
                e2e_ms: 500.0,
                itl_ms: None,
                prompt_tokens: None,
                completion_tokens: None,
                replica: 0,
                size: 0.0,
                fate: Fate::Served,
            };
            (0..32).map(|_| sample()).collect::<Vec<_>>()
        };
        let pair = |seed| Pair { incumbent: block(2 * seed, 0.0), candidate: block(2 * seed + 1, slower_ms) };
        (0..how_many).map(pair).collect()
    }

    #[test]
    fn tune_a_mean_seen_from_outside_is_the_mean_and_has_its_error() {
        let pairs = pairs(8, 3.0);
        let kind = OBJECTIVES.iter().find(|kind| kind.kind == "ttft-mean").unwrap();
        let inside = (kind.build)(&crate::model::Params::default()).unwrap();
        let known = contrast::contrast(&*inside, &pairs, 1).unwrap();
        let seen = contrast(&MeanTtft, &pairs, 1).unwrap();
        assert!((seen.difference - known.difference).abs() < 1e-9, "{seen:?} {known:?}");
        assert!((seen.error / known.error - 1.0).abs() < 0.2, "{} against {}", seen.error, known.error);
    }

    #[test]
    fn tune_no_number_for_one_arm_is_no_contrast() {
        struct Never;
        impl OfRequests for Never {
            fn measure(&self, requests: &Requests) -> Option<f64> {
                // Only short of one pair it has nothing to say.
                (requests.ttft_ms.len() > 96).then_some(1.0)
            }
        }
        assert!(contrast(&Never, &pairs(4, 0.0), 1).is_none());
        struct Infinite;
        impl OfRequests for Infinite {
            fn measure(&self, _: &Requests) -> Option<f64> {
                Some(f64::INFINITY)
            }
        }
        assert!(contrast(&Infinite, &pairs(4, 0.0), 1).is_none());
    }
}
