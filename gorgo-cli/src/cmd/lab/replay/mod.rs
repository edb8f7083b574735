//! `gorgo replay TRACE --to URL`: sends a recorded trace as an open-loop load to any OpenAI-compatible server.
//!
//! ```text
//! file → trace::read → trace::shape → drive (each row at its time) → client → Sample → Summary → table, JSON, CSV
//! ```
//!
//! Exit code: 0 every request succeeded, 1 some failed or the server could not be reached, 2 usage (also a trace that
//! cannot be read).

mod args;
mod drive;
mod interrupts;
mod progress;
mod record;
mod report;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gorgo_lab::trace::{self, PromptText, RunIntervals, RunSummary, ShapeOptions, TraceError};
use gorgo_routing::model::{Clock, UnixMicros};
use gorgo_store::{HistoryReader, StoreError};
use jiff::Timestamp;
use tokio_util::task::TaskTracker;

use self::args::OnOff;
use self::drive::{ReplayPlan, StopControls, drive};
use self::interrupts::InterruptSignals;
use self::progress::ReplayProgress;
use self::record::{RouterHistory, RunProvenance};
use self::report::{ReplayReport, ReplayTraffic};
use crate::cmd::CliCommand;
use crate::exit::CommandExit;
use crate::load::{
    BodyWriter, KeyError, ReplayClient, RequestFailure, RequestOptions, ServerUrl, ServerUrlError, api_key,
};
use crate::report::csv;
use crate::report::folder::RunFolder;
use crate::report::page::command_line;
use crate::report::unwritable;
use crate::runtime::{block_on, clock};

pub(crate) use self::args::ReplayArgs;

/// Number of connections opened ahead if there is no limit of requests in flight.
const WARM_CONNECTIONS: usize = 64;

/// Error: there is nothing to report.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplayError {
    #[error(transparent)]
    Target(#[from] ServerUrlError),
    #[error("{}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error("{0}")]
    Output(String),
    #[error("{}: {cause}", path.display())]
    Trace { path: PathBuf, cause: TraceError },
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("--to: {0}")]
    Address(#[from] hyper::http::Error),
    #[error("{}: no request to send: all {rows} rows are over --max-input-tokens, or --limit is 0", path.display())]
    Nothing { path: PathBuf, rows: usize },
    #[error("{0}")]
    Unreachable(RequestFailure),
    #[error("no model to ask for: /v1/models: {0}; choose one with --model")]
    Model(RequestFailure),
    #[error("no model to ask for: /v1/models lists none; choose one with --model")]
    NoModel,
    #[error("--engine-info: /get_server_info: {0}; only SGLang has this endpoint")]
    Engine(RequestFailure),
    #[error("cannot install signal handlers: {0}")]
    Signals(io::Error),
    #[error("`--start-at` {0} is in the past")]
    Past(Timestamp),
    #[error("--history: {0}")]
    History(#[from] StoreError),
}

impl ReplayError {
    const fn exit(&self) -> CommandExit {
        match self {
            Self::Unreachable(_) | Self::Model(_) | Self::NoModel | Self::Engine(_) | Self::Signals(_) => {
                CommandExit::Negative
            }
            Self::History(_) => CommandExit::Store,
            _ => CommandExit::Usage,
        }
    }
}

impl CliCommand for ReplayArgs {
    const NAME: &'static str = "replay";
    const ABOUT: &'static str = "Replay a recorded trace against a server and report the measured latencies";

    fn run(self) -> CommandExit {
        block_on(run(self, clock()))
    }
}

/// Replays, prints the report, and returns the exit code.
async fn run(args: ReplayArgs, clock: Arc<dyn Clock>) -> CommandExit {
    match replay(&args, clock).await {
        Ok(report) => {
            let text = if args.json { report.json_text() } else { report.text() };
            // A closed pipe does not change the result.
            anstream::stdout().write_all(text.as_bytes()).ok();
            // JSON goes to a program; the person who started the command still needs the warning.
            if args.json && !report.summary.slip.is_within_limit() {
                anstream::eprintln!("gorgo replay: load generator limited: see policies[0].slip");
            }
            if report.summary.errors == 0 { CommandExit::Done } else { CommandExit::Negative }
        }
        Err(error) => {
            anstream::eprintln!("gorgo replay: {error}");
            error.exit()
        }
    }
}

async fn replay(args: &ReplayArgs, clock: Arc<dyn Clock>) -> Result<ReplayReport, ReplayError> {
    let target = ServerUrl::parse(&args.to)?;
    let file = |cause| ReplayError::File { path: args.trace.clone(), cause };
    let bytes = tokio::fs::read(&args.trace).await.map_err(file)?;
    let mut record = RunProvenance::of(&bytes, &command_line(std::env::args()));
    let read = trace::read(&bytes, args.block_size);
    // The raw file is not needed during the replay, which may take hours.
    drop(bytes);
    let trace = read.map_err(|cause| ReplayError::Trace { path: args.trace.clone(), cause })?;
    let (rows_without_blocks, rows_refitted) = (trace.rows_without_blocks, trace.rows_refitted);
    let shaped = trace::shape(
        trace,
        &ShapeOptions {
            time_scale: args.time_scale,
            limit: args.limit,
            max_input_tokens: args.longest_input(),
            max_output_tokens: args.max_output_tokens,
            spread: !args.no_spread,
        },
    );
    if shaped.rows.is_empty() {
        return Err(ReplayError::Nothing { path: args.trace.clone(), rows: shaped.counts.rows });
    }
    if let Some(path) = &args.history {
        // Find out before the replay if the history cannot be read.
        HistoryReader::open(path).await?.close().await;
    }

    let tracker = TaskTracker::new();
    let limit = Duration::from_secs(args.timeout_secs);
    let key = args.api_key_env.as_deref().map(api_key).transpose()?;
    let asked = RequestOptions { api: args.path, stream: !args.no_stream, limit, retries: args.retries };
    let client = Arc::new(ReplayClient::new(target, &asked, key.as_ref(), Arc::clone(&clock), tracker.clone())?);
    let max_in_flight = (args.max_in_flight > 0).then_some(args.max_in_flight);
    let requests = shaped.rows.len();
    let model = record.ask(&client, args).await?;

    // Opened before the replay, so that an unwritable path does not waste it; and after everything else that can fail,
    // so that no file is created or truncated for a run that never starts.
    let folder = args.out_dir.as_deref().map(RunFolder::make).transpose().map_err(ReplayError::Output)?;
    let create =
        |flag: &'static str, own: Option<&PathBuf>, name: &str| -> Result<Option<(PathBuf, File)>, ReplayError> {
            let path = own.cloned().or_else(|| folder.as_ref().map(|at| at.file(name)));
            let create = |path: PathBuf| match File::create(&path) {
                Ok(file) => Ok((path, file)),
                Err(cause) => Err(ReplayError::Output(unwritable(flag, &path, &cause))),
            };
            path.map(create).transpose()
        };
    let csv_file = create("--csv", args.csv.as_ref(), "run.csv")?;
    let html_file = create("--html", args.html.as_ref(), "run.html")?;
    let json_file = create("--out-dir", None, "run.json")?;

    let text = PromptText::new(shaped.block_tokens, args.seed);
    let plan = ReplayPlan {
        rows: shaped.rows,
        bodies: BodyWriter::new(text, &asked, &model, !args.no_ignore_eos),
        max_in_flight,
        sessions: args.session_header == OnOff::On,
    };
    let driven = drive_until_stopped(args, &client, plan, &tracker, ReplayProgress::new(requests)).await?;
    record.started_at = driven.started_at;
    let router = match &args.history {
        Some(path) => match RouterHistory::read(path, &driven.samples).await {
            Ok(router) => Some(router),
            // The measurements are worth more than the history's part of the report.
            Err(error) => {
                anstream::eprintln!("gorgo replay: --history: {error}");
                None
            }
        },
        None => None,
    };
    // The samples first: should anything after this fail, the measurements are on disk.
    if let Some((path, out)) = csv_file {
        csv::write(&driven.samples, BufWriter::new(out)).map_err(|cause| ReplayError::File { path, cause })?;
    }
    let report = ReplayReport {
        label: args.label.clone(),
        trace: args.trace.display().to_string(),
        to: args.to.clone(),
        model,
        seed: args.seed,
        time_scale: args.time_scale,
        max_in_flight,
        block_tokens: shaped.block_tokens,
        rows_without_blocks,
        rows_refitted,
        counts: shaped.counts,
        max_input_tokens: args.longest_input(),
        max_output_tokens: args.max_output_tokens,
        max_fallback_share: args.max_fallback_share,
        record,
        router,
        intervals: RunIntervals::from_samples(&driven.samples, args.seed),
        traffic: ReplayTraffic::of(&driven.samples),
        unsent: driven.unsent,
        unfinished: driven.unfinished,
        summary: RunSummary::from_samples(&driven.samples),
    };
    if let Some((path, mut out)) = html_file {
        let page = report.html(&command_line(std::env::args()));
        out.write_all(page.as_bytes()).map_err(|cause| ReplayError::File { path, cause })?;
    }
    if let Some((path, mut out)) = json_file {
        out.write_all(report.json_text().as_bytes()).map_err(|cause| ReplayError::File { path, cause })?;
    }
    Ok(report)
}

/// Time before the start at which connections are opened, so that none of them stays idle for long.
const WARM_BEFORE: Duration = Duration::from_secs(1);

/// Waits for the start time if there is one, and drives the plan. The first interrupt, or the time limit, stops sending
/// and lets requests in flight finish; the second drops them.
async fn drive_until_stopped(
    args: &ReplayArgs,
    client: &Arc<ReplayClient>,
    plan: ReplayPlan,
    tracker: &TaskTracker,
    mut progress: ReplayProgress,
) -> Result<drive::ReplayResult, ReplayError> {
    // From here on signals stop the replay in order; before, they end the process.
    let mut interrupts = InterruptSignals::new().map_err(ReplayError::Signals)?;
    let brakes = StopControls { drain: args.drain_secs.map(Duration::from_secs), ..StopControls::default() };
    let notes = progress.clone();
    let begins = args.start_at.map(|time| moment(time, client.clock())).transpose()?;
    if let Some(begins) = begins {
        notes.note(&format!("waiting for {}", args.start_at.unwrap_or_default()));
        wait_until(begins, WARM_BEFORE, client, &mut interrupts, &brakes).await;
    }
    // As many as can be in use at once: a connection opened later would add a round trip to its request.
    let connections = plan.max_in_flight.unwrap_or(WARM_CONNECTIONS).min(plan.rows.len());
    client.warm(connections).await.map_err(ReplayError::Unreachable)?;
    if let Some(begins) = begins {
        wait_until(begins, Duration::ZERO, client, &mut interrupts, &brakes).await;
    }
    // After warming up: this is the time that the report gives as the start of the load.
    let started_at = client.clock().now();
    let time_is_up = async {
        match args.max_minutes.and_then(|minutes| Duration::try_from_secs_f64(minutes * 60.0).ok()) {
            Some(most) => tokio::time::sleep(most).await,
            None => std::future::pending().await,
        }
    };
    let driving = drive(client, plan, tracker, &brakes, move |sample| progress.ended(sample));
    tokio::pin!(driving, time_is_up);
    let mut is_up = false;
    let mut driven = loop {
        tokio::select! {
            driven = &mut driving => break driven,
            () = &mut time_is_up, if !is_up => {
                is_up = true;
                brakes.stop.cancel();
                notes.note("--max-minutes reached: stopped sending; waiting for requests in flight");
            }
            () = interrupts.next() => {
                // The second interrupt, or the first one after the time limit.
                if brakes.stop.is_cancelled() {
                    brakes.abort.cancel();
                } else {
                    brakes.stop.cancel();
                    notes.note("stopped sending; waiting for requests in flight (interrupt again to drop them)");
                }
            }
        }
    };
    notes.finish();
    driven.started_at = started_at;
    Ok(driven)
}

/// A future time on the client's clock.
fn moment(time: Timestamp, clock: &dyn Clock) -> Result<UnixMicros, ReplayError> {
    let at = u64::try_from(time.as_microsecond()).ok().map(UnixMicros);
    at.filter(|at| at.0 > clock.now().0).ok_or(ReplayError::Past(time))
}

/// Waits until `before` ahead of a time; an interrupt ends the wait, and then nothing is sent.
async fn wait_until(
    begins: UnixMicros,
    before: Duration,
    client: &ReplayClient,
    interrupts: &mut InterruptSignals,
    brakes: &StopControls,
) {
    let left = Duration::from_micros(begins.0.saturating_sub(client.clock().now().0)).saturating_sub(before);
    if brakes.stop.is_cancelled() || left.is_zero() {
        return;
    }
    tokio::select! {
        () = tokio::time::sleep(left) => {}
        () = interrupts.next() => brakes.stop.cancel(),
    }
}

#[cfg(test)]
mod tests;
