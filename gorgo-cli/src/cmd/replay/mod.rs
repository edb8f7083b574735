//! `gorgo replay TRACE --to URL`: a recorded trace as an open-loop load on any OpenAI-compatible server.
//!
//! ```text
//! file → trace::read → trace::shape → drive (each row at its time) → client → Sample → Summary → table, JSON, CSV
//! ```
//!
//! Exit code: 0 every request succeeded, 1 some failed or the server could not be reached, 2 usage (also a trace that
//! cannot be read).

mod body;
mod client;
mod drive;
mod failure;
mod interrupts;
mod progress;
mod report;
mod stream;
mod target;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gorgo_core::model::Clock;
use gorgo_core::trace::{self, PromptText, Shape, Summary, TraceError};
use hyper::header::HeaderValue;
use tokio_util::task::TaskTracker;

use self::body::BodyWriter;
use self::client::Client;
use self::drive::{Brakes, Plan, drive};
use self::failure::Failure;
use self::interrupts::Interrupts;
use self::progress::Progress;
use self::report::Report;
use self::target::{Api, Target, TargetError};
use super::Command;
use crate::exit::Exit;
use crate::report::csv;
use crate::report::page::command_line;
use crate::runtime::{block_on, clock};

/// Connections opened ahead where there is no limit of requests in flight.
const WARM_CONNECTIONS: usize = 64;

/// Replay a recorded trace against a server and report what was measured.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Replay {
    /// Trace file: Mooncake-format JSON lines or Azure CSV, gzip or plain
    trace: PathBuf,
    /// Server to send to, such as http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    to: String,
    /// Model to ask for [default: the first that /v1/models names]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Factor on the gaps between requests: larger is lighter, 0 sends all at once
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    time_scale: f64,
    /// Send at most N requests, counted after --max-input-tokens dropped its rows
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Drop rows with longer prompts, and say how many
    #[arg(long, value_name = "N")]
    max_input_tokens: Option<u32>,
    /// Cut longer answers to N tokens, and say how many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_output_tokens: Option<u32>,
    /// Most requests in flight at once, 0 for no limit; what waits for a slot is late, and the report says so
    #[arg(long, value_name = "N", default_value_t = 64)]
    max_in_flight: usize,
    /// Keep the times of rows that share a timestamp, in place of spreading them to the next one
    #[arg(long)]
    no_spread: bool,
    /// Seed of the prompts' text: another seed finds cold caches
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Environment variable that holds the API key
    #[arg(long, value_name = "VAR")]
    api_key_env: Option<String>,
    /// Whether to send x-session-id where the trace has conversations or users
    #[arg(long, value_enum, default_value_t = Switch::On)]
    session_header: Switch,
    /// API to speak
    #[arg(long, value_enum, default_value_t = Api::Chat)]
    path: Api,
    /// Tokens per hash id [default: inferred from the trace]
    #[arg(long, value_name = "TOKENS")]
    block_size: Option<u32>,
    /// Do not ask for `ignore_eos`, which servers other than SGLang, vLLM and the like may refuse
    #[arg(long)]
    no_ignore_eos: bool,
    /// Give a request up when its answer is not over after so many seconds
    #[arg(long, value_name = "SECS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    timeout_secs: u64,
    /// Name of the measured policy in the report
    #[arg(long, value_name = "NAME", default_value = "replay")]
    label: String,
    /// Print JSON in place of the table
    #[arg(long)]
    json: bool,
    /// Write one line per request to FILE
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a page with tables and plots to FILE; it stands alone and shows no folders
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

fn factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if factor.is_finite() && factor >= 0.0 { Ok(factor) } else { Err("not a finite number from 0 up".to_owned()) }
}

/// Why there is nothing to report.
#[derive(Debug, thiserror::Error)]
enum ReplayError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("{}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error("{}: {cause}", path.display())]
    Trace { path: PathBuf, cause: TraceError },
    #[error("--api-key-env {0}: no such environment variable, or not a key")]
    Key(String),
    #[error("--to: {0}")]
    Address(#[from] hyper::http::Error),
    #[error("{}: no request is left to send; all {rows} rows are over --max-input-tokens, or --limit is 0", path.display())]
    Nothing { path: PathBuf, rows: usize },
    #[error("{0}")]
    Unreachable(Failure),
    #[error("no model to ask for: /v1/models: {0}; name one with --model")]
    Model(Failure),
    #[error("cannot listen for signals: {0}")]
    Signals(io::Error),
}

impl ReplayError {
    const fn exit(&self) -> Exit {
        match self {
            Self::Unreachable(_) | Self::Model(_) | Self::Signals(_) => Exit::No,
            _ => Exit::Usage,
        }
    }
}

impl Command for Replay {
    const NAME: &'static str = "replay";
    const ABOUT: &'static str = "Replay a recorded trace against a server and report what was measured";

    fn run(self) -> Exit {
        block_on(run(self, clock()))
    }
}

/// Replays, prints, and says how it went.
async fn run(args: Replay, clock: Arc<dyn Clock>) -> Exit {
    match replay(&args, clock).await {
        Ok(report) => {
            let text = if args.json {
                serde_json::to_string_pretty(&report.json()).map(|json| json + "\n").unwrap_or_default()
            } else {
                report.text()
            };
            // A reader that has left (a closed pipe) does not change what was measured.
            anstream::stdout().write_all(text.as_bytes()).ok();
            if args.json && !report.summary.slip.is_good() {
                anstream::eprintln!("gorgo replay: load generator limited: see policies[0].slip");
            }
            if report.summary.errors == 0 { Exit::Done } else { Exit::No }
        }
        Err(error) => {
            anstream::eprintln!("gorgo replay: {error}");
            error.exit()
        }
    }
}

async fn replay(args: &Replay, clock: Arc<dyn Clock>) -> Result<Report, ReplayError> {
    let target = Target::parse(&args.to)?;
    let file = |cause| ReplayError::File { path: args.trace.clone(), cause };
    let bytes = tokio::fs::read(&args.trace).await.map_err(file)?;
    let read = trace::read(&bytes, args.block_size);
    drop(bytes);
    let trace = read.map_err(|cause| ReplayError::Trace { path: args.trace.clone(), cause })?;
    let (rows_without_blocks, rows_refitted) = (trace.rows_without_blocks, trace.rows_refitted);
    let shaped = trace::shape(
        trace,
        &Shape {
            time_scale: args.time_scale,
            limit: args.limit,
            max_input_tokens: args.max_input_tokens,
            max_output_tokens: args.max_output_tokens,
            spread: !args.no_spread,
        },
    );
    if shaped.rows.is_empty() {
        return Err(ReplayError::Nothing { path: args.trace.clone(), rows: shaped.counts.rows });
    }
    // Opened before the replay, so that a path that cannot be written does not cost one.
    let csv_file = match &args.csv {
        Some(path) => {
            let created = File::create(path).map_err(|cause| ReplayError::File { path: path.clone(), cause })?;
            Some((path, BufWriter::new(created)))
        }
        None => None,
    };

    let html_file = match &args.html {
        Some(path) => {
            let created = File::create(path).map_err(|cause| ReplayError::File { path: path.clone(), cause })?;
            Some((path, created))
        }
        None => None,
    };

    let tracker = TaskTracker::new();
    let limit = Duration::from_secs(args.timeout_secs);
    let key = args.api_key_env.as_deref().map(api_key).transpose()?;
    let client = Arc::new(Client::new(target, args.path, key.as_ref(), limit, clock, tracker.clone())?);
    let max_in_flight = (args.max_in_flight > 0).then_some(args.max_in_flight);
    let requests = shaped.rows.len();
    let connections = max_in_flight.unwrap_or(WARM_CONNECTIONS).min(requests);
    client.warm(connections).await.map_err(ReplayError::Unreachable)?;
    let model = match &args.model {
        Some(model) => model.clone(),
        None => client.first_model().await.map_err(ReplayError::Model)?,
    };

    let text = PromptText::new(shaped.block_tokens, args.seed);
    let plan = Plan {
        rows: shaped.rows,
        bodies: BodyWriter::new(text, args.path, &model, !args.no_ignore_eos),
        max_in_flight,
        sessions: args.session_header == Switch::On,
    };
    let driven = drive_until_stopped(&client, plan, &tracker, Progress::new(requests)).await?;
    if let Some((path, out)) = csv_file {
        csv::write(&driven.samples, out).map_err(|cause| ReplayError::File { path: path.clone(), cause })?;
    }
    let report = Report {
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
        max_input_tokens: args.max_input_tokens,
        max_output_tokens: args.max_output_tokens,
        unsent: driven.unsent,
        unfinished: driven.unfinished,
        summary: Summary::of(&driven.samples),
    };
    if let Some((path, mut out)) = html_file {
        let page = report.html(&command_line(std::env::args()));
        out.write_all(page.as_bytes()).map_err(|cause| ReplayError::File { path: path.clone(), cause })?;
    }
    Ok(report)
}

fn api_key(variable: &str) -> Result<HeaderValue, ReplayError> {
    let key = std::env::var(variable).ok().filter(|key| !key.is_empty());
    let value = key.and_then(|key| HeaderValue::try_from(format!("Bearer {key}")).ok());
    let mut value = value.ok_or_else(|| ReplayError::Key(variable.to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Drives the plan; the first interrupt stops sending and lets what is in flight end, the second drops it.
async fn drive_until_stopped(
    client: &Arc<Client>,
    plan: Plan,
    tracker: &TaskTracker,
    mut progress: Progress,
) -> Result<drive::Driven, ReplayError> {
    let mut interrupts = Interrupts::new().map_err(ReplayError::Signals)?;
    let brakes = Brakes::default();
    let notes = progress.clone();
    let driving = drive(client, plan, tracker, &brakes, move |sample| progress.ended(sample));
    tokio::pin!(driving);
    let driven = loop {
        tokio::select! {
            driven = &mut driving => break driven,
            () = interrupts.next() => {
                if brakes.stop.is_cancelled() {
                    brakes.abort.cancel();
                } else {
                    brakes.stop.cancel();
                    notes.note("stopped sending; waiting for what is in flight (interrupt again to drop it)");
                }
            }
        }
    };
    notes.finish();
    Ok(driven)
}

#[cfg(test)]
mod tests;
