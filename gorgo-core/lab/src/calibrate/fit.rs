//! The two models, their constants with intervals, and their errors on rows that they were not fitted on.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::load::{ConcurrentLoad, computed_tokens, loads};
use super::regression::{COLUMNS, DesignMatrix, median, theil_sen};
use super::{MeasuredRequest, Measurements};
use gorgo_routing::model::quantile;

/// Rounds of reweighting for the fit itself; coefficients change by less than a thousandth after ten.
const ROUNDS: usize = 20;
/// Rounds for each resample, which starts from the fit.
const RESAMPLE_ROUNDS: usize = 4;
/// Number of resamples per interval.
const RESAMPLES: usize = 200;
/// Consecutive rows that are resampled together, since requests close in time share their load.
const BLOCK_ROWS: usize = 50;
/// Shortest prompt that counts as long in the reported errors, tokens; shorter ones are probes, which reveal nothing
/// about prefill.
const SHORT_TOKENS: f64 = 100.0;
/// Shortest answer from which the time between tokens can be measured, tokens.
const LEAST_OUTPUT: f64 = 8.0;
/// Rows that a model needs for each of its constants.
const ROWS_PER_CONSTANT: usize = 20;
/// Smallest distance between two points of a Theil–Sen slope, tokens.
const SLOPE_APART_TOKENS: f64 = 500.0;

/// A fitted constant, ms per unit.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedConstant {
    /// Name of the constant.
    pub name: String,
    /// Unit that the constant is per (`token`, `request`): empty for a plain time.
    pub per: &'static str,
    /// Fitted value.
    pub value: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
}

/// Errors of a model on a set of rows. All `None` if there are no rows.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FitQuality {
    /// Number of rows.
    pub rows: usize,
    /// Median of |ln(measured / predicted)|.
    pub median_log_error: Option<f64>,
    /// Mean of |ln(measured / predicted)|.
    pub mean_log_error: Option<f64>,
    /// Share of the variance explained, on the linear scale; below 0 if the mean would have been a better prediction.
    pub r_squared: Option<f64>,
    /// Median of |measured − predicted|, ms.
    pub median_error_ms: Option<f64>,
    /// Median of |measured − predicted| / measured.
    pub median_error_share: Option<f64>,
    /// Median of the measured values, ms.
    pub measured_p50_ms: Option<f64>,
    /// Median of the model's predictions for the same rows, ms.
    pub predicted_p50_ms: Option<f64>,
    /// 95th percentile of the measured values, ms; nearest rank, as everywhere.
    pub measured_p95_ms: Option<f64>,
    /// 95th percentile of the model's predictions, ms.
    pub predicted_p95_ms: Option<f64>,
}

/// Errors of a model on one run, which is one policy's replay of a window.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFitQuality {
    /// Name of the run.
    pub run: String,
    /// Errors on the rows of the run that the model was fitted on.
    pub fitted: FitQuality,
    /// Errors on the rows of the run that were held out.
    pub held_out: FitQuality,
}

/// A fitted model with its constants and errors.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedModel {
    /// Constants of the model.
    pub constants: Vec<FittedConstant>,
    /// Errors on the rows it was fitted on.
    pub fitted: FitQuality,
    /// Errors on those of these rows with prompts of 100 tokens or more.
    pub fitted_long: FitQuality,
    /// Errors on the other half of the rows of the same runs, which it was not fitted on.
    pub other_rows: FitQuality,
    /// Errors on the runs (or the period) that were held out entirely.
    pub held_out: FitQuality,
    /// Errors on those of these rows with prompts of 100 tokens or more.
    pub held_out_long: FitQuality,
    /// Errors by run, in the order of the measurements.
    pub runs: Vec<RunFitQuality>,
}

impl FittedModel {
    /// Finds a constant by name.
    #[must_use]
    pub fn constant(&self, name: &str) -> Option<&FittedConstant> {
        self.constants.iter().find(|constant| constant.name == name)
    }
}

/// Second estimate of the prefill, for comparison: median of slopes over requests with nothing ahead of them.
#[derive(Debug, Clone, PartialEq)]
pub struct TheilSen {
    /// Name of the replica; `all` if rows name none.
    pub replica: String,
    /// Number of requests.
    pub rows: usize,
    /// Prefill time, ms per uncached token; `None` if there are too few requests.
    pub prefill_ms_per_token: Option<f64>,
}

/// Rows that are kept from the fit in order to test it on them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HoldOut {
    /// The last run; the last third of the time if there is only one.
    #[default]
    Last,
    /// Runs whose name contains one of these strings.
    Named(Vec<String>),
    /// The last third of the rows of each run: unseen traffic of runs that the fit has seen.
    LastThirdOfEach,
}

/// Result of a calibration: the fitted models.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// Time to first token: an offset per replica, `prefill`, `ahead-tokens`, `ahead-requests`, and if the cache is
    /// known `prompt`, the cost of a token whether cached or not (upload, tokenizer, prefixes wrongly believed cached).
    /// `None` if there are too few rows.
    pub first_token: Option<FittedModel>,
    /// Time between tokens: `step`, `batch`, `prefills`, `prefilled-tokens`. `None` if there are too few rows.
    pub between_tokens: Option<FittedModel>,
    /// Prefill estimated by another method.
    pub theil_sen: Vec<TheilSen>,
    /// Median round trip per replica, ms, if measured separately: the offset minus this is the fixed part.
    pub rtt_ms: Vec<Option<f64>>,
    /// Token counts are those of computed tokens. If false, nothing was known of the cache, and they are whole prompts.
    pub knows_cache: bool,
    /// Description of what was held out.
    pub held_out: String,
}

/// Purpose that a row is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowPartition {
    Fit,
    OtherRows,
    HeldOut,
}

/// Fits both models. Rows must be sorted ([`Measurements::sort`]); equal seeds give equal intervals.
#[must_use]
pub fn calibrate(measurements: &Measurements, hold_out: &HoldOut, seed: u64) -> Calibration {
    let loads = loads(measurements);
    let rows = &measurements.observations;
    let (parts, held_out) = parts(measurements, hold_out);
    let knows_cache = rows.iter().any(|row| row.uncached_tokens.is_some());
    // A replica without any row to fit on gets no offset, and its rows are left out.
    let names_it = |replica: usize| {
        let mut fitted = rows.iter().zip(&parts).filter(|(_, part)| **part == RowPartition::Fit);
        fitted.any(|(row, _)| row.replica == Some(replica))
    };
    let used: Vec<usize> =
        // The five other columns: `prefill`, `ahead-tokens`, `ahead-requests`, `prompt`, and one spare.
        (0..measurements.replicas.len()).filter(|replica| names_it(*replica)).take(COLUMNS - 5).collect();

    // Model 1, time to first token. Each replica's offset is a column that is 1 in its own rows and 0 in the others.
    let first_token = {
        let mut names: Vec<(String, &'static str)> =
            used.iter().map(|replica| (format!("offset {}", measurements.replicas[*replica]), "")).collect();
        if names.is_empty() {
            names.push(("offset".to_owned(), ""));
        }
        let offsets = names.len();
        names.push(("prefill".to_owned(), "token"));
        names.push(("ahead-tokens".to_owned(), "token"));
        names.push(("ahead-requests".to_owned(), "request"));
        if knows_cache {
            names.push(("prompt".to_owned(), "token"));
        }
        model(&names, measurements, &loads, &parts, seed, |row, load| {
            let mut values = vec![0.0; offsets];
            let column = row.replica.map_or(Some(0), |replica| used.iter().position(|known| *known == replica))?;
            *values.get_mut(column)? = 1.0;
            values.extend([computed_tokens(row), load.tokens_ahead, load.requests_ahead]);
            if knows_cache {
                values.push(row.prompt_tokens);
            }
            Some((values, row.ttft_ms))
        })
    };
    // Model 2, time between tokens. Prefills in between are divided by the gaps they are spread over.
    let between_tokens = {
        let names = [("step", ""), ("batch", "request"), ("prefills", "prefill"), ("prefilled-tokens", "token")]
            .map(|(name, per)| (name.to_owned(), per));
        model(&names, measurements, &loads, &parts, seed, |row, load| {
            let tokens = row.output_tokens - 1.0;
            let gap = (row.e2e_ms - row.ttft_ms) / tokens;
            (row.output_tokens >= LEAST_OUTPUT && gap > 0.0)
                .then(|| (vec![1.0, load.batch, load.prefills / tokens, load.prefilled_tokens / tokens], gap))
        })
    };
    Calibration {
        first_token,
        between_tokens,
        theil_sen: slopes(measurements, &loads, &used, seed),
        rtt_ms: (0..measurements.replicas.len())
            .map(|replica| {
                let own = rows.iter().filter(|row| row.replica == Some(replica));
                median(own.filter_map(|row| row.rtt_ms).collect())
            })
            .collect(),
        knows_cache,
        held_out,
    }
}

/// Selects half of all positions without a pattern: with round-robin routing, every second row could belong to one
/// replica.
const fn is_even(position: usize) -> bool {
    position.wrapping_mul(0x9E37_79B9) & 0x80_0000 == 0
}

fn parts(measurements: &Measurements, hold_out: &HoldOut) -> (Vec<RowPartition>, String) {
    let rows = &measurements.observations;
    let runs = &measurements.runs;
    let held: Vec<bool> = match hold_out {
        HoldOut::Named(names) => runs.iter().map(|run| names.iter().any(|name| run.contains(name.as_str()))).collect(),
        HoldOut::Last => (1..=runs.len()).map(|number| number == runs.len() && number > 1).collect(),
        HoldOut::LastThirdOfEach => vec![false; runs.len()],
    };
    // If no whole run is held out, the last third of each is.
    let by_time = !held.contains(&true);
    let mut parts = Vec::with_capacity(rows.len());
    for run in rows.chunk_by(|a, b| a.run == b.run) {
        let from = run.len() - run.len() / 3;
        for (position, row) in run.iter().enumerate() {
            let whole = held.get(row.run) == Some(&true) || (by_time && position >= from);
            parts.push(match (whole, is_even(parts.len())) {
                (true, _) => RowPartition::HeldOut,
                (false, true) => RowPartition::Fit,
                (false, false) => RowPartition::OtherRows,
            });
        }
    }
    let names: Vec<&str> = runs.iter().zip(&held).filter(|(_, held)| **held).map(|(run, _)| run.as_str()).collect();
    let words = match (by_time, runs.len()) {
        (false, _) => names.join(", "),
        (true, ..=1) => "the last third of the time".to_owned(),
        (true, _) => "the last third of each run".to_owned(),
    };
    (parts, words)
}

/// Fits one model. `values` returns the regressors and the target of a row, or `None` to leave the row out.
fn model(
    names: &[(String, &'static str)],
    measurements: &Measurements,
    loads: &[ConcurrentLoad],
    parts: &[RowPartition],
    seed: u64,
    values: impl Fn(&MeasuredRequest, &ConcurrentLoad) -> Option<(Vec<f64>, f64)>,
) -> Option<FittedModel> {
    let select = |wanted: RowPartition, least_tokens: f64, run: Option<usize>| {
        let mut design = DesignMatrix::new(names.len());
        for ((row, load), part) in measurements.observations.iter().zip(loads).zip(parts) {
            let is_wanted =
                *part == wanted && row.prompt_tokens >= least_tokens && run.is_none_or(|run| row.run == run);
            if let Some((values, target)) = is_wanted.then(|| values(row, load)).flatten() {
                design.push(&values, target);
            }
        }
        design
    };
    let design = select(RowPartition::Fit, 0.0, None);
    if design.rows() < names.len() * ROWS_PER_CONSTANT {
        return None;
    }
    let coefficients = design.fit(&vec![1.0; design.rows()], None, ROUNDS);
    let intervals = intervals(&design, &coefficients, seed);
    let constants = names.iter().zip(&coefficients).zip(intervals).map(|(((name, per), value), (low, high))| {
        FittedConstant { name: name.clone(), per, value: *value, low, high }
    });
    let quality = |part, least| FitQuality::evaluate(&select(part, least, None), &coefficients);
    let of_run = |(run, name): (usize, &String)| RunFitQuality {
        run: name.clone(),
        fitted: FitQuality::evaluate(&select(RowPartition::Fit, 0.0, Some(run)), &coefficients),
        held_out: FitQuality::evaluate(&select(RowPartition::HeldOut, 0.0, Some(run)), &coefficients),
    };
    Some(FittedModel {
        constants: constants.collect(),
        fitted: FitQuality::evaluate(&design, &coefficients),
        fitted_long: quality(RowPartition::Fit, SHORT_TOKENS),
        other_rows: quality(RowPartition::OtherRows, 0.0),
        held_out: quality(RowPartition::HeldOut, 0.0),
        held_out_long: quality(RowPartition::HeldOut, SHORT_TOKENS),
        runs: measurements.runs.iter().enumerate().map(of_run).collect(),
    })
}

/// Returns the 2.5th and 97.5th percentiles of each coefficient over resamples of blocks of consecutive rows.
fn intervals(design: &DesignMatrix, coefficients: &[f64], seed: u64) -> Vec<(f64, f64)> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let blocks = design.rows().div_ceil(BLOCK_ROWS);
    let mut found: Vec<Vec<f64>> = vec![Vec::with_capacity(RESAMPLES); coefficients.len()];
    for _ in 0..RESAMPLES {
        // A resample is the same rows with other counts, so nothing is copied.
        let mut counts = vec![0.0; design.rows()];
        for _ in 0..blocks {
            let start = random.random_range(0..blocks) * BLOCK_ROWS;
            for count in counts.iter_mut().skip(start).take(BLOCK_ROWS) {
                *count += 1.0;
            }
        }
        // Starting from the fit makes a few rounds enough.
        let resampled = design.fit(&counts, Some(coefficients), RESAMPLE_ROUNDS);
        for (values, value) in found.iter_mut().zip(resampled) {
            values.push(value);
        }
    }
    let ends = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        // 1/40 = 2.5 % on each side.
        let beyond = values.len() / 40;
        (values[beyond], values[values.len() - 1 - beyond])
    };
    found.into_iter().map(ends).collect()
}

impl FitQuality {
    fn evaluate(design: &DesignMatrix, coefficients: &[f64]) -> Self {
        let rows = design.rows();
        let Some(count) = u32::try_from(rows).ok().filter(|count| *count > 0).map(f64::from) else {
            return Self::default();
        };
        let targets = design.targets();
        let middle = targets.iter().sum::<f64>() / count;
        let predicted: Vec<f64> = design.predicted(coefficients).collect();
        let mut errors = Vec::with_capacity(rows);
        let (mut left, mut all) = (0.0, 0.0);
        for (value, target) in predicted.iter().zip(targets) {
            // A linear model can predict 0 or less, which has no logarithm: both sides are at least 1 µs.
            errors.push((target.max(1e-3) / value.max(1e-3)).ln().abs());
            left += (target - value).powi(2);
            all += (target - middle).powi(2);
        }
        let sorted = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values
        };
        let (measured, computed) = (sorted(targets.to_vec()), sorted(predicted.clone()));
        let off = || predicted.iter().zip(targets).map(|(value, target)| (target - value).abs());
        Self {
            rows,
            median_error_ms: median(off().collect()),
            median_error_share: median(off().zip(targets).map(|(off, target)| off / target.max(1e-3)).collect()),
            measured_p50_ms: quantile(&measured, 0.50),
            predicted_p50_ms: quantile(&computed, 0.50),
            measured_p95_ms: quantile(&measured, 0.95),
            predicted_p95_ms: quantile(&computed, 0.95),
            mean_log_error: Some(errors.iter().sum::<f64>() / count),
            median_log_error: median(errors),
            r_squared: (all > 0.0).then(|| 1.0 - left / all),
        }
    }
}

/// Estimates the slope of the time to first token over the uncached tokens, from requests with nothing ahead of them.
fn slopes(measurements: &Measurements, loads: &[ConcurrentLoad], used: &[usize], seed: u64) -> Vec<TheilSen> {
    let points = |replica: Option<usize>| -> Vec<(f64, f64)> {
        let rows = measurements.observations.iter().zip(loads);
        rows.filter(|(row, load)| row.replica == replica && load.requests_ahead <= 0.0)
            .map(|(row, _)| (computed_tokens(row), row.ttft_ms))
            .collect()
    };
    let slope = |replica: String, points: Vec<(f64, f64)>| TheilSen {
        replica,
        rows: points.len(),
        prefill_ms_per_token: theil_sen(&points, SLOPE_APART_TOKENS, seed),
    };
    if used.is_empty() {
        return vec![slope("all".to_owned(), points(None))];
    }
    used.iter().map(|replica| slope(measurements.replicas[*replica].clone(), points(Some(*replica)))).collect()
}
