//! The sections of `policies.toml`: every fixed key with its default, unit and range, documented where it stands.
//! The doc comments become the descriptions in the JSON schema. Policies stay raw values here; `policy::build`
//! turns them into policies, since only it knows the kinds.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::model::Value;

/// The whole configuration, all layers merged and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `[server]`
    pub server: Server,
    /// `[admin]`
    pub admin: Admin,
    /// `[log]`
    pub log: Log,
    /// `[store]`
    pub store: Store,
    /// `[index]`
    pub index: Index,
    /// `[probe]`
    pub probe: Probe,
    /// `[scrape]`
    pub scrape: Scrape,
    /// `[failover]`
    pub failover: Failover,
    /// `[[replica]]`, also the disabled ones.
    pub replicas: Vec<ReplicaSection>,
    /// The policy that serves.
    pub default_policy: String,
    /// `[policy.NAME]` tables of the file, in file order; presets are not in here.
    pub policies: Vec<(String, Value)>,
    /// The folder that relative paths are relative to: that of the file.
    pub base: PathBuf,
}

/// The listener for clients.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Address and port to listen on.
    pub listen: String,
    /// Send `x-gorgo-replica` (name) and `x-gorgo-decision` (decimal id) with every answer.
    pub headers: bool,
    /// Header that names the session; else the body's `user`, else a hash of the API key, else of the prompt's head.
    pub session_header: String,
    /// Largest request body, bytes; 413 above.
    pub max_body_bytes: u64,
    /// All request bodies held at once, bytes; 503 above.
    pub max_buffered_bytes: u64,
    /// Time to connect to a replica, ms.
    pub connect_timeout_ms: u64,
    /// Hard limit until the response head, ms.
    pub first_byte_timeout_ms: u64,
    /// Longest silence between two reads of a response, ms; there is no limit on the whole.
    pub idle_timeout_ms: u64,
    /// How long a shutdown waits for running requests, s.
    pub drain_secs: u64,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8080".to_owned(),
            headers: true,
            session_header: "x-session-id".to_owned(),
            max_body_bytes: 64 << 20,
            max_buffered_bytes: 1 << 30,
            connect_timeout_ms: 2_000,
            first_byte_timeout_ms: 120_000,
            idle_timeout_ms: 60_000,
            drain_secs: 30,
        }
    }
}

/// The listener for operators: `GET /metrics`, `/health`, `/ready`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// Address and port to listen on.
    pub listen: String,
}

impl Default for Admin {
    fn default() -> Self {
        Self { listen: "127.0.0.1:9090".to_owned() }
    }
}

/// Log lines on standard error.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// What to log: a tracing filter such as `info` or `info,gorgo_core::edge=debug`.
    pub filter: String,
    /// `text` or `json`.
    pub format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self { filter: "info".to_owned(), format: LogFormat::Text }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The history database.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Store {
    /// SQLite file, relative to this file.
    pub path: PathBuf,
    /// Longest time a row waits to be written, ms.
    pub flush_ms: u64,
    /// Rows of decisions that are written together, whichever comes first.
    pub flush_decisions: u64,
    /// Decisions that may wait for the disk; beyond it rows are dropped and counted in `gaps`.
    pub queue_decisions: u64,
    /// What is kept.
    pub retention: Retention,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            path: PathBuf::from("history.db"),
            flush_ms: 250,
            flush_decisions: 500,
            queue_decisions: 50_000,
            retention: Retention::default(),
        }
    }
}

/// What the history database keeps; pruned in small steps.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Retention {
    /// Rows older than this go, days.
    pub max_age_days: f64,
    /// The oldest rows go when the file is larger than this, MiB.
    pub max_size_mb: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { max_age_days: 30.0, max_size_mb: 10_240 }
    }
}

/// The prefix index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Index {
    /// Prompt bytes per hashed block.
    pub block_bytes: u64,
    /// Memory the index may use, bytes.
    pub max_bytes: u64,
}

impl Default for Index {
    fn default() -> Self {
        Self { block_bytes: 256, max_bytes: 512 << 20 }
    }
}

/// The round-trip probe, on its own warm connection per replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Probe {
    /// Time between probes, ms; ± 10 % jitter.
    pub interval_ms: u64,
    /// A probe without an answer by then is lost, and counts as this long, ms.
    pub timeout_ms: u64,
    /// Age at which a measurement counts half, ms.
    pub half_life_ms: u64,
}

impl Default for Probe {
    fn default() -> Self {
        Self { interval_ms: 2_000, timeout_ms: 2_000, half_life_ms: 4_000 }
    }
}

/// Reading the engines' metrics pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Scrape {
    /// Time between reads, ms.
    pub interval_ms: u64,
    /// A report older than this is unknown, never idle, ms.
    pub stale_after_ms: u64,
}

impl Default for Scrape {
    fn default() -> Self {
        Self { interval_ms: 2_000, stale_after_ms: 10_000 }
    }
}

/// Retries before the client got a byte.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Failover {
    /// Attempts per request, the first included.
    pub max_attempts: u32,
    /// Retries / requests over 10 s, 0 to 1.
    pub budget_share: f64,
    /// When a second replica is raced.
    pub hedge: Hedge,
}

impl Default for Failover {
    fn default() -> Self {
        Self { max_attempts: 2, budget_share: 0.10, hedge: Hedge::default() }
    }
}

/// When a second replica is raced against one that is late with its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Hedge {
    /// × the predicted p99 to the first byte.
    pub after: f64,
    /// Never before this, ms.
    pub min_ms: u64,
}

impl Default for Hedge {
    fn default() -> Self {
        Self { after: 4.0, min_ms: 500 }
    }
}

/// One `[[replica]]`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplicaSection {
    /// Unique name.
    pub name: String,
    /// Whether it is used at all.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Region; the replica's name where absent.
    #[serde(default)]
    pub region: Option<String>,
    /// `sglang`, `vllm`, `llama-cpp`, `openai` or `simulated`.
    pub engine: String,
    /// Base address of a real engine, `http://host:port`.
    #[serde(default)]
    pub url: Option<String>,
    /// Protocol towards the engine: `1.1` or `2`.
    #[serde(default)]
    pub http: HttpVersion,
    /// Models it serves; empty: learned from its `/v1/models`.
    #[serde(default)]
    pub models: Vec<String>,
    /// Environment variable that holds the engine's API key.
    #[serde(default)]
    pub api_key_env: Option<String>,
    /// KV cache capacity, tokens; else learned from the engine.
    #[serde(default)]
    pub kv_capacity_tokens: Option<u64>,
    /// The simulated engine's settings; only with `engine = "simulated"`.
    #[serde(default)]
    pub simulated: Option<Simulated>,
}

/// Protocol towards an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
pub enum HttpVersion {
    /// HTTP/1.1
    #[default]
    #[serde(rename = "1.1")]
    Http1,
    /// HTTP/2 with prior knowledge
    #[serde(rename = "2")]
    Http2,
}

const fn yes() -> bool {
    true
}

/// Settings of a simulated engine.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Simulated {
    /// Round trip between router and engine, ms.
    pub rtt_ms: f64,
    /// GPU profile, e.g. `l40s-qwen3.5-35b`.
    pub profile: String,
    /// Divides all times of the engine (not the network's).
    pub speed: f64,
}

impl Default for Simulated {
    fn default() -> Self {
        Self { rtt_ms: 1.0, profile: "l40s-qwen3.5-35b".to_owned(), speed: 1.0 }
    }
}
