//! The two models, their constants with intervals, and how well they hold where they were not fitted.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::load::{Load, computed, loads};
use super::regression::{COLUMNS, Design, median, theil_sen};
use super::{Measurements, Observation};
use gorgo_routing::model::quantile;

/// Rounds of reweighting for the fit itself; it moves less than a thousandth after ten.
const ROUNDS: usize = 20;
/// Rounds for each resample, which starts at the fit.
const RESAMPLE_ROUNDS: usize = 4;
/// Resamples behind an interval.
const RESAMPLES: usize = 200;
/// Consecutive rows that are resampled together, since neighbours share their load.
const BLOCK_ROWS: usize = 50;
/// Prompts below this are told apart in errors, tokens: probes, which say nothing of prefill.
const SHORT_TOKENS: f64 = 100.0;
/// Answers below this are too short to tell the time between tokens by.
const LEAST_OUTPUT: f64 = 8.0;
/// Rows a model needs for each of its constants.
const ROWS_PER_CONSTANT: usize = 20;
/// Points of a Theil–Sen slope lie so many tokens apart at least.
const SLOPE_APART_TOKENS: f64 = 500.0;

/// A fitted constant, ms per unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Constant {
    /// Its name.
    pub name: String,
    /// What it is multiplied by: empty for a time, else what ms are counted per.
    pub per: &'static str,
    /// Its value.
    pub value: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// How well a model fits a set of rows. All `None` of no rows.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Quality {
    /// Rows.
    pub rows: usize,
    /// Median of |ln(measured / predicted)|.
    pub median_log_error: Option<f64>,
    /// Mean of it.
    pub mean_log_error: Option<f64>,
    /// Share of the variance explained, on the plain scale; below 0 where the mean would have been nearer.
    pub r_squared: Option<f64>,
    /// Median of |measured − predicted|, ms.
    pub median_error_ms: Option<f64>,
    /// Median of |measured − predicted| / measured.
    pub median_error_share: Option<f64>,
    /// Median of what was measured, ms.
    pub measured_p50_ms: Option<f64>,
    /// Median of what the model says of the same rows, ms.
    pub predicted_p50_ms: Option<f64>,
    /// 95th percentile of what was measured, ms; nearest rank, as everywhere.
    pub measured_p95_ms: Option<f64>,
    /// The same of what the model says, ms.
    pub predicted_p95_ms: Option<f64>,
}

/// How well a model fits one run, which is one policy's replay of a window.
#[derive(Debug, Clone, PartialEq)]
pub struct RunQuality {
    /// Its name.
    pub run: String,
    /// On its rows that the model was fitted on.
    pub fitted: Quality,
    /// On its rows that were held out.
    pub held_out: Quality,
}

/// A model with its constants and its errors.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// Its constants.
    pub constants: Vec<Constant>,
    /// On the rows it was fitted on.
    pub fitted: Quality,
    /// Of these, on prompts of 100 tokens and more.
    pub fitted_long: Quality,
    /// On the other half of the same runs' rows, which it was not fitted on.
    pub other_rows: Quality,
    /// On the runs (or the stretch of time) held out whole.
    pub held_out: Quality,
    /// Of these, on prompts of 100 tokens and more.
    pub held_out_long: Quality,
    /// The same run by run, in the measurements' order.
    pub runs: Vec<RunQuality>,
}

impl Fitted {
    /// The constant of that name.
    #[must_use]
    pub fn constant(&self, name: &str) -> Option<&Constant> {
        self.constants.iter().find(|constant| constant.name == name)
    }
}

/// A second opinion on the prefill: median of slopes, of requests with nothing ahead of them.
#[derive(Debug, Clone, PartialEq)]
pub struct TheilSen {
    /// Of which replica; all together where rows name none.
    pub replica: String,
    /// Requests behind it.
    pub rows: usize,
    /// ms per uncached token; `None` where there are too few.
    pub prefill_ms_per_token: Option<f64>,
}

/// What is kept from the fit to test it on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HoldOut {
    /// The last run; the last third of the time where there is only one.
    #[default]
    Last,
    /// Runs whose name contains one of these.
    Named(Vec<String>),
    /// The last third of each run's rows: traffic that the fit has not seen, of runs that it has.
    LastThirdOfEach,
}

/// The fitted constants.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// Time to first token: an offset per replica, `prefill`, `ahead-tokens`, `ahead-requests`, and where the cache is
    /// known `prompt`, what a token costs cached or not (upload, tokenizer, prefixes believed cached that were not).
    /// `None` with too few rows.
    pub first_token: Option<Fitted>,
    /// Time between tokens: `step`, `batch`, `prefills`, `prefilled-tokens`. `None` with too few rows.
    pub between_tokens: Option<Fitted>,
    /// The prefill by other means.
    pub theil_sen: Vec<TheilSen>,
    /// Median round trip per replica, ms, where measured apart: an offset less this is the fixed part.
    pub rtt_ms: Vec<Option<f64>>,
    /// Whether the tokens are those computed; else nothing was known of the cache, and they are the whole prompts.
    pub knows_cache: bool,
    /// What was held out, in words.
    pub held_out: String,
}

/// Where a row is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
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
    // A replica that no row to fit on names has no offset; its rows are left out.
    let names_it = |replica: usize| {
        let mut fitted = rows.iter().zip(&parts).filter(|(_, part)| **part == Part::Fit);
        fitted.any(|(row, _)| row.replica == Some(replica))
    };
    let used: Vec<usize> =
        (0..measurements.replicas.len()).filter(|replica| names_it(*replica)).take(COLUMNS - 5).collect();

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
            values.extend([computed(row), load.ahead_tokens, load.ahead]);
            if knows_cache {
                values.push(row.prompt_tokens);
            }
            Some((values, row.ttft_ms))
        })
    };
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

/// Half of all positions, in no pattern: every second one would be one replica's where requests take turns.
const fn is_even(position: usize) -> bool {
    position.wrapping_mul(0x9E37_79B9) & 0x80_0000 == 0
}

fn parts(measurements: &Measurements, hold_out: &HoldOut) -> (Vec<Part>, String) {
    let rows = &measurements.observations;
    let runs = &measurements.runs;
    let held: Vec<bool> = match hold_out {
        HoldOut::Named(names) => runs.iter().map(|run| names.iter().any(|name| run.contains(name.as_str()))).collect(),
        HoldOut::Last => (1..=runs.len()).map(|number| number == runs.len() && number > 1).collect(),
        HoldOut::LastThirdOfEach => vec![false; runs.len()],
    };
    // Held out by time, where no whole run is.
    let by_time = !held.contains(&true);
    let mut parts = Vec::with_capacity(rows.len());
    for run in rows.chunk_by(|a, b| a.run == b.run) {
        let from = run.len() - run.len() / 3;
        for (position, row) in run.iter().enumerate() {
            let whole = held.get(row.run) == Some(&true) || (by_time && position >= from);
            parts.push(match (whole, is_even(parts.len())) {
                (true, _) => Part::HeldOut,
                (false, true) => Part::Fit,
                (false, false) => Part::OtherRows,
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

/// Fits one model; `values` gives a row's numbers and what they should add up to, or leaves it out.
fn model(
    names: &[(String, &'static str)],
    measurements: &Measurements,
    loads: &[Load],
    parts: &[Part],
    seed: u64,
    values: impl Fn(&Observation, &Load) -> Option<(Vec<f64>, f64)>,
) -> Option<Fitted> {
    let select = |wanted: Part, least_tokens: f64, run: Option<usize>| {
        let mut design = Design::new(names.len());
        for ((row, load), part) in measurements.observations.iter().zip(loads).zip(parts) {
            let is_wanted =
                *part == wanted && row.prompt_tokens >= least_tokens && run.is_none_or(|run| row.run == run);
            if let Some((values, target)) = is_wanted.then(|| values(row, load)).flatten() {
                design.push(&values, target);
            }
        }
        design
    };
    let design = select(Part::Fit, 0.0, None);
    if design.rows() < names.len() * ROWS_PER_CONSTANT {
        return None;
    }
    let coefficients = design.fit(&vec![1.0; design.rows()], None, ROUNDS);
    let intervals = intervals(&design, &coefficients, seed);
    let constants = names
        .iter()
        .zip(&coefficients)
        .zip(intervals)
        .map(|(((name, per), value), (low, high))| Constant { name: name.clone(), per, value: *value, low, high });
    let quality = |part, least| Quality::of(&select(part, least, None), &coefficients);
    let of_run = |(run, name): (usize, &String)| RunQuality {
        run: name.clone(),
        fitted: Quality::of(&select(Part::Fit, 0.0, Some(run)), &coefficients),
        held_out: Quality::of(&select(Part::HeldOut, 0.0, Some(run)), &coefficients),
    };
    Some(Fitted {
        constants: constants.collect(),
        fitted: Quality::of(&design, &coefficients),
        fitted_long: quality(Part::Fit, SHORT_TOKENS),
        other_rows: quality(Part::OtherRows, 0.0),
        held_out: quality(Part::HeldOut, 0.0),
        held_out_long: quality(Part::HeldOut, SHORT_TOKENS),
        runs: measurements.runs.iter().enumerate().map(of_run).collect(),
    })
}

/// 2.5th and 97.5th percentile of each coefficient over resamples of blocks of consecutive rows.
fn intervals(design: &Design, coefficients: &[f64], seed: u64) -> Vec<(f64, f64)> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let blocks = design.rows().div_ceil(BLOCK_ROWS);
    let mut found: Vec<Vec<f64>> = vec![Vec::with_capacity(RESAMPLES); coefficients.len()];
    for _ in 0..RESAMPLES {
        let mut counts = vec![0.0; design.rows()];
        for _ in 0..blocks {
            let start = random.random_range(0..blocks) * BLOCK_ROWS;
            for count in counts.iter_mut().skip(start).take(BLOCK_ROWS) {
                *count += 1.0;
            }
        }
        let resampled = design.fit(&counts, Some(coefficients), RESAMPLE_ROUNDS);
        for (values, value) in found.iter_mut().zip(resampled) {
            values.push(value);
        }
    }
    let ends = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        let beyond = values.len() / 40;
        (values[beyond], values[values.len() - 1 - beyond])
    };
    found.into_iter().map(ends).collect()
}

impl Quality {
    fn of(design: &Design, coefficients: &[f64]) -> Self {
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

/// Slopes of the time to first token over the uncached tokens, of requests with nothing ahead of them.
fn slopes(measurements: &Measurements, loads: &[Load], used: &[usize], seed: u64) -> Vec<TheilSen> {
    let points = |replica: Option<usize>| -> Vec<(f64, f64)> {
        let rows = measurements.observations.iter().zip(loads);
        rows.filter(|(row, load)| row.replica == replica && load.ahead <= 0.0)
            .map(|(row, _)| (computed(row), row.ttft_ms))
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
