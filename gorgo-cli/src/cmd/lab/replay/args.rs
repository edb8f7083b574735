//! The command line of `gorgo replay`.

use std::path::PathBuf;

use jiff::Timestamp;

use crate::load::Api;

/// Replay a recorded trace against a server and report what was measured.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Replay {
    /// Trace file: Mooncake-format JSON lines or Azure CSV, gzip or plain
    pub(super) trace: PathBuf,
    /// Server to send to, such as http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    pub(super) to: String,
    /// Model to ask for [default: the first that /v1/models names]
    #[arg(long, value_name = "NAME")]
    pub(super) model: Option<String>,
    /// Factor on the gaps between requests: larger is lighter, 0 sends all at once
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    pub(super) time_scale: f64,
    /// Send at most N requests, counted after --max-input-tokens dropped its rows
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<usize>,
    /// Drop rows with longer prompts, and say how many
    #[arg(long, value_name = "N")]
    pub(super) max_input_tokens: Option<u32>,
    /// Cut longer answers to N tokens, and say how many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_output_tokens: Option<u32>,
    /// The model's context, tokens: drop rows whose prompt leaves no room for --max-output-tokens and 64 of a chat template
    #[arg(long, value_name = "TOKENS", requires = "max_output_tokens")]
    pub(super) context_tokens: Option<u32>,
    /// Most requests in flight at once, 0 for no limit; what waits for a slot is late, and the report says so
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(super) max_in_flight: usize,
    /// Keep the times of rows that share a timestamp, in place of spreading them to the next one
    #[arg(long)]
    pub(super) no_spread: bool,
    /// Seed of the prompts' text: another seed finds cold caches
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
    /// Environment variable that holds the API key
    #[arg(long, value_name = "VAR")]
    pub(super) api_key_env: Option<String>,
    /// Whether to send x-session-id where the trace has conversations or users
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub(super) session_header: Switch,
    /// API to speak
    #[arg(long, value_enum, default_value_t = Api::Chat)]
    pub(super) path: Api,
    /// Tokens per hash id [default: inferred from the trace]
    #[arg(long, value_name = "TOKENS")]
    pub(super) block_size: Option<u32>,
    /// Do not ask for `ignore_eos`, which servers other than SGLang, vLLM and the like may refuse
    #[arg(long)]
    pub(super) no_ignore_eos: bool,
    /// Give a request up when its answer is not over after so many seconds
    #[arg(long, value_name = "SECS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) timeout_secs: u64,
    /// Send the first request at this time, such as 2026-04-05T16:15:00Z: several machines begin together
    #[arg(long, value_name = "TIME")]
    pub(super) start_at: Option<Timestamp>,
    /// Stop sending after so many minutes; what is in flight may end
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    pub(super) max_minutes: Option<f64>,
    /// After the last request was sent, wait so many seconds for answers and drop the rest [default: --timeout-secs]
    #[arg(long, value_name = "SECS")]
    pub(super) drain_secs: Option<u64>,
    /// Send a request again, up to N times, where no answer or status 502 came; its times count from the first send
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) retries: u32,
    /// Ask for whole answers in place of event streams; there is no TTFT then
    #[arg(long)]
    pub(super) no_stream: bool,
    /// History database of the router replayed to: the report says which run and policy it measured, and how many
    /// decisions fell back
    #[arg(long, value_name = "FILE")]
    pub(super) history: Option<PathBuf>,
    /// With --history: warn where a larger share of the decisions fell back
    #[arg(long, value_name = "SHARE", default_value_t = 0.05, value_parser = share)]
    pub(super) max_fallback_share: f64,
    /// Put down what the engine's /get_server_info says (SGLang); a router would count it as a request
    #[arg(long)]
    pub(super) engine_info: bool,
    /// Name of the measured policy in the report
    #[arg(long, value_name = "NAME", default_value = "replay")]
    pub(super) label: String,
    /// Print JSON in place of the table
    #[arg(long)]
    pub(super) json: bool,
    /// Write one line per request to FILE
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Write a page with tables and plots to FILE; it stands alone and shows no folders
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write run.json, run.csv and run.html into this folder, which must not be there yet
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["csv", "html"])]
    pub(super) out_dir: Option<PathBuf>,
    /// Experiment as a TOML file whose keys are flags: [experiment], and a table for each command; flags given here win
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

fn share(text: &str) -> Result<f64, String> {
    let share = factor(text)?;
    if share <= 1.0 { Ok(share) } else { Err("not a share from 0 to 1".to_owned()) }
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes = factor(text)?;
    // A year; more is no length of an experiment.
    if minutes > 0.0 && minutes <= 525_600.0 { Ok(minutes) } else { Err("not a number of minutes above 0".to_owned()) }
}

fn factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if factor.is_finite() && factor >= 0.0 { Ok(factor) } else { Err("not a finite number from 0 up".to_owned()) }
}

/// Tokens that a chat template adds to a prompt, with room; as the paper's client has it.
const TEMPLATE_TOKENS: u32 = 64;

impl Replay {
    /// The longest prompt that is sent: as asked for, and what the model's context leaves room for.
    pub(super) fn longest_input(&self) -> Option<u32> {
        let room = self.context_tokens.zip(self.max_output_tokens);
        let room = room.map(|(context, output)| context.saturating_sub(output).saturating_sub(TEMPLATE_TOKENS));
        match (self.max_input_tokens, room) {
            (Some(asked), Some(room)) => Some(asked.min(room)),
            (asked, room) => asked.or(room),
        }
    }
}
