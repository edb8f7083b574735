//! Start of the TTFT tail, ms: the running 88 % quantile of the whole fleet's requests, over the last 1,024 of them. A
//! request with a predicted TTFT beyond it would make the tail worse.
//!
//! Nearest rank, ceil(0.88·n), of a window of samples, not of time: a quiet night does not forget how slow the fleet
//! was.

use std::collections::VecDeque;

use crate::model::{Candidates, RequestOutcome};

const PERCENT: usize = 88;
/// Number of samples: enough that 120 lie beyond the quantile, few enough to follow changes within the hour.
const WINDOW: usize = 1_024;
/// Fewest samples for a quantile; fewer do not show a tail.
const LEAST_SAMPLES: usize = 32;

/// Window in order of arrival and in order of size.
#[derive(Debug, Clone, Default)]
pub struct TtftQuantile {
    arrived: VecDeque<f64>,
    sorted: Vec<f64>,
}

impl TtftQuantile {
    /// Creates an empty window.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records how a request ended; failed ones are ignored.
    pub fn record(&mut self, ending: &RequestOutcome) {
        let Some(ttft_ms) = ending.ttft_ms.filter(|ms| ending.completed && ms.is_finite() && *ms >= 0.0) else {
            return;
        };
        if self.arrived.len() == WINDOW
            && let Some(oldest) = self.arrived.pop_front()
        {
            // The same bits were inserted, so the first sample not below is an equal one.
            let place = self.sorted.partition_point(|sample| *sample < oldest);
            self.sorted.remove(place);
        }
        self.arrived.push_back(ttft_ms);
        // Kept sorted at every insert, so that decisions read the quantile without sorting.
        let place = self.sorted.partition_point(|sample| *sample < ttft_ms);
        self.sorted.insert(place, ttft_ms);
    }

    /// Quantile, ms; `None` before there are enough samples.
    #[must_use]
    pub fn value_ms(&self) -> Option<f64> {
        let samples = self.sorted.len();
        let rank = (PERCENT * samples).div_ceil(100);
        (samples >= LEAST_SAMPLES).then(|| self.sorted[rank.clamp(1, samples) - 1])
    }

    /// Fills `tail_start_ms`.
    pub fn fill(&self, candidates: &mut Candidates) {
        candidates.tail_start_ms = self.value_ms();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::arbitrary::fixed;

    fn seen(samples: impl IntoIterator<Item = f64>) -> TtftQuantile {
        let mut quantile = TtftQuantile::new();
        for ttft_ms in samples {
            quantile.record(&RequestOutcome { ttft_ms: Some(ttft_ms), completed: true, ..RequestOutcome::default() });
        }
        quantile
    }

    #[test]
    fn unknown_at_first_and_then_nearest_rank() {
        assert_eq!(seen((1..=31).map(f64::from)).value_ms(), None);
        assert_eq!(seen((1..=100).map(f64::from)).value_ms(), Some(88.0));
    }

    #[test]
    fn failures_and_nonsense_say_nothing() {
        let mut quantile = seen((1..=100).map(f64::from));
        for (ttft_ms, completed) in [(Some(9e9), false), (None, true), (Some(f64::NAN), true), (Some(-1.0), true)] {
            quantile.record(&RequestOutcome { ttft_ms, completed, ..RequestOutcome::default() });
        }
        assert_eq!(quantile.value_ms(), Some(88.0));
    }

    proptest! {
        #![proptest_config(fixed(32))]

        #[test]
        fn it_is_the_quantile_of_the_last_ones(samples in prop::collection::vec(0.0..1e5_f64, 32..3_000)) {
            let quantile = seen(samples.iter().copied());
            let mut last = samples[samples.len().saturating_sub(WINDOW)..].to_vec();
            last.sort_by(f64::total_cmp);
            let rank = (PERCENT * last.len()).div_ceil(100);
            prop_assert_eq!(quantile.value_ms(), Some(last[rank - 1]));
        }
    }
}
