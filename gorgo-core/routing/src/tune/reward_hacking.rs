//! Detection of reward hacking: weights that made first tokens come sooner, and whole answers or the gaps between
//! tokens clearly slower. A tuner that looks at TTFT alone walks into a collapse this way: everything goes to the
//! nearest replica, whose first tokens are quick and whose answers are not. Source: GORGO paper, section on limitations
//! (queue weight 0, all requests on one replica, p95 of E2E 12.49 s).
//!
//! Accepted weights are reported; limiting what they may cost is the guard's task.

use super::cohort::{IntervalEstimate, Statistic};
use super::contrast::{BlockPair, estimates};

/// Standard errors that a difference must have on both sides. Six comparisons are made, so more than the usual two.
const CLEARLY_SE: f64 = 2.5;
/// Half-width of a 95 % interval, standard errors.
const HALF_WIDTH_SE: f64 = 1.96;

/// Statistic that improved and statistic that got worse, each as a multiple of the incumbent's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RewardHacking {
    better: (Statistic, f64),
    worse: (Statistic, f64),
}

impl RewardHacking {
    /// Multiple of the incumbent's value that the worse statistic has reached.
    pub(super) const fn ratio(&self) -> f64 {
        self.worse.1
    }

    /// Text for logs and generation rows.
    pub(super) fn message(&self) -> String {
        let ((better, gain), (worse, harm)) = (self.better, self.worse);
        format!("reward hacking: {} × {gain:.2}, {} × {harm:.2} of the incumbent's", better.name(), worse.name())
    }
}

/// Compares the arms: `Some` if the candidate's first tokens came clearly sooner, and its answers or tokens clearly
/// later.
pub(super) fn detect_reward_hacking(pairs: &[BlockPair], replicas: usize) -> Option<RewardHacking> {
    let of = |statistic| {
        let (own, reference) = estimates(pairs, replicas, statistic)?;
        Some((statistic, own.value / reference.value, errors(own, reference)?))
    };
    // The strongest finding on each side is reported.
    let first = [Statistic::TtftP95, Statistic::TtftMean].into_iter().filter_map(of);
    let better = first.filter(|(_, _, errors)| *errors < -CLEARLY_SE).min_by(|one, other| one.1.total_cmp(&other.1))?;
    let rest =
        [Statistic::E2eP95, Statistic::E2eMean, Statistic::ItlMean, Statistic::ItlP99].into_iter().filter_map(of);
    let worse = rest.filter(|(_, _, errors)| *errors > CLEARLY_SE).max_by(|one, other| one.1.total_cmp(&other.1))?;
    Some(RewardHacking { better: (better.0, better.1), worse: (worse.0, worse.1) })
}

/// Difference in standard errors; `None` if an interval is unknown or there is no spread at all.
fn errors(own: IntervalEstimate, reference: IntervalEstimate) -> Option<f64> {
    let error = |estimate: IntervalEstimate| Some((estimate.high? - estimate.low?) / (2.0 * HALF_WIDTH_SE));
    // The arms are independent, so their variances add up.
    let spread = error(own)?.hypot(error(reference)?);
    let errors = (own.value - reference.value) / spread;
    errors.is_finite().then_some(errors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::sample::{SampleOutcome, TuningSample};

    /// Times spread evenly by a fifth around these, ms.
    fn samples(ttft_ms: f64, e2e_ms: f64, itl_ms: f64) -> Vec<TuningSample> {
        let spread = |place: u16| 0.8 + 0.4 * f64::from(place % 20) / 19.0;
        (0..40)
            .map(|place| TuningSample {
                ttft_ms: Some(ttft_ms * spread(place)),
                e2e_ms: e2e_ms * spread(place + 7),
                itl_ms: Some(itl_ms * spread(place + 3)),
                prompt_tokens: Some(100),
                completion_tokens: Some(50),
                replica: place % 3,
                size: 1.0,
                fate: SampleOutcome::Served,
            })
            .collect()
    }

    fn seen(incumbent: (f64, f64, f64), candidate: (f64, f64, f64)) -> Option<RewardHacking> {
        let arm = |(ttft, e2e, itl)| samples(ttft, e2e, itl);
        let pairs: Vec<BlockPair> =
            (0..4).map(|_| BlockPair { incumbent: arm(incumbent), candidate: arm(candidate) }).collect();
        detect_reward_hacking(&pairs, 3)
    }

    #[test]
    fn sooner_first_tokens_with_later_answers_are_told() {
        let found = seen((400.0, 2_000.0, 10.0), (200.0, 3_000.0, 10.0)).unwrap();
        assert!(found.message().starts_with("reward hacking: ttft_"), "{}", found.message());
        assert!(found.message().contains("e2e_") && found.ratio() > 1.3, "{}", found.message());
        let slower_tokens = seen((400.0, 2_000.0, 10.0), (200.0, 2_000.0, 20.0)).unwrap();
        assert!(slower_tokens.message().contains("itl_"), "{}", slower_tokens.message());
    }

    #[test]
    fn what_is_better_all_round_or_worse_all_round_or_the_same_is_not() {
        let incumbent = (400.0, 2_000.0, 10.0);
        assert_eq!(seen(incumbent, (200.0, 1_500.0, 10.0)), None);
        assert_eq!(seen(incumbent, (600.0, 3_000.0, 20.0)), None);
        assert_eq!(seen(incumbent, incumbent), None);
        assert_eq!(seen(incumbent, (200.0, 2_010.0, 10.0)), None, "a difference that luck explains");
        assert_eq!(detect_reward_hacking(&[], 3), None);
    }
}
