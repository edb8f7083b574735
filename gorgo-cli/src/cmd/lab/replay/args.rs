//! The command line of `gorgo replay`.

use std::path::PathBuf;

use jiff::Timestamp;

use crate::load::ReplayApi;

/// Replay a recorded trace against a server and report the measured latencies
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ReplayArgs {
    /// Trace file: Mooncake-format JSON lines or Azure CSV, gzip or plain
    pub(super) trace: PathBuf,
    /// Server to send to, such as http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    pub(super) to: String,
    /// Model to ask for [default: the first that /v1/models lists]
    #[arg(long, value_name = "NAME")]
    pub(super) model: Option<String>,
    /// Factor on the gaps between requests: larger is lighter, 0 sends all at once
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    pub(super) time_scale: f64,
    /// Send at most N requests, counted after dropping rows by --max-input-tokens
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<usize>,
    /// Drop rows with longer prompts, and report their number
    #[arg(long, value_name = "N")]
    pub(super) max_input_tokens: Option<u32>,
    /// Cut longer answers to N tokens, and report their number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_output_tokens: Option<u32>,
    /// Context length of the model: drop rows whose prompt leaves no room for --max-output-tokens and 64 tokens of a
    /// chat template
    #[arg(long, value_name = "TOKENS", requires = "max_output_tokens")]
    pub(super) context_tokens: Option<u32>,
    /// Most requests in flight at once, 0 for no limit; requests that wait for a slot are late, and the report says so
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(super) max_in_flight: usize,
    /// Keep the times of rows that share a timestamp, instead of spreading them to the next one
    #[arg(long)]
    pub(super) no_spread: bool,
    /// Seed of the prompts' text; a new seed finds cold caches
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
    /// Environment variable that holds the API key
    #[arg(long, value_name = "VAR")]
    pub(super) api_key_env: Option<String>,
    /// Send x-session-id if the trace has conversations or users
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    pub(super) session_header: OnOff,
    /// API to use
    #[arg(long, value_enum, default_value_t = ReplayApi::Chat)]
    pub(super) path: ReplayApi,
    /// Tokens per hash id [default: inferred from the trace]
    #[arg(long, value_name = "TOKENS")]
    pub(super) block_size: Option<u32>,
    /// Do not send `ignore_eos`, which servers other than SGLang, vLLM and the like may refuse
    #[arg(long)]
    pub(super) no_ignore_eos: bool,
    /// Give up on a request whose answer is not complete after this many seconds
    #[arg(long, value_name = "SECS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) timeout_secs: u64,
    /// Send the first request at this time, such as 2026-04-05T16:15:00Z, so that several machines start together
    #[arg(long, value_name = "TIME")]
    pub(super) start_at: Option<Timestamp>,
    /// Stop sending after this many minutes; requests in flight may finish
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    pub(super) max_minutes: Option<f64>,
    /// After the last send, wait this many seconds for answers and drop the rest [default: --timeout-secs]
    #[arg(long, value_name = "SECS")]
    pub(super) drain_secs: Option<u64>,
    /// Send a request again, up to N times, after no answer or status 502; times count from the first send
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) retries: u32,
    /// Ask for whole answers instead of event streams; TTFT is not measured then
    #[arg(long)]
    pub(super) no_stream: bool,
    /// History database of the router under test: report the run and policy it measured, and how many decisions fell
    /// back
    #[arg(long, value_name = "FILE")]
    pub(super) history: Option<PathBuf>,
    /// With --history: warn if a larger share of the decisions fell back
    #[arg(long, value_name = "SHARE", default_value_t = 0.05, value_parser = share)]
    pub(super) max_fallback_share: f64,
    /// Record the engine's /get_server_info (SGLang); a router would count it as a request
    #[arg(long)]
    pub(super) engine_info: bool,
    /// Name of the measured policy in the report
    #[arg(long, value_name = "NAME", default_value = "replay")]
    pub(super) label: String,
    /// Print JSON instead of the table
    #[arg(long)]
    pub(super) json: bool,
    /// Write one line per request to FILE
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Write a self-contained page with tables and plots to FILE; it shows no folders of this machine
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write run.json, run.csv and run.html into this folder, which must not exist yet
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["csv", "html"])]
    pub(super) out_dir: Option<PathBuf>,
    /// Experiment as a TOML file whose keys are flags: [experiment], and a table for each command; flags given here win
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum OnOff {
    /// Yes.
    On,
    /// No.
    Off,
}

fn share(text: &str) -> Result<f64, String> {
    let share = factor(text)?;
    if share <= 1.0 { Ok(share) } else { Err("must be a share from 0 to 1".to_owned()) }
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes = factor(text)?;
    // At most a year, which also keeps the conversion to a duration from overflowing.
    if minutes > 0.0 && minutes <= 525_600.0 {
        Ok(minutes)
    } else {
        Err("must be a number of minutes above 0, at most 525600".to_owned())
    }
}

fn factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if factor.is_finite() && factor >= 0.0 { Ok(factor) } else { Err("must be a finite number, 0 or more".to_owned()) }
}

/// Tokens reserved for what a chat template adds to a prompt, the same number as in the GORGO paper's client.
const TEMPLATE_TOKENS: u32 = 64;

impl ReplayArgs {
    /// Longest prompt that is sent: the limit asked for, and what the model's context leaves room for.
    pub(super) fn longest_input(&self) -> Option<u32> {
        let room = self.context_tokens.zip(self.max_output_tokens);
        let room = room.map(|(context, output)| context.saturating_sub(output).saturating_sub(TEMPLATE_TOKENS));
        match (self.max_input_tokens, room) {
            (Some(asked), Some(room)) => Some(asked.min(room)),
            (asked, room) => asked.or(room),
        }
    }
}
