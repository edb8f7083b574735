//! Estimates of the results of other choices, from choices that involved chance: self-normalised inverse propensity
//! scores. Each request is weighted by the probability with which the other weights would have chosen its replica,
//! divided by the probability with which it was chosen. Source: Swaminathan and Joachims, The Self-Normalized Estimator
//! for Counterfactual Learning, 2015.

/// A served request and its weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WeightedRequest {
    /// Probability of its replica under the other weights, divided by the actual one.
    pub(super) weight: f64,
    /// TTFT, ms.
    pub(super) ttft_ms: Option<f64>,
    /// E2E if the request succeeded, ms.
    pub(super) e2e_ms: Option<f64>,
    /// True if the request failed at its replica.
    pub(super) failed: bool,
}

/// A mean with its standard error, and the 95th percentile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MeanEstimate {
    pub(super) mean: f64,
    pub(super) standard_error: f64,
    pub(super) p95: f64,
}

/// Estimate from a set of requests.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OffPolicyEstimate {
    pub(super) ttft: Option<MeanEstimate>,
    pub(super) e2e: Option<MeanEstimate>,
    pub(super) error_share: Option<f64>,
    /// Effective sample size: the number of equally weighted requests with the same variance.
    pub(super) effective_requests: f64,
    /// Mean weight: 1 if every choice of the other weights could have been made; less if some could not.
    pub(super) mean_weight: f64,
}

impl OffPolicyEstimate {
    /// Estimate from these requests.
    pub(super) fn of(seen: &[WeightedRequest]) -> Self {
        let sum: f64 = seen.iter().map(|one| one.weight).sum();
        let squares: f64 = seen.iter().map(|one| one.weight * one.weight).sum();
        let failed: f64 = seen.iter().filter(|one| one.failed).map(|one| one.weight).sum();
        Self {
            ttft: figure(seen.iter().filter_map(|one| Some((one.weight, one.ttft_ms?)))),
            e2e: figure(seen.iter().filter_map(|one| Some((one.weight, one.e2e_ms?)))),
            error_share: (sum > 0.0).then(|| failed / sum),
            // Kish's effective sample size, (Σw)² / Σw².
            effective_requests: if squares > 0.0 { sum * sum / squares } else { 0.0 },
            mean_weight: if seen.is_empty() { 0.0 } else { sum / count(seen.len()) },
        }
    }

    /// Statistics of the same requests as they were served.
    pub(super) fn served(seen: &[WeightedRequest]) -> Self {
        Self::of(&seen.iter().map(|one| WeightedRequest { weight: 1.0, ..*one }).collect::<Vec<_>>())
    }
}

/// Weighted mean, standard error and 95th percentile; `None` if no request has any weight.
fn figure(weighted: impl Iterator<Item = (f64, f64)>) -> Option<MeanEstimate> {
    let mut weighted: Vec<(f64, f64)> = weighted.filter(|(weight, _)| *weight > 0.0).collect();
    weighted.sort_by(|one, other| one.1.total_cmp(&other.1));
    let sum: f64 = weighted.iter().map(|(weight, _)| weight).sum();
    let (_, largest) = *weighted.last()?;
    // Divided by the sum of the weights instead of the number of requests: slightly biased, but with far less variance.
    let mean = weighted.iter().map(|(weight, value)| weight * value).sum::<f64>() / sum;
    let spread: f64 = weighted.iter().map(|(weight, value)| (weight * (value - mean)).powi(2)).sum();
    // The smallest value with 95 % of the weight at or below it.
    let mut below = 0.0;
    let p95 = weighted.iter().find(|(weight, _)| {
        below += weight;
        // The factor absorbs rounding in the running sum, so that equal weights give the same value as a plain
        // percentile.
        below >= 0.95 * sum * (1.0 - 1e-12)
    });
    Some(MeanEstimate { mean, standard_error: spread.sqrt() / sum, p95: p95.map_or(largest, |(_, value)| *value) })
}

#[expect(clippy::cast_precision_loss, reason = "requests stay far below 2^53")]
fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seen(weight: f64, ttft_ms: f64) -> WeightedRequest {
        WeightedRequest { weight, ttft_ms: Some(ttft_ms), e2e_ms: None, failed: false }
    }

    #[test]
    fn two_replicas_that_chance_chose_evenly() {
        // The other weights always take the one that answers in 100 ms.
        let all: Vec<WeightedRequest> =
            (0..100).map(|n| if n % 2 == 0 { seen(2.0, 100.0) } else { seen(0.0, 300.0) }).collect();
        let other = OffPolicyEstimate::of(&all);
        assert_eq!(other.ttft, Some(MeanEstimate { mean: 100.0, standard_error: 0.0, p95: 100.0 }));
        assert_eq!((other.effective_requests, other.mean_weight, other.error_share), (50.0, 1.0, Some(0.0)));
        let served = OffPolicyEstimate::served(&all);
        assert_eq!(served.ttft.map(|figure| (figure.mean, figure.p95)), Some((200.0, 300.0)));
        assert_eq!(served.e2e, None);
    }

    #[test]
    fn choices_that_had_no_chance_show_as_not_covered() {
        let all: Vec<WeightedRequest> = (0..100).map(|n| seen(if n < 40 { 1.0 } else { 0.0 }, 100.0)).collect();
        assert_eq!(OffPolicyEstimate::of(&all).mean_weight, 0.4);
        let nothing = OffPolicyEstimate::of(&[]);
        assert_eq!((nothing.ttft, nothing.effective_requests, nothing.mean_weight), (None, 0.0, 0.0));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        /// Weights are relative; means lie between the extremes; equal ones are worth as many as there are.
        #[test]
        fn weights_are_relative(values in prop::collection::vec((0.1..10.0_f64, 1.0..1e4_f64), 2..60), scale in 0.1..10.0_f64) {
            let of = |by: f64| OffPolicyEstimate::of(&values.iter().map(|(weight, ms)| seen(weight * by, *ms)).collect::<Vec<_>>());
            let (one, other) = (of(1.0), of(scale));
            let (figure, scaled) = (one.ttft.unwrap(), other.ttft.unwrap());
            prop_assert!((figure.mean - scaled.mean).abs() <= 1e-9 * figure.mean && figure.p95 == scaled.p95);
            let least = values.iter().map(|(_, ms)| *ms).fold(f64::INFINITY, f64::min);
            let most = values.iter().map(|(_, ms)| *ms).fold(0.0, f64::max);
            prop_assert!(figure.mean >= least - 1e-9 && figure.mean <= most + 1e-9 && figure.p95 <= most);
            prop_assert!(one.effective_requests <= count(values.len()) + 1e-9);
            let even = OffPolicyEstimate::served(&values.iter().map(|(weight, ms)| seen(*weight, *ms)).collect::<Vec<_>>());
            prop_assert!((even.effective_requests - count(values.len())).abs() < 1e-6);
        }
    }
}
