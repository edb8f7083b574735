//! Comparison of candidate and incumbent for an objective that is a black box: pairs are left out one by one.
//!
//! A plugin computes a number from an arm's requests, without the influence of each request on it. So the error of the
//! difference comes from how it varies when a pair is missing: the delete-one-group jackknife, (n − 1)/n · Σ (dᵢ −
//! d̄)². For means and shares that is the error of [`super::contrast`]; a median or a tail needs many requests per
//! pair, as blocks have. The part that the sizes of requests explain is not removed here.

use super::cohort::{CohortBaseline, STATISTICS, count};
use super::contrast::{ArmContrast, BlockPair, common};
use super::objective::RequestObjective;
use super::request_columns::RequestColumns;
use super::sample::TuningSample;

/// Requests per arm below which nothing is decided: the limit of built-in objectives that look at the 95th percentile.
pub(super) const LEAST_SAMPLES: usize = 20;

/// Compares the arms of these pairs, of which there are at least two. `None` if the objective yields no number for
/// them.
pub(super) fn contrast(objective: &dyn RequestObjective, pairs: &[BlockPair], replicas: usize) -> Option<ArmContrast> {
    // Shared facts are those of all pairs, also where a pair is left out: they are part of the measure, not of the
    // data.
    let common = common(pairs, replicas);
    let without = |left_out: Option<usize>, candidate: bool| {
        let kept = pairs.iter().enumerate().filter(|(place, _)| Some(*place) != left_out);
        let samples: Vec<&TuningSample> =
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
    // A black box reads no statistics, so their figures are unknown here.
    let figures = [[0.0; STATISTICS]; 2];
    Some(ArmContrast { difference: candidate - incumbent, error: variance.sqrt(), incumbent, candidate, figures })
}

fn measured(objective: &dyn RequestObjective, samples: &[&TuningSample], common: &CohortBaseline) -> Option<f64> {
    objective.measure(&RequestColumns::from_samples(samples, common)).filter(|score| score.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::contrast;
    use crate::tune::objective::OBJECTIVES;
    use crate::tune::sample::SampleOutcome;
    use crate::tune::space::{step_rng, uniform};

    /// The mean of TTFT, seen from outside.
    #[derive(Debug)]
    struct MeanTtft;

    impl RequestObjective for MeanTtft {
        fn measure(&self, requests: &RequestColumns) -> Option<f64> {
            Some(requests.ttft_ms.iter().sum::<f64>() / count(requests.ttft_ms.len()))
        }
    }

    fn pairs(how_many: u64, slower_ms: f64) -> Vec<BlockPair> {
        let block = |seed: u64, more: f64| {
            let mut random = step_rng(seed, 7);
            let mut sample = || TuningSample {
                ttft_ms: Some(100.0 + 50.0 * uniform(&mut random) + more),
                e2e_ms: 500.0,
                itl_ms: None,
                prompt_tokens: None,
                completion_tokens: None,
                replica: 0,
                size: 0.0,
                fate: SampleOutcome::Served,
            };
            (0..32).map(|_| sample()).collect::<Vec<_>>()
        };
        let pair = |seed| BlockPair { incumbent: block(2 * seed, 0.0), candidate: block(2 * seed + 1, slower_ms) };
        (0..how_many).map(pair).collect()
    }

    #[test]
    fn tune_a_mean_seen_from_outside_is_the_mean_and_has_its_error() {
        let pairs = pairs(8, 3.0);
        let kind = OBJECTIVES.iter().find(|kind| kind.kind == "ttft-mean").unwrap();
        let inside = (kind.build)(&crate::model::ParamValues::default()).unwrap();
        let known = contrast::contrast(&*inside, &pairs, 1).unwrap();
        let seen = contrast(&MeanTtft, &pairs, 1).unwrap();
        assert!((seen.difference - known.difference).abs() < 1e-9, "{seen:?} {known:?}");
        assert!((seen.error / known.error - 1.0).abs() < 0.2, "{} against {}", seen.error, known.error);
    }

    #[test]
    fn tune_no_number_for_one_arm_is_no_contrast() {
        struct Never;
        impl RequestObjective for Never {
            fn measure(&self, requests: &RequestColumns) -> Option<f64> {
                // Only short of one pair it has nothing to say.
                (requests.ttft_ms.len() > 96).then_some(1.0)
            }
        }
        assert!(contrast(&Never, &pairs(4, 0.0), 1).is_none());
        struct Infinite;
        impl RequestObjective for Infinite {
            fn measure(&self, _: &RequestColumns) -> Option<f64> {
                Some(f64::INFINITY)
            }
        }
        assert!(contrast(&Infinite, &pairs(4, 0.0), 1).is_none());
    }
}
