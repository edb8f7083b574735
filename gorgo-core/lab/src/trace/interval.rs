//! 95 % intervals of the latencies of one run, by a block bootstrap: how different the result of the same load could
//! have been.
//!
//! Requests close in time share their load, so they are drawn in blocks of √n consecutive ones, with replacement;
//! drawing them one by one would make the intervals of a loaded run far too narrow. Source: Künsch, "The jackknife and
//! the bootstrap for general stationary observations", 1989. The interval of a tail with few values is no wider than
//! those values: any interval needs at least 20 values, and a p99 of 200 values depends on the two largest.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{LatencyQuantiles, RequestSample};

/// Fewest values for which an interval is computed.
const LEAST: usize = 20;
/// Number of resamples per interval.
const RESAMPLES: usize = 400;

/// Bounds of an interval, in the unit of the values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConfidenceInterval {
    /// 2.5th percentile over the resamples.
    pub low: f64,
    /// 97.5th percentile over the resamples.
    pub high: f64,
}

/// Intervals of the statistics of one latency, ms; `None` for fewer than 20 values.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LatencyIntervals {
    /// Interval of the mean.
    pub mean: Option<ConfidenceInterval>,
    /// Interval of the median.
    pub p50: Option<ConfidenceInterval>,
    /// Interval of the 95th percentile.
    pub p95: Option<ConfidenceInterval>,
    /// Interval of the 99th percentile.
    pub p99: Option<ConfidenceInterval>,
}

/// Intervals of a run's latencies, over successful requests.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RunIntervals {
    /// Intervals of the time to the first content.
    pub ttft: LatencyIntervals,
    /// Intervals of the time to the last byte.
    pub e2e: LatencyIntervals,
    /// Intervals of each request's mean gap between tokens.
    pub itl: LatencyIntervals,
}

impl LatencyIntervals {
    /// Computes the intervals of values in order of time; equal seeds give equal intervals.
    #[must_use]
    pub fn from_values(values: &[f64], seed: u64) -> Self {
        if values.len() < LEAST {
            return Self::default();
        }
        let block = values.len().isqrt();
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut found: [Vec<f64>; 4] = Default::default();
        let mut drawn = Vec::with_capacity(values.len() + block);
        for _ in 0..RESAMPLES {
            drawn.clear();
            while drawn.len() < values.len() {
                // Blocks wrap around at the end, so that values near the ends are as likely as any other.
                let start = random.random_range(0..values.len());
                drawn.extend(values.iter().cycle().skip(start).take(block));
            }
            // The last block may go beyond the sample; a resample has exactly as many values as the run.
            drawn.truncate(values.len());
            let of = LatencyQuantiles::from_values(drawn.iter().copied());
            for (all, one) in found.iter_mut().zip([of.mean, of.p50, of.p95, of.p99]) {
                all.extend(one);
            }
        }
        let [mean, p50, p95, p99] = found.map(percentile_interval);
        Self { mean, p50, p95, p99 }
    }
}

fn percentile_interval(mut values: Vec<f64>) -> Option<ConfidenceInterval> {
    values.sort_by(f64::total_cmp);
    // 1/40 = 2.5 % on each side.
    let beyond = values.len() / 40;
    let high = values.len().checked_sub(1 + beyond)?;
    Some(ConfidenceInterval { low: *values.get(beyond)?, high: *values.get(high)? })
}

impl RunIntervals {
    /// Computes the intervals of samples in any order.
    #[must_use]
    pub fn from_samples(samples: &[RequestSample], seed: u64) -> Self {
        let mut good: Vec<&RequestSample> = samples.iter().filter(|sample| sample.error.is_none()).collect();
        // Blocks are of neighbours in time; the row breaks ties, so that equal samples give equal intervals.
        good.sort_by(|a, b| a.sent_ms.total_cmp(&b.sent_ms).then(a.row.cmp(&b.row)));
        let of = |value: fn(&RequestSample) -> Option<f64>| {
            let values: Vec<f64> = good.iter().filter_map(|sample| value(sample)).collect();
            LatencyIntervals::from_values(&values, seed)
        };
        Self { ttft: of(|one| one.ttft_ms), e2e: of(|one| Some(one.e2e_ms)), itl: of(|one| one.itl_ms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random numbers, uniform in 0 to 1.
    fn noise(count: usize, seed: u64) -> Vec<f64> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        (0..count).map(|_| random.random::<f64>()).collect()
    }

    #[test]
    fn an_interval_holds_the_truth_nineteen_times_in_twenty() {
        let held = |pick: fn(&LatencyIntervals) -> Option<ConfidenceInterval>, truth: f64| {
            let runs = (0..200).map(|seed| pick(&LatencyIntervals::from_values(&noise(400, seed), seed)).unwrap());
            runs.filter(|interval| interval.low <= truth && truth <= interval.high).count()
        };
        // 190 of 200 if the interval is exact; somewhat fewer, since √n-blocks of independent values lose a little.
        let (mean, p50, p95) = (held(|of| of.mean, 0.5), held(|of| of.p50, 0.5), held(|of| of.p95, 0.95));
        for found in [mean, p50, p95] {
            assert!((174..=200).contains(&found), "{mean} {p50} {p95}");
        }
    }

    #[test]
    fn values_that_keep_together_have_wider_intervals() {
        let alone = noise(900, 1);
        // Each of them thirty times in a row: as many values with a thirtieth of the information.
        let together: Vec<f64> = noise(30, 1).into_iter().flat_map(|value| std::iter::repeat_n(value, 30)).collect();
        let wide =
            |values: &[f64]| LatencyIntervals::from_values(values, 3).mean.map(|one| one.high - one.low).unwrap();
        assert!(wide(&together) > 3.0 * wide(&alone), "{} {}", wide(&together), wide(&alone));
    }

    #[test]
    fn few_values_say_nothing_and_equal_seeds_the_same() {
        assert_eq!(LatencyIntervals::from_values(&noise(LEAST - 1, 1), 0), LatencyIntervals::default());
        assert_eq!(LatencyIntervals::from_values(&noise(100, 1), 7), LatencyIntervals::from_values(&noise(100, 1), 7));
        let failed =
            RequestSample { error: Some(gorgo_routing::model::ErrorClass::Connect), ..RequestSample::default() };
        assert_eq!(RunIntervals::from_samples(&vec![failed; 50], 0), RunIntervals::default());
    }
}
