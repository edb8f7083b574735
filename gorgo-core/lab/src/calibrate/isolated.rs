//! Constants of an engine that served one request at a time with cold prompts: nothing ahead of a request and nothing
//! beside it. Three numbers then suffice: the time of a request without any token, the time that each prompt token
//! adds, and the time of a decode step.
//!
//! The slope is the Theil–Sen median of slopes, which a stray request does not move. Least squares are reported as
//! well: if the two differ by more than the interval, something else was running on the engine. Intervals come from
//! resampling requests, which are independent here.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::regression::{DesignMatrix, median, theil_sen};
use super::{FittedConstant, MeasuredRequest};

/// Fewest requests that are fitted.
const LEAST: usize = 8;
/// Number of resamples per interval.
const RESAMPLES: usize = 200;
/// Smallest distance between two points of a slope, as a share of the longest prompt.
const APART_SHARE: f64 = 0.1;

/// Fitted constants.
#[derive(Debug, Clone, PartialEq)]
pub struct IsolatedFit {
    /// Number of requests fitted.
    pub rows: usize,
    /// `floor`: time to the first token of a prompt of length 0, round trip included.
    pub floor: FittedConstant,
    /// `prefill`: time per token of the prompt.
    pub prefill: FittedConstant,
    /// `step`: time between two tokens of a request that is alone in the batch; `None` if answers had one token.
    pub step: Option<FittedConstant>,
    /// Floor and prefill by least squares.
    pub least_squares: (f64, f64),
    /// Median of |measured − model| / measured, for the first token.
    pub median_error_share: Option<f64>,
}

/// Floor and slope of a line.
type LineFit = (f64, f64);

/// Fits the constants; `None` for fewer than eight requests, or if all prompts have the same length. Equal seeds give
/// equal intervals.
#[must_use]
pub fn fit_isolated(rows: &[MeasuredRequest], seed: u64) -> Option<IsolatedFit> {
    if rows.len() < LEAST {
        return None;
    }
    let points: Vec<(f64, f64)> =
        rows.iter().map(|row| (row.uncached_tokens.unwrap_or(row.prompt_tokens), row.ttft_ms)).collect();
    let longest = points.iter().map(|point| point.0).fold(0.0, f64::max);
    let fitted = |points: &[(f64, f64)], seed: u64| -> Option<LineFit> {
        // Points close together have slopes of mere noise, so pairs must lie apart.
        let slope = theil_sen(points, APART_SHARE * longest, seed)?;
        Some((median(points.iter().map(|(tokens, ms)| ms - slope * tokens).collect())?, slope))
    };
    let (floor, prefill) = fitted(&points, seed)?;
    // The gaps of an answer have no prefill in between here: the request is alone in its batch.
    let gap = |row: &MeasuredRequest| {
        (row.output_tokens >= 2.0).then(|| (row.e2e_ms - row.ttft_ms) / (row.output_tokens - 1.0))
    };
    let gaps: Vec<f64> = rows.iter().filter_map(gap).collect();

    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut floors, mut slopes, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    for resample in 0..RESAMPLES {
        let drawn: Vec<(f64, f64)> = (0..points.len()).map(|_| points[random.random_range(0..points.len())]).collect();
        // A resample may by chance have prompts of one length only; it says nothing about the slope and is skipped.
        if let Some((floor, slope)) = fitted(&drawn, seed.wrapping_add(u64::try_from(resample).unwrap_or(0))) {
            floors.push(floor);
            slopes.push(slope);
        }
        if !gaps.is_empty() {
            steps.extend(median((0..gaps.len()).map(|_| gaps[random.random_range(0..gaps.len())]).collect()));
        }
    }
    let constant = |name: &str, per: &'static str, value: f64, mut drawn: Vec<f64>| {
        drawn.sort_by(f64::total_cmp);
        // 1/40 = 2.5 % on each side.
        let beyond = drawn.len() / 40;
        let high = drawn.len().checked_sub(1 + beyond).and_then(|place| drawn.get(place));
        FittedConstant {
            name: name.to_owned(),
            per,
            value,
            low: drawn.get(beyond).copied().unwrap_or(value),
            high: high.copied().unwrap_or(value),
        }
    };
    let mut design = DesignMatrix::new(2);
    for (tokens, ms) in &points {
        design.push(&[1.0, *tokens], *ms);
    }
    let squares = design.fit(&vec![1.0; points.len()], None, 0);
    let off = points.iter().map(|(tokens, ms)| (ms - floor - prefill * tokens).abs() / ms.max(1e-3));
    Some(IsolatedFit {
        rows: rows.len(),
        floor: constant("floor", "", floor, floors),
        prefill: constant("prefill", "token", prefill, slopes),
        step: median(gaps).map(|step| constant("step", "", step, steps)),
        least_squares: (squares.first().copied()?, squares.get(1).copied()?),
        median_error_share: median(off.collect()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Forty prompts on an engine with 120 ms, 0.06 ms per token and 9 ms per step; one in ten may be an outlier.
    fn rows(strays: bool) -> Vec<MeasuredRequest> {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let row = |number: u32| {
            let tokens = f64::from(200 + 200 * (number % 40));
            let stray = if strays && number.is_multiple_of(10) { 900.0 } else { 0.0 };
            let ttft_ms = (120.0 + 0.06 * tokens) * random.random_range(0.98..1.02) + stray;
            MeasuredRequest {
                run: 0,
                replica: None,
                sent_ms: f64::from(number) * 2000.0,
                ttft_ms,
                e2e_ms: ttft_ms + 9.0 * 63.0,
                prompt_tokens: tokens,
                uncached_tokens: None,
                output_tokens: 64.0,
                rtt_ms: None,
            }
        };
        (0..40).map(row).collect()
    }

    #[test]
    fn constants_come_out_within_their_intervals_in_spite_of_strays() {
        let found = fit_isolated(&rows(true), 3).unwrap();
        for (constant, truth) in [(&found.floor, 120.0), (&found.prefill, 0.06), (found.step.as_ref().unwrap(), 9.0)] {
            assert!((constant.value / truth - 1.0).abs() < 0.05, "{constant:?}");
            assert!(constant.low <= truth * 1.02 && constant.high >= truth * 0.98, "{constant:?}");
        }
        assert!(found.median_error_share.unwrap() < 0.03);
        // The outliers move least squares far away, which is why it is reported.
        assert!(found.least_squares.0 > 1.4 * found.floor.value, "{found:?}");
        let clean = fit_isolated(&rows(false), 3).unwrap();
        assert!((clean.least_squares.1 / clean.prefill.value - 1.0).abs() < 0.03, "{clean:?}");
    }

    #[test]
    fn too_little_says_nothing_and_equal_seeds_the_same() {
        assert_eq!(fit_isolated(&rows(false)[..LEAST - 1], 0), None);
        let same: Vec<MeasuredRequest> =
            rows(false).into_iter().map(|row| MeasuredRequest { prompt_tokens: 50.0, ..row }).collect();
        assert_eq!(fit_isolated(&same, 0), None);
        assert_eq!(fit_isolated(&rows(true), 9), fit_isolated(&rows(true), 9));
    }
}
