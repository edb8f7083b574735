//! Gaps between the content events of one stream, µs, in bounded memory, and a histogram over eight bounds that counts
//! every gap.
//!
//! The first [`KEPT`] gaps are kept exactly. Beyond that every second one is dropped and only every second, then every
//! fourth … is kept: an evenly spaced sample of the whole stream, without randomness.

use std::time::Duration;

use gorgo_routing::model::{ITL_BOUNDS_MS, ItlHistogram};

/// Most gaps kept per stream: 32 KiB.
const KEPT: usize = 8_192;

/// Gaps of one stream.
#[derive(Debug, Clone, Default)]
pub struct TokenGaps {
    kept: Vec<u32>,
    /// Each kept gap represents 2^`halvings` gaps.
    halvings: u32,
    seen: u64,
    counts: ItlHistogram,
}

impl TokenGaps {
    /// Adds one gap.
    pub fn push(&mut self, gap: Duration) {
        let within = ITL_BOUNDS_MS.iter().position(|bound| gap <= Duration::from_millis(*bound));
        self.counts[within.unwrap_or(ITL_BOUNDS_MS.len())] += 1;
        let taken = self.seen.is_multiple_of(1 << self.halvings);
        self.seen += 1;
        if !taken {
            return;
        }
        // Keeping the first of each pair leaves exactly the gaps that the doubled step would have kept from the start.
        if self.kept.len() == KEPT {
            let mut nth = 0_usize;
            self.kept.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
            self.halvings += 1;
        }
        self.kept.push(u32::try_from(gap.as_micros()).unwrap_or(u32::MAX));
    }

    /// Number of gaps in each bucket of [`ITL_BOUNDS_MS`], and beyond the last; `None` without gaps.
    #[must_use]
    pub fn counts(&self) -> Option<ItlHistogram> {
        (self.seen > 0).then_some(self.counts)
    }

    /// Quantile `per_mille` / 1000 by nearest rank, µs; `None` without gaps.
    #[must_use]
    pub fn quantile(&self, per_mille: usize) -> Option<u32> {
        if self.kept.is_empty() {
            return None;
        }
        let rank = (self.kept.len() * per_mille).div_ceil(1000).clamp(1, self.kept.len());
        let mut sorted = self.kept.clone();
        let (_, value, _) = sorted.select_nth_unstable(rank - 1);
        Some(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearest_rank() {
        let mut gaps = TokenGaps::default();
        assert_eq!(gaps.quantile(990), None);
        for micros in 1..=200 {
            gaps.push(Duration::from_micros(micros));
        }
        assert_eq!(gaps.quantile(990), Some(198));
        assert_eq!(gaps.quantile(500), Some(100));
        assert_eq!(gaps.quantile(1000), Some(200));
    }

    #[test]
    fn every_gap_is_counted_within_its_bound() {
        let mut gaps = TokenGaps::default();
        assert_eq!(gaps.counts(), None);
        for millis in [0, 5, 6, 10, 39, 40, 41, 320, 321, 60_000] {
            gaps.push(Duration::from_millis(millis));
        }
        assert_eq!(gaps.counts(), Some([2, 2, 0, 2, 1, 0, 1, 2]));
        for _ in 0..100_000 {
            gaps.push(Duration::from_micros(1));
        }
        assert_eq!(gaps.counts().unwrap()[0], 100_002, "also those that are not kept");
    }

    #[test]
    fn a_long_stream_is_sampled_evenly() {
        let mut gaps = TokenGaps::default();
        for micros in 0..100_000 {
            gaps.push(Duration::from_micros(micros));
        }
        assert!(gaps.kept.len() <= KEPT);
        let median = gaps.quantile(500).unwrap();
        assert!((49_000..51_000).contains(&median), "{median}");
    }
}
