//! `gorgo calibrate`: fits the constants of an engine to measurements, and reports how well they predict other
//! requests.
//!
//! Exit code: 0 fitted, 1 too few requests to fit anything or an engine that does not answer, 2 a command line or file
//! that cannot be used, 74 a history database that cannot be used.

mod ask;

use std::io::{self, Write as _};
use std::path::PathBuf;

use comfy_table::{CellAlignment, Table, presets};
use gorgo_lab::calibrate::{
    Calibration, FitQuality, FittedConstant, FittedModel, HoldOut, MeasuredRequest, Measurements, RunFitQuality,
    TableError, calibrate, decisions, measured,
};
use gorgo_lab::sim::EngineProfile;
use gorgo_routing::model::UnixMicros;
use gorgo_store::{StoreError, StoredRequest};
use jiff::Timestamp;
use serde_json::{Value, json};

use self::ask::MeasureArgs;
use super::trace::stored_requests;
use crate::cmd::CliCommand;
use crate::engine_settings;
use crate::exit::CommandExit;
use crate::report::json::number;
use crate::report::number::{count, millis};
use crate::runtime::clock;

/// Arguments of `gorgo calibrate`.
#[derive(Debug, Clone, clap::Args)]
#[command(group(clap::ArgGroup::new("source").required(true).args(["from_db", "decisions", "measured", "engine"])))]
pub(crate) struct CalibrateArgs {
    /// History database of a router
    #[arg(long, value_name = "FILE")]
    from_db: Option<PathBuf>,
    /// CSV of routing decisions with each replica's cached tokens
    #[arg(long, value_name = "FILE")]
    decisions: Option<PathBuf>,
    /// CSV of a client's measurements, without replicas and cache: for TTFT only a slope over whole prompts can be
    /// fitted
    #[arg(long, value_name = "FILE")]
    measured: Option<PathBuf>,
    #[command(flatten)]
    ask: MeasureArgs,
    /// Replicas that shared the load of --measured
    #[arg(long, value_name = "N", default_value_t = 3)]
    replicas: u32,
    /// With --from-db: use requests at or after this time, such as 2026-04-05T16:15:00Z
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
    /// With --from-db: use requests before this time
    #[arg(long, value_name = "TIME")]
    to: Option<Timestamp>,
    /// Runs to test on and not to fit on: all with this in their name (repeatable) [default: the last]
    #[arg(long, value_name = "NAME")]
    hold_out: Vec<String>,
    /// Test on the last third of each run, instead of whole runs
    #[arg(long, conflicts_with = "hold_out")]
    hold_out_last_third: bool,
    /// Profile of the simulated engine to compare with
    #[arg(long, value_name = "NAME", default_value = "l40s-qwen3.5-35b")]
    profile: String,
    /// Seed of the intervals' resampling
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Error: nothing was fitted.
#[derive(Debug, thiserror::Error)]
enum CalibrateError {
    #[error("{}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error("{}: {cause}", path.display())]
    Table { path: PathBuf, cause: TableError },
    #[error("unknown profile {name:?}; known: {known}")]
    Profile { name: String, known: String },
    #[error("--hold-out {0}: no run has this in its name; runs: {1}")]
    HoldOut(String, String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot start worker threads: {0}")]
    Runtime(io::Error),
    #[error("{0}")]
    Asked(String),
}

impl CalibrateError {
    const fn exit(&self) -> CommandExit {
        match self {
            Self::Store(_) => CommandExit::Store,
            Self::Asked(_) => CommandExit::Negative,
            _ => CommandExit::Usage,
        }
    }
}

impl CliCommand for CalibrateArgs {
    const NAME: &'static str = "calibrate";
    const ABOUT: &'static str = "Fit an engine's constants to measured requests, and report the error of the fit";

    fn run(self) -> CommandExit {
        match self.calibrated() {
            Ok((text, exit)) => {
                // A closed pipe is ignored: the exit code still has the answer.
                let _ = anstream::stdout().write_all(text.as_bytes());
                exit
            }
            Err(error) => {
                anstream::eprintln!("gorgo calibrate: {error}");
                error.exit()
            }
        }
    }
}

impl CalibrateArgs {
    /// Text to print, and the exit code.
    fn calibrated(&self) -> Result<(String, CommandExit), CalibrateError> {
        let profile = EngineProfile::find(&self.profile).ok_or_else(|| CalibrateError::Profile {
            name: self.profile.clone(),
            known: EngineProfile::names().collect::<Vec<_>>().join(", "),
        })?;
        // Measuring an engine needs no file, and answers with its own table.
        if let Some(url) = &self.ask.engine {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let asking = self.ask.measure(url, clock(), (profile, self.seed, self.json));
            return runtime.map_err(CalibrateError::Runtime)?.block_on(asking).map_err(CalibrateError::Asked);
        }
        let measurements = self.measurements()?;
        // A misspelt name would otherwise hold out nothing, and the errors would be those of the fitted rows.
        for name in &self.hold_out {
            if !measurements.runs.iter().any(|run| run.contains(name.as_str())) {
                return Err(CalibrateError::HoldOut(name.clone(), measurements.runs.join(", ")));
            }
        }
        // Requests of the same run share load and cache, so whole runs are held out unless asked otherwise.
        let hold_out = match self.hold_out.as_slice() {
            [] if self.hold_out_last_third => HoldOut::LastThirdOfEach,
            [] => HoldOut::Last,
            names => HoldOut::Named(names.to_vec()),
        };
        let found = calibrate(&measurements, &hold_out, self.seed);
        // One fitted model of the two is already a result.
        let exit = if found.first_token.is_some() || found.between_tokens.is_some() {
            CommandExit::Done
        } else {
            CommandExit::Negative
        };
        let text = if self.json {
            format!("{:#}\n", document(&measurements, &found, profile))
        } else {
            text(&measurements, &found, profile)
        };
        Ok((text, exit))
    }

    fn measurements(&self) -> Result<Measurements, CalibrateError> {
        let read =
            |path: &PathBuf| std::fs::read(path).map_err(|cause| CalibrateError::File { path: path.clone(), cause });
        let table = |path: &PathBuf, read: Result<Measurements, TableError>| {
            read.map_err(|cause| CalibrateError::Table { path: path.clone(), cause })
        };
        if let Some(path) = &self.decisions {
            table(path, decisions(&read(path)?))
        } else if let Some(path) = &self.measured {
            table(path, measured(&read(path)?, self.replicas))
        } else if let Some(path) = &self.from_db {
            // A time before the epoch is negative and counts as the epoch, before which no request was received.
            let micros = |time: Timestamp| UnixMicros(u64::try_from(time.as_microsecond()).unwrap_or(0));
            let span = (self.from.map_or(UnixMicros(0), micros), self.to.map_or(UnixMicros(u64::MAX), micros));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let requests = runtime.map_err(CalibrateError::Runtime)?.block_on(stored_requests(path, span))?;
            Ok(of_history(&requests))
        } else {
            // Not reached: the argument group requires a source, and `--engine` was handled before.
            Ok(Measurements::default())
        }
    }
}

/// Measurements from the requests of a history that succeeded at the first attempt. Cached tokens are the engine's if
/// it reports them, else the router's prediction.
fn of_history(requests: &[StoredRequest]) -> Measurements {
    // Every request names its replica, so its load is not divided among several.
    let mut found = Measurements { shared_by: 1.0, ..Measurements::default() };
    // Few replicas and runs: a search is fast enough, and keeps the order of first appearance.
    let place = |names: &mut Vec<String>, name: String| {
        names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        })
    };
    let millis = |micros: i64| {
        #[expect(clippy::cast_precision_loss, reason = "a span of time, far below 2^53 µs")]
        let millis = micros as f64 / 1e3;
        millis
    };
    let start_us = requests.first().map_or(0, |request| request.received.0);
    for request in requests {
        let times = (request.ttft_us, request.e2e_us, request.replica.as_ref());
        // Failed and refused requests have no times to fit.
        let (Some(ttft_us), Some(e2e_us), Some(replica)) = times else {
            found.left_out += 1;
            continue;
        };
        // Times of a retried request include the failed attempt.
        if request.error.is_some() || request.attempts > 1 {
            found.left_out += 1;
            continue;
        }
        let prompt_tokens = f64::from(request.engine_prompt_tokens.unwrap_or(request.prompt_tokens));
        // The prediction counts in the router's tokens, the prompt in the engine's: carry over the share, not the
        // number.
        let believed = request.predicted_cached_tokens.map(|cached| {
            let share = f64::from(cached) / f64::from(request.prompt_tokens.max(1));
            prompt_tokens * (1.0 - share.min(1.0))
        });
        let told = request.cached_tokens.map(|cached| (prompt_tokens - f64::from(cached)).max(0.0));
        // Times relative to the first request keep microseconds exact in floating point.
        let since_us = i64::try_from(request.received.0.saturating_sub(start_us)).unwrap_or(i64::MAX);
        let observation = MeasuredRequest {
            run: place(&mut found.runs, format!("run {}", request.run)),
            replica: Some(place(&mut found.replicas, replica.to_string())),
            sent_ms: millis(since_us),
            ttft_ms: millis(ttft_us),
            e2e_ms: millis(e2e_us),
            prompt_tokens,
            uncached_tokens: told.or(believed),
            output_tokens: f64::from(request.completion_tokens.unwrap_or_default()),
            rtt_ms: request.rtt_us.map(millis),
        };
        found.observations.push(observation);
    }
    // The models reconstruct the load from the requests before each, so the order matters.
    found.sort();
    found
}

/// Value of a profile to compare a fitted constant with.
fn of_profile(profile: &EngineProfile, constant: &str) -> Option<f64> {
    match constant {
        "prefill" | "prefilled-tokens" => Some(profile.prefill_token_ms),
        "prefills" => Some(profile.prefill_batch_ms),
        "step" => Some(profile.decode_step_ms),
        "batch" => Some(profile.decode_request_ms),
        _ => None,
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A number with three significant digits.
fn digits(value: f64) -> String {
    if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else if value.abs() >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.4}")
    }
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), digits)
}

/// The result as text for people.
fn text(measurements: &Measurements, found: &Calibration, profile: &EngineProfile) -> String {
    let mut out = format!(
        "{} requests of {} runs, {} left out; held out: {}\n",
        count(measurements.observations.len()),
        measurements.runs.len(),
        count(measurements.left_out),
        found.held_out
    );
    if !found.knows_cache {
        out += "cached tokens are unknown: \"token\" below means any token of a prompt, cached or not\n";
    }
    if measurements.replicas.is_empty() {
        out +=
            "replicas are unknown: the load is divided evenly among them, so any unevenness distorts the constants\n";
    }
    let models = [("time to first token", &found.first_token), ("time between tokens", &found.between_tokens)];
    for (title, fitted) in models {
        out += &format!("\n{title}\n");
        match fitted {
            Some(fitted) => out += &model(fitted, found.knows_cache, profile),
            None => out += "too few requests to fit it\n",
        }
    }
    out += "\nprefill as the median of slopes, from requests with nothing ahead of them\n";
    let mut slopes = table(&["replica", "requests", "ms per token", "median RTT ms"]);
    // A table of measurements has no round trips; its replicas get dashes.
    let rtts = found.rtt_ms.iter().copied().chain(std::iter::repeat(None));
    for (slope, rtt) in found.theil_sen.iter().zip(rtts) {
        slopes.add_row([slope.replica.clone(), count(slope.rows), optional(slope.prefill_ms_per_token), optional(rtt)]);
    }
    out + &format!("{slopes}\n") + &engine_settings::text(profile)
}

fn model(fitted: &FittedModel, knows_cache: bool, profile: &EngineProfile) -> String {
    let mut constants = table(&["constant", "ms", "95 % from", "to", &profile.name]);
    for FittedConstant { name, per, value, low, high } in &fitted.constants {
        let name = if per.is_empty() { name.clone() } else { format!("{name}, per {per}") };
        // `name` has its unit appended by now; the part before the comma identifies the constant.
        let known = of_profile(profile, name.split(',').next().unwrap_or_default());
        // Without the cache a "token" is any prompt token, while the profile's is an uncached one: not comparable.
        let known = known.filter(|_| knows_cache || *per != "token");
        constants.add_row([name, digits(*value), digits(*low), digits(*high), optional(known)]);
    }
    let header =
        ["error", "requests", "median |ln|", "mean |ln|", "R²", "median off", "ms", "p50", "model", "p95", "model"];
    let mut errors = table(&header);
    for (name, quality) in qualities(fitted) {
        let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"));
        let off = quality.median_error_share.map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", 100.0 * share));
        let shares = [quality.median_log_error, quality.mean_log_error, quality.r_squared].map(number);
        let times = [
            quality.median_error_ms,
            quality.measured_p50_ms,
            quality.predicted_p50_ms,
            quality.measured_p95_ms,
            quality.predicted_p95_ms,
        ];
        let cells = [name, count(quality.rows)].into_iter().chain(shares).chain([off]);
        errors.add_row(cells.chain(times.map(millis)));
    }
    format!("{constants}\n{errors}\n")
}

/// Each set of rows with its name; below the fitted and the held-out rows, each run separately if there are several.
fn qualities(fitted: &FittedModel) -> Vec<(String, FitQuality)> {
    let long = || "  of 100 tokens and more".to_owned();
    // With a single run its line would repeat the one above.
    let several = fitted.runs.len() > 1;
    let runs = |of: fn(&RunFitQuality) -> FitQuality| {
        let each = fitted.runs.iter().map(move |run| (format!("  {}", run.run), of(run)));
        each.filter(move |(_, quality)| several && quality.rows > 0)
    };
    let mut all = vec![("fitted on".to_owned(), fitted.fitted), (long(), fitted.fitted_long)];
    all.extend(runs(|run| run.fitted));
    all.push(("other rows".to_owned(), fitted.other_rows));
    all.extend([("held out".to_owned(), fitted.held_out), (long(), fitted.held_out_long)]);
    all.extend(runs(|run| run.held_out));
    all
}

/// The result as JSON. All keys are always present; unknown values are null.
fn document(measurements: &Measurements, found: &Calibration, profile: &EngineProfile) -> Value {
    let quality = |quality: &FitQuality| {
        json!({
            "rows": quality.rows, "median_log_error": number(quality.median_log_error),
            "mean_log_error": number(quality.mean_log_error), "r_squared": number(quality.r_squared),
            "median_error_ms": number(quality.median_error_ms),
            "median_error_share": number(quality.median_error_share),
            "measured_p50_ms": number(quality.measured_p50_ms), "predicted_p50_ms": number(quality.predicted_p50_ms),
            "measured_p95_ms": number(quality.measured_p95_ms), "predicted_p95_ms": number(quality.predicted_p95_ms),
        })
    };
    let run = |one: &RunFitQuality| json!({ "run": one.run, "fitted": quality(&one.fitted), "held_out": quality(&one.held_out) });
    let model = |fitted: &FittedModel| {
        let constants = fitted.constants.iter().map(|constant| {
            let known = of_profile(profile, &constant.name).filter(|_| found.knows_cache || constant.per != "token");
            json!({
                "name": constant.name, "per": constant.per, "ms": number(Some(constant.value)),
                "low_ms": number(Some(constant.low)), "high_ms": number(Some(constant.high)), "profile_ms": number(known),
            })
        });
        json!({
            "constants": constants.collect::<Vec<_>>(),
            "fitted": quality(&fitted.fitted), "fitted_long": quality(&fitted.fitted_long),
            "other_rows": quality(&fitted.other_rows), "held_out": quality(&fitted.held_out),
            "held_out_long": quality(&fitted.held_out_long),
            "runs": fitted.runs.iter().map(run).collect::<Vec<_>>(),
        })
    };
    let slopes = found.theil_sen.iter().map(|slope| {
        json!({
            "replica": slope.replica, "rows": slope.rows,
            "prefill_ms_per_token": number(slope.prefill_ms_per_token),
        })
    });
    let rtts = measurements.replicas.iter().zip(&found.rtt_ms);
    json!({
        "rows": measurements.observations.len(),
        "left_out": measurements.left_out,
        "runs": measurements.runs,
        "held_out": found.held_out,
        "knows_cache": found.knows_cache,
        "profile": profile.name,
        "first_token": found.first_token.as_ref().map(model),
        "between_tokens": found.between_tokens.as_ref().map(model),
        "theil_sen": slopes.collect::<Vec<_>>(),
        "engine_settings": engine_settings::document(profile),
        "rtt_ms": rtts.map(|(name, rtt)| (name.clone(), number(*rtt))).collect::<serde_json::Map<_, _>>(),
    })
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;

    fn parsed(line: &[&str]) -> Result<CalibrateArgs, clap::Error> {
        let command = CalibrateArgs::augment_args(clap::Command::new("calibrate"));
        let matches = command.try_get_matches_from(std::iter::once(&"calibrate").chain(line))?;
        CalibrateArgs::from_arg_matches(&matches)
    }

    /// Decisions of two replicas and two policies, times made of 90 or 200 ms + 0.05 ms per uncached token.
    fn decisions_file() -> String {
        let mut text = "policy,id,decision_s,target,request_tokens,status,ttft_ms,total_ms,prompt_tokens,\
                        completion_tokens,ash_cached_tokens,fra_cached_tokens\n"
            .to_owned();
        for number in 0..600_u32 {
            let policy = if number < 400 { "one" } else { "two" };
            let (target, offset) = if number % 2 == 0 { ("us-ashburn", 90.0) } else { ("eu-frankfurt", 200.0) };
            let prompt = 100 + (number * 7919) % 9000;
            let cached = if number % 5 == 0 { prompt / 2 } else { 0 };
            let ttft = (offset + 0.05 * f64::from(prompt - cached)) * (1.0 + 0.02 * f64::from(number % 7) / 7.0);
            let total = ttft + 63.0 * (8.0 + 0.1 * f64::from(number % 11));
            text += &format!(
                "{policy},{number},{},{target},{prompt},200,{ttft:.3},{total:.3},{prompt},64,{cached},{cached}\n",
                number * 10
            );
        }
        text
    }

    #[test]
    fn a_table_is_fitted_and_compared_with_a_profile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("decisions.csv");
        std::fs::write(&path, decisions_file()).unwrap();
        let path = path.to_string_lossy().into_owned();
        let (text, exit) = parsed(&["--decisions", &path]).unwrap().calibrated().unwrap();
        assert_eq!(exit, CommandExit::Done);
        insta::assert_snapshot!(text);
        let (text, _) = parsed(&["--decisions", &path, "--json"]).unwrap().calibrated().unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&document["held_out"], &document["knows_cache"]), (&json!("two"), &json!(true)));
        let prefill = &document["first_token"]["constants"][2];
        assert_eq!((&prefill["name"], &prefill["profile_ms"]), (&json!("prefill"), &json!(0.062)));
        let run = &document["first_token"]["runs"][1];
        assert_eq!(
            (&run["run"], &run["fitted"]["rows"], &run["held_out"]["rows"]),
            (&json!("two"), &json!(0), &json!(200))
        );
        assert!((prefill["ms"].as_f64().unwrap() - 0.05).abs() < 0.002, "{prefill}");

        let wrong = parsed(&["--decisions", &path, "--hold-out", "three"]).unwrap().calibrated().unwrap_err();
        assert_eq!(wrong.to_string(), "--hold-out three: no run has this in its name; runs: one, two");
        let wrong = parsed(&["--decisions", &path, "--profile", "none"]).unwrap().calibrated().unwrap_err();
        assert!(wrong.to_string().starts_with("unknown profile \"none\"; known: l40s-qwen3.5-35b, "), "{wrong}");
    }

    #[test]
    fn one_source_is_named() {
        assert!(parsed(&[]).is_err());
        assert!(parsed(&["--decisions", "a", "--measured", "b"]).is_err());
        let missing = parsed(&["--from-db", "no-such.db"]).unwrap().calibrated().unwrap_err();
        assert_eq!(missing.exit(), CommandExit::Store);
    }
}
