//! Statistics of a cohort: the counted requests of one arm of a generation.
//!
//! Each statistic comes with its value and its *influence*: by how much each sample moves it. Influences make a
//! difference between two arms testable, whatever the objective does with the statistics (see [`super::contrast`]).
//! Quantiles are by nearest rank, ceil(p·n); their intervals are order statistics.

use super::sample::{SampleOutcome, TuningSample};
use crate::model::nearest_rank;

/// Named number of a cohort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Statistic {
    /// Mean TTFT, ms.
    TtftMean,
    /// Median TTFT, ms.
    TtftP50,
    /// 95th percentile of TTFT, ms.
    TtftP95,
    /// 99th percentile of TTFT, ms.
    TtftP99,
    /// Geometric mean of TTFT, ms.
    TtftGeometric,
    /// Mean E2E, adjusted for answer length, ms.
    E2eMean,
    /// Median of adjusted E2E, ms.
    E2eP50,
    /// 95th percentile of adjusted E2E, ms.
    E2eP95,
    /// 99th percentile of adjusted E2E, ms.
    E2eP99,
    /// Geometric mean of adjusted E2E, ms.
    E2eGeometric,
    /// Mean of the requests' mean token gaps, ms.
    ItlMean,
    /// 99th percentile of the requests' mean token gaps, ms.
    ItlP99,
    /// Failed requests ÷ requests.
    ErrorShare,
    /// Share of the requests that went to the busiest replica.
    ShareMax,
    /// Concentration: 0 if all replicas have the same share, 1 if one replica has everything.
    Hhi,
    /// Number of requests.
    Requests,
    /// Tokens generated per second of request time.
    TokensPerSecond,
}

/// Number of statistics.
pub const STATISTICS: usize = Statistic::ALL.len();

/// Values of the statistics, indexed by [`Statistic`].
pub type StatisticValues = [f64; STATISTICS];

impl Statistic {
    /// All statistics.
    pub const ALL: [Self; 17] = [
        Self::TtftMean,
        Self::TtftP50,
        Self::TtftP95,
        Self::TtftP99,
        Self::TtftGeometric,
        Self::E2eMean,
        Self::E2eP50,
        Self::E2eP95,
        Self::E2eP99,
        Self::E2eGeometric,
        Self::ItlMean,
        Self::ItlP99,
        Self::ErrorShare,
        Self::ShareMax,
        Self::Hhi,
        Self::Requests,
        Self::TokensPerSecond,
    ];

    /// Name in expressions and in `generation_scores.statistic`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TtftMean => "ttft_mean",
            Self::TtftP50 => "ttft_p50",
            Self::TtftP95 => "ttft_p95",
            Self::TtftP99 => "ttft_p99",
            Self::TtftGeometric => "ttft_geometric",
            Self::E2eMean => "e2e_mean",
            Self::E2eP50 => "e2e_p50",
            Self::E2eP95 => "e2e_p95",
            Self::E2eP99 => "e2e_p99",
            Self::E2eGeometric => "e2e_geometric",
            Self::ItlMean => "itl_mean",
            Self::ItlP99 => "itl_p99",
            Self::ErrorShare => "error_share",
            Self::ShareMax => "share_max",
            Self::Hhi => "hhi",
            Self::Requests => "requests",
            Self::TokensPerSecond => "tokens_per_second",
        }
    }

    /// Unit, as expressions check it.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::ErrorShare | Self::ShareMax | Self::Hhi => "share",
            Self::Requests => "requests",
            Self::TokensPerSecond => "tokens/s",
            _ => "ms",
        }
    }

    /// Fewest samples on which anything is decided. With fewer, a high quantile is merely the largest sample.
    #[must_use]
    pub const fn least_samples(self) -> usize {
        match self {
            // By nearest rank, the 99th percentile of fewer than 100 samples is their maximum.
            Self::TtftP99 | Self::E2eP99 | Self::ItlP99 => 100,
            Self::TtftP95 | Self::E2eP95 => 20,
            _ => 2,
        }
    }

    const fn quantile(self) -> Option<f64> {
        match self {
            Self::TtftP50 | Self::E2eP50 => Some(0.5),
            Self::TtftP95 | Self::E2eP95 => Some(0.95),
            Self::TtftP99 | Self::E2eP99 | Self::ItlP99 => Some(0.99),
            _ => None,
        }
    }
}

/// Facts that both arms of a generation share, so that luck in answer lengths or in failures decides nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CohortBaseline {
    worst_ttft_ms: f64,
    worst_e2e_ms: f64,
    median_ttft_ms: f64,
    itl_ms: f64,
    mean_tokens: f64,
    replicas: usize,
}

impl CohortBaseline {
    /// Facts of all samples of both arms; `replicas`: size of the fleet.
    #[must_use]
    pub fn from_samples(samples: &[&TuningSample], replicas: usize) -> Self {
        let mut ttfts: Vec<f64> = samples.iter().filter_map(|sample| sample.ttft_ms).collect();
        ttfts.sort_by(f64::total_cmp);
        let mut itls: Vec<f64> = samples.iter().filter_map(|sample| sample.itl_ms).collect();
        itls.sort_by(f64::total_cmp);
        // Only complete answers: the length of an aborted one says nothing about the usual length.
        let served = samples.iter().filter(|sample| sample.fate == SampleOutcome::Served);
        let tokens = served.clone().filter_map(|sample| sample.completion_tokens).map(f64::from);
        let (sum, count) = tokens.fold((0.0, 0.0), |(sum, count), tokens| (sum + tokens, count + 1.0));
        Self {
            worst_ttft_ms: ttfts.last().copied().unwrap_or(0.0),
            worst_e2e_ms: served.map(|sample| sample.e2e_ms).fold(0.0, f64::max),
            median_ttft_ms: if ttfts.is_empty() { 0.0 } else { ttfts[nearest_rank(0.5, ttfts.len())] },
            itl_ms: if itls.is_empty() { 0.0 } else { itls[nearest_rank(0.5, itls.len())] },
            mean_tokens: if count > 0.0 { sum / count } else { 0.0 },
            replicas,
        }
    }

    /// Returns true if a client that left without a first token had waited longer than most. That counts as bad;
    /// otherwise its leaving means nothing.
    pub(super) fn left_after_long_wait(&self, sample: &TuningSample) -> bool {
        sample.e2e_ms > self.median_ttft_ms
    }

    /// TTFT of a sample, ms.
    fn ttft(&self, sample: &TuningSample) -> Option<f64> {
        match (sample.ttft_ms, sample.fate) {
            (Some(ttft), SampleOutcome::Served | SampleOutcome::Left) => Some(ttft),
            // A failure counts as the worst of both arms, so that failing fast is never an improvement.
            (_, SampleOutcome::Failed) => Some(self.worst_ttft_ms.max(sample.ttft_ms.unwrap_or(sample.e2e_ms))),
            (None, SampleOutcome::Left) => {
                self.left_after_long_wait(sample).then(|| self.worst_ttft_ms.max(sample.e2e_ms))
            }
            // An answer without any token: its end is the only time there is.
            (None, SampleOutcome::Served) => Some(sample.e2e_ms),
        }
    }

    /// E2E of a sample as if its answer had had the mean length, ms.
    fn e2e(&self, sample: &TuningSample) -> Option<f64> {
        match sample.fate {
            SampleOutcome::Failed => Some(self.worst_e2e_ms.max(sample.e2e_ms)),
            SampleOutcome::Left => None,
            SampleOutcome::Served => {
                let longer = sample.completion_tokens.map_or(0.0, |tokens| f64::from(tokens) - self.mean_tokens);
                // Cannot be shorter than the TTFT, and stays above 0 for the logarithm of the geometric mean.
                Some((sample.e2e_ms - longer * self.itl_ms).max(sample.ttft_ms.unwrap_or(0.0)).max(1e-3))
            }
        }
    }
}

/// Samples of one arm, as its statistics read them.
#[derive(Debug, Clone)]
pub struct ArmCohort<'a> {
    samples: &'a [&'a TuningSample],
    common: CohortBaseline,
}

/// Statistic with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IntervalEstimate {
    /// Value of the statistic.
    pub value: f64,
    /// Lower end; `None` with too few samples.
    pub low: Option<f64>,
    /// Upper end; `None` with too few samples.
    pub high: Option<f64>,
}

impl<'a> ArmCohort<'a> {
    /// Creates the cohort of one arm's samples.
    #[must_use]
    pub const fn new(samples: &'a [&'a TuningSample], common: CohortBaseline) -> Self {
        Self { samples, common }
    }

    /// Number of requests.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.samples.len()
    }

    /// Returns true if there are no requests.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Value of a statistic; 0 if no sample contributes to it.
    #[must_use]
    pub fn value(&self, statistic: Statistic) -> f64 {
        self.measure(statistic, None)
    }

    /// Value, and influence of each sample: centred, in the statistic's unit. The value's error is about the mean of
    /// the influences over a random draw of samples.
    #[must_use]
    pub fn influence(&self, statistic: Statistic) -> (f64, Vec<f64>) {
        let mut influence = vec![0.0; self.len()];
        let value = self.measure(statistic, Some(&mut influence));
        (value, influence)
    }

    /// Value with its 95 % interval.
    #[must_use]
    pub fn estimate(&self, statistic: Statistic) -> IntervalEstimate {
        // The density at a quantile is hard to estimate; order statistics need none, and give an asymmetric interval.
        if let Some(p) = statistic.quantile() {
            let mut sorted: Vec<f64> = self.column(statistic).into_iter().flatten().collect();
            sorted.sort_by(f64::total_cmp);
            return quantile_interval(&sorted, p);
        }
        let (value, influence) = self.influence(statistic);
        let n = count(influence.len());
        // A single sample has no spread.
        if n < 2.0 {
            return IntervalEstimate { value, low: None, high: None };
        }
        let variance = influence.iter().map(|one| one * one).sum::<f64>() / (n - 1.0) / n;
        let half = 1.96 * variance.sqrt();
        IntervalEstimate { value, low: Some(value - half), high: Some(value + half) }
    }

    /// Column of numbers that a mean or a quantile is computed over.
    fn column(&self, statistic: Statistic) -> Vec<Option<f64>> {
        let read = |sample: &&TuningSample| match statistic {
            Statistic::TtftMean | Statistic::TtftP50 | Statistic::TtftP95 | Statistic::TtftP99 => {
                self.common.ttft(sample)
            }
            Statistic::TtftGeometric => self.common.ttft(sample).map(|ttft| ttft.max(1e-3).ln()),
            Statistic::E2eMean | Statistic::E2eP50 | Statistic::E2eP95 | Statistic::E2eP99 => self.common.e2e(sample),
            Statistic::E2eGeometric => self.common.e2e(sample).map(|e2e| e2e.max(1e-3).ln()),
            Statistic::ItlMean | Statistic::ItlP99 => sample.itl_ms,
            Statistic::ErrorShare => Some(f64::from(u8::from(sample.fate == SampleOutcome::Failed))),
            _ => None,
        };
        self.samples.iter().map(read).collect()
    }

    fn measure(&self, statistic: Statistic, influence: Option<&mut Vec<f64>>) -> f64 {
        match statistic {
            Statistic::Requests => count(self.len()),
            Statistic::ShareMax | Statistic::Hhi => self.concentration(statistic, influence),
            Statistic::TokensPerSecond => self.tokens_per_second(influence),
            _ => match statistic.quantile() {
                Some(p) => quantile(&self.column(statistic), p, influence),
                None => {
                    let geometric = matches!(statistic, Statistic::TtftGeometric | Statistic::E2eGeometric);
                    mean(&self.column(statistic), geometric, influence)
                }
            },
        }
    }

    fn concentration(&self, statistic: Statistic, influence: Option<&mut Vec<f64>>) -> f64 {
        let replicas = self.common.replicas.max(1);
        let mut shares = vec![0.0; replicas];
        for sample in self.samples {
            if let Some(share) = shares.get_mut(usize::from(sample.replica)) {
                *share += 1.0 / count(self.len());
            }
        }
        // An id beyond the fleet has no share.
        let of = |sample: &TuningSample| shares.get(usize::from(sample.replica)).copied().unwrap_or(0.0);
        if statistic == Statistic::ShareMax {
            let most = shares.iter().copied().fold(0.0, f64::max);
            if let Some(influence) = influence {
                // Derivative of the largest share with respect to one sample's weight.
                for (out, sample) in influence.iter_mut().zip(self.samples) {
                    *out = f64::from(u8::from(of(sample) >= most)) - most;
                }
            }
            return most;
        }
        // A single replica has everything by necessity, and the denominator below would be 0.
        if replicas == 1 || self.is_empty() {
            return 0.0;
        }
        let squares: f64 = shares.iter().map(|share| share * share).sum();
        // Normalized so that an even spread is 0, whatever the size of the fleet.
        let even = 1.0 / count(replicas);
        if let Some(influence) = influence {
            for (out, sample) in influence.iter_mut().zip(self.samples) {
                // Derivative of the sum of squared shares with respect to one sample's weight.
                *out = 2.0 * (of(sample) - squares) / (1.0 - even);
            }
        }
        (squares - even) / (1.0 - even)
    }

    fn tokens_per_second(&self, influence: Option<&mut Vec<f64>>) -> f64 {
        let tokens = |sample: &TuningSample| f64::from(sample.completion_tokens.unwrap_or(0));
        // Failed requests count with their time but without tokens, so they lower the rate.
        let secs: f64 = self.samples.iter().map(|sample| sample.e2e_ms / 1e3).sum();
        if secs <= 0.0 {
            return 0.0;
        }
        let rate = self.samples.iter().map(|sample| tokens(sample)).sum::<f64>() / secs;
        // A ratio of two means, linearized (delta method).
        if let Some(influence) = influence {
            let mean_secs = secs / count(self.len());
            for (out, sample) in influence.iter_mut().zip(self.samples) {
                *out = (tokens(sample) - rate * sample.e2e_ms / 1e3) / mean_secs;
            }
        }
        rate
    }
}

fn mean(column: &[Option<f64>], geometric: bool, influence: Option<&mut Vec<f64>>) -> f64 {
    let known = count(column.iter().flatten().count());
    if known == 0.0 {
        return 0.0;
    }
    let mean = column.iter().flatten().sum::<f64>() / known;
    let value = if geometric { mean.exp() } else { mean };
    if let Some(influence) = influence {
        // Samples without a value influence nothing, so those with one influence more.
        let scale = count(column.len()) / known * if geometric { value } else { 1.0 };
        for (out, sample) in influence.iter_mut().zip(column) {
            *out = sample.map_or(0.0, |sample| (sample - mean) * scale);
        }
    }
    value
}

fn quantile(column: &[Option<f64>], p: f64, influence: Option<&mut Vec<f64>>) -> f64 {
    let mut sorted: Vec<f64> = column.iter().copied().flatten().collect();
    if sorted.is_empty() {
        return 0.0;
    }
    sorted.sort_by(f64::total_cmp);
    let value = sorted[nearest_rank(p, sorted.len())];
    if let Some(influence) = influence {
        // Density at the quantile from the spacing around it, in logarithms, because tails are straighter there.
        // A window around `p` that stays inside the distribution, also at the 99th percentile.
        let reach = 0.8 * (1.0 - p).min(p).min(0.25);
        let (low, high) =
            (sorted[nearest_rank(p - reach, sorted.len())], sorted[nearest_rank(p + reach, sorted.len())]);
        let spread = (high.max(1e-6).ln() - low.max(1e-6).ln()).max(1e-3);
        let unit = value.max(1e-6) * spread / (2.0 * reach) * count(column.len()) / count(sorted.len());
        // The actual share above, not the nominal one: with many equal times the two differ.
        let above = count(sorted.iter().filter(|sample| **sample > value).count()) / count(sorted.len());
        for (out, sample) in influence.iter_mut().zip(column) {
            *out = sample.map_or(0.0, |sample| (f64::from(u8::from(sample > value)) - above) * unit);
        }
    }
    value
}

/// Value and order-statistic interval: the ranks within 1.96 standard deviations of the binomial distribution.
fn quantile_interval(sorted: &[f64], p: f64) -> IntervalEstimate {
    if sorted.is_empty() {
        return IntervalEstimate { value: 0.0, low: None, high: None };
    }
    let n = count(sorted.len());
    let reach = 1.96 * (n * p * (1.0 - p)).sqrt();
    // Ranks beyond the sample mean that it is too small for an interval at this quantile.
    let at =
        |position: f64| (position >= 1.0 && position <= n).then(|| sorted[nearest_rank(position / n, sorted.len())]);
    IntervalEstimate {
        value: sorted[nearest_rank(p, sorted.len())],
        low: at((n * p - reach).floor()),
        high: at((n * p + reach).ceil() + 1.0),
    }
}

#[expect(clippy::cast_precision_loss, reason = "cohorts are a few thousand samples")]
pub(super) fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(ttft: f64, e2e: f64, tokens: u32, replica: u16) -> TuningSample {
        TuningSample {
            ttft_ms: Some(ttft),
            e2e_ms: e2e,
            itl_ms: Some(10.0),
            prompt_tokens: None,
            completion_tokens: Some(tokens),
            replica,
            size: 0.0,
            fate: SampleOutcome::Served,
        }
    }

    fn value(samples: &[TuningSample], statistic: Statistic) -> f64 {
        let all: Vec<&TuningSample> = samples.iter().collect();
        ArmCohort::new(&all, CohortBaseline::from_samples(&all, 2)).value(statistic)
    }

    #[test]
    fn tune_quantiles_are_by_nearest_rank_with_order_statistic_intervals() {
        let samples: Vec<TuningSample> = (1..=100).map(|ms| served(f64::from(ms), 1_000.0, 10, 0)).collect();
        assert_eq!(value(&samples, Statistic::TtftP50), 50.0);
        assert_eq!(value(&samples, Statistic::TtftP95), 95.0);
        assert_eq!(value(&samples, Statistic::TtftP99), 99.0);
        let all: Vec<&TuningSample> = samples.iter().collect();
        let cohort = ArmCohort::new(&all, CohortBaseline::from_samples(&all, 2));
        let p95 = cohort.estimate(Statistic::TtftP95);
        assert_eq!((p95.low, p95.high), (Some(90.0), None), "rank 101 would be the upper end");
        let p99 = cohort.estimate(Statistic::TtftP99);
        assert_eq!(p99.high, None, "100 samples bound no 99th percentile from above");
    }

    #[test]
    fn tune_a_failure_is_the_worst_sample_and_never_a_missing_one() {
        let mut samples: Vec<TuningSample> = (0..9).map(|_| served(100.0, 500.0, 10, 0)).collect();
        samples.push(served(900.0, 2_000.0, 10, 1));
        let healthy = value(&samples, Statistic::TtftMean);
        samples.push(TuningSample { ttft_ms: None, e2e_ms: 3.0, fate: SampleOutcome::Failed, ..samples[0] });
        assert!(value(&samples, Statistic::TtftMean) > healthy, "failing at once is not fast");
        assert_eq!(value(&samples, Statistic::TtftP99), 900.0);
        assert!((value(&samples, Statistic::ErrorShare) - 1.0 / 11.0).abs() < 1e-12);
        let hung = TuningSample::overdue(60_000.0, 0, 0.0);
        samples.push(hung);
        assert_eq!(value(&samples, Statistic::TtftP99), 60_000.0);
    }

    #[test]
    fn tune_a_client_that_left_early_says_nothing_and_late_says_bad() {
        let mut samples: Vec<TuningSample> = (0..10).map(|_| served(100.0, 500.0, 10, 0)).collect();
        let before = value(&samples, Statistic::TtftMean);
        samples.push(TuningSample { ttft_ms: None, e2e_ms: 1.0, fate: SampleOutcome::Left, ..samples[0] });
        assert_eq!(value(&samples, Statistic::TtftMean), before);
        samples.push(TuningSample { ttft_ms: None, e2e_ms: 5_000.0, fate: SampleOutcome::Left, ..samples[0] });
        assert!(value(&samples, Statistic::TtftMean) > before);
    }

    #[test]
    fn tune_answer_length_does_not_move_e2e() {
        let short: Vec<TuningSample> = (0..20).map(|_| served(100.0, 100.0 + 10.0 * 10.0, 10, 0)).collect();
        let long: Vec<TuningSample> = (0..20).map(|_| served(100.0, 100.0 + 10.0 * 500.0, 500, 0)).collect();
        let both: Vec<&TuningSample> = short.iter().chain(&long).collect();
        let common = CohortBaseline::from_samples(&both, 1);
        let of = |samples: &[TuningSample]| {
            let all: Vec<&TuningSample> = samples.iter().collect();
            ArmCohort::new(&all, common).value(Statistic::E2eMean)
        };
        assert!((of(&short) - of(&long)).abs() < 1e-9);
    }

    #[test]
    fn tune_concentration_is_zero_when_even_and_one_when_all_is_in_one_place() {
        let even: Vec<TuningSample> = (0..10).map(|k| served(1.0, 1.0, 1, k % 2)).collect();
        assert!(value(&even, Statistic::Hhi).abs() < 1e-12);
        assert!((value(&even, Statistic::ShareMax) - 0.5).abs() < 1e-12);
        let one: Vec<TuningSample> = (0..10).map(|_| served(1.0, 1.0, 1, 1)).collect();
        assert!((value(&one, Statistic::Hhi) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn tune_influences_are_centred() {
        let samples: Vec<TuningSample> =
            (1..=200).map(|ms| served(f64::from(ms), 1e3 + f64::from(ms * 37 % 211), 1, 0)).collect();
        let all: Vec<&TuningSample> = samples.iter().collect();
        let cohort = ArmCohort::new(&all, CohortBaseline::from_samples(&all, 2));
        for statistic in Statistic::ALL {
            let (value, influence) = cohort.influence(statistic);
            let mean = influence.iter().sum::<f64>() / 200.0;
            let size = influence.iter().map(|one| one.abs()).fold(1e-9, f64::max);
            assert!(mean.abs() <= 0.01 * size + 1e-9, "{}: {mean} of {value}", statistic.name());
        }
    }
}
