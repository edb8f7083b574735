//! Sections of `policies.toml`: every fixed key with its default, unit and range, documented at its field. The doc
//! comments become the descriptions in the JSON schema. Policies remain raw values here; `policy::build` turns them
//! into policies, because only it knows the kinds.
//!
//! Ranges and closed lists are defined only here, as schema attributes: `shape` checks values against the schema that
//! editors get, so the two cannot differ.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::endpoint::EngineUrl;
use crate::model::ConfigValue;

/// Complete configuration, all layers merged and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `[server]`
    pub server: ServerConfig,
    /// `[admin]`
    pub admin: AdminConfig,
    /// `[log]`
    pub log: LogConfig,
    /// `[store]`
    pub store: StoreConfig,
    /// `[index]`
    pub index: IndexConfig,
    /// `[probe]`
    pub probe: ProbeConfig,
    /// `[scrape]`
    pub scrape: ScrapeConfig,
    /// `[failover]`
    pub failover: FailoverConfig,
    /// `[[replica]]`, including disabled ones.
    pub replicas: Vec<ReplicaConfig>,
    /// Name of the policy that serves.
    pub default_policy: String,
    /// `[policy.NAME]` tables of the file, in file order; of the presets only those that a variable or a flag changes.
    pub policies: Vec<(String, ConfigValue)>,
    /// Folder to which relative paths are relative: that of the file.
    pub base: PathBuf,
}

/// The configuration of gorgo: listeners, replicas, and the policies that choose among them.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ConfigDocument {
    /// The policy that serves: a preset, or a `[policy.NAME]` of this file.
    pub(super) default_policy: String,
    /// The listener for clients.
    pub(super) server: ServerConfig,
    /// The listener for operators.
    pub(super) admin: AdminConfig,
    /// Log lines on standard error.
    pub(super) log: LogConfig,
    /// The history database.
    pub(super) store: StoreConfig,
    /// The prefix index.
    pub(super) index: IndexConfig,
    /// The round-trip probe.
    pub(super) probe: ProbeConfig,
    /// Reading the engines' metrics pages.
    pub(super) scrape: ScrapeConfig,
    /// Retries before the client has received a byte.
    pub(super) failover: FailoverConfig,
    /// The fleet.
    pub(super) replica: Vec<ReplicaConfig>,
    /// Policies by name; a preset of the same name is replaced.
    pub(super) policy: BTreeMap<String, serde_json::Map<String, serde_json::Value>>,
}

impl Default for ConfigDocument {
    fn default() -> Self {
        Self {
            default_policy: "predicted-latency".to_owned(),
            server: ServerConfig::default(),
            admin: AdminConfig::default(),
            log: LogConfig::default(),
            store: StoreConfig::default(),
            index: IndexConfig::default(),
            probe: ProbeConfig::default(),
            scrape: ScrapeConfig::default(),
            failover: FailoverConfig::default(),
            replica: Vec::new(),
            policy: BTreeMap::new(),
        }
    }
}

/// The listener for clients.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Address and port to listen on.
    pub listen: String,
    /// Send `x-gorgo-replica` (name) and `x-gorgo-decision` (decimal id) with every answer.
    pub headers: bool,
    /// Header that names the session. Without it: the body's `user`, then a hash of the API key, then of the prompt's
    /// head.
    pub session_header: String,
    /// Pass on paths outside `/v1`, such as an engine's own `/metrics` or `/flush_cache`; false: answer 404. Paths of
    /// the inference APIs and those under `/v1` are always served.
    pub pass_engine_paths: bool,
    /// Largest request body, bytes; 413 above.
    #[schemars(range(min = 1_024, max = 17_179_869_184_i64))]
    pub max_body_bytes: u64,
    /// Limit on all request bodies held in memory at the same time, bytes; 503 above.
    #[schemars(range(min = 1_024, max = 1_099_511_627_776_i64))]
    pub max_buffered_bytes: u64,
    /// Time that a client has to send a request's head, and may be idle between two requests, ms.
    #[schemars(range(min = 100, max = 86_400_000))]
    pub head_timeout_ms: u64,
    /// Time to connect to a replica, ms.
    #[schemars(range(min = 1, max = 600_000))]
    pub connect_timeout_ms: u64,
    /// Number of open connections to each replica beyond those recently busy at the same time, so that a request need
    /// not dial and pay another round trip; 0: none is opened ahead.
    #[schemars(range(min = 0, max = 256))]
    pub spare_connections: u64,
    /// Idle time after which a connection to a replica is not reused, ms. Engines close theirs after 5 s by default; if
    /// an engine announces a shorter time (`Keep-Alive: timeout`), that applies.
    #[schemars(range(min = 100, max = 86_400_000))]
    pub keep_idle_ms: u64,
    /// Congestion control of the connections to replicas, such as `cubic`, on Linux; empty: the system's default.
    #[schemars(length(max = 15))]
    pub congestion_control: String,
    /// Hard limit until the first byte of the answer's body, ms.
    #[schemars(range(min = 1, max = 86_400_000))]
    pub first_byte_timeout_ms: u64,
    /// Longest silence between two reads of a response, ms; the total time is not limited.
    #[schemars(range(min = 1, max = 86_400_000))]
    pub idle_timeout_ms: u64,
    /// Time that a shutdown waits for running requests, s.
    #[schemars(range(min = 0, max = 86_400))]
    pub drain_secs: u64,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8080".to_owned(),
            headers: true,
            session_header: "x-session-id".to_owned(),
            pass_engine_paths: true,
            max_body_bytes: 64 << 20,
            max_buffered_bytes: 1 << 30,
            head_timeout_ms: 60_000,
            connect_timeout_ms: 2_000,
            spare_connections: 4,
            // Shorter than the 5 s after which engines close idle connections, so that none is reused while it is being
            // closed.
            keep_idle_ms: 4_000,
            congestion_control: String::new(),
            first_byte_timeout_ms: 120_000,
            idle_timeout_ms: 60_000,
            drain_secs: 30,
        }
    }
}

/// The listener for operators: `GET /metrics`, `/health`, `/ready`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdminConfig {
    /// Address and port to listen on.
    pub listen: String,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self { listen: "127.0.0.1:9090".to_owned() }
    }
}

/// Log lines on standard error.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Filter of log lines: a tracing filter such as `info` or `info,gorgo_observe=debug`.
    pub filter: String,
    /// `text` or `json`.
    pub format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { filter: "info".to_owned(), format: LogFormat::Text }
    }
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The history database.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// SQLite file, relative to the folder of this file.
    pub path: PathBuf,
    /// Longest time that a row waits to be written, ms.
    #[schemars(range(min = 1, max = 60_000))]
    pub flush_ms: u64,
    /// Number of decisions that are written together; they are written when this or `flush_ms` is reached.
    #[schemars(range(min = 1, max = 100_000))]
    pub flush_decisions: u64,
    /// Number of decisions that may wait for the disk; beyond, rows are dropped and counted in `gaps`.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub queue_decisions: u64,
    /// Limits on what is kept.
    pub retention: RetentionConfig,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            path: PathBuf::from("history.db"),
            flush_ms: 250,
            flush_decisions: 500,
            queue_decisions: 50_000,
            retention: RetentionConfig::default(),
        }
    }
}

/// Limits on what the history database keeps; pruned in small steps.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionConfig {
    /// Age beyond which rows are deleted, days.
    #[schemars(range(min = 0.001, max = 36_500.0))]
    pub max_age_days: f64,
    /// Size of the file beyond which the oldest rows are deleted, MiB.
    #[schemars(range(min = 1, max = 1_073_741_824))]
    pub max_size_mb: u64,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self { max_age_days: 30.0, max_size_mb: 10_240 }
    }
}

/// The prefix index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IndexConfig {
    /// Prompt bytes per hashed block.
    #[schemars(range(min = 16, max = 65_536))]
    pub block_bytes: u64,
    /// Memory that the index may use, bytes.
    #[schemars(range(min = 1_048_576, max = 1_099_511_627_776_i64))]
    pub max_bytes: u64,
    /// Time between two snapshots for a restart, ms: the part of the index that a killed router loses.
    #[schemars(range(min = 100, max = 86_400_000))]
    pub snapshot_ms: u64,
    /// Greatest age of a snapshot that is used at a start, seconds: engines evict, and serve other routers as well.
    #[schemars(range(min = 1, max = 2_592_000))]
    pub snapshot_max_age_secs: u64,
}

impl Default for IndexConfig {
    fn default() -> Self {
        // A block of 256 bytes is about 64 tokens of English.
        Self { block_bytes: 256, max_bytes: 512 << 20, snapshot_ms: 30_000, snapshot_max_age_secs: 3_600 }
    }
}

/// The round-trip probe, on its own warm connection per replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProbeConfig {
    /// Time between probes, ms; ± 10 % jitter.
    #[schemars(range(min = 10, max = 3_600_000))]
    pub interval_ms: u64,
    /// Time after which a probe without an answer is lost, and the value it then counts as, ms.
    #[schemars(range(min = 1, max = 600_000))]
    pub timeout_ms: u64,
    /// Age at which a measurement counts half, ms.
    #[schemars(range(min = 1, max = 86_400_000))]
    pub half_life_ms: u64,
}

impl Default for ProbeConfig {
    fn default() -> Self {
        // With a half-life of two intervals, the last few probes dominate.
        Self { interval_ms: 2_000, timeout_ms: 2_000, half_life_ms: 4_000 }
    }
}

/// Reading the engines' metrics pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScrapeConfig {
    /// Time between reads, ms.
    #[schemars(range(min = 10, max = 3_600_000))]
    pub interval_ms: u64,
    /// Age beyond which a report is unknown (never idle), ms.
    #[schemars(range(min = 10, max = 86_400_000))]
    pub stale_after_ms: u64,
}

impl Default for ScrapeConfig {
    fn default() -> Self {
        // Five intervals: a few lost pages do not make a replica unknown.
        Self { interval_ms: 2_000, stale_after_ms: 10_000 }
    }
}

/// Retries before the client has received a byte.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FailoverConfig {
    /// Attempts per request, including the first; failed connections are not counted, unless the limit is 1.
    #[schemars(range(min = 1, max = 10))]
    pub max_attempts: u32,
    /// Budget: (retries + hedged attempts) / requests over 10 s, 0 to 1; ten in 10 s are always allowed.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub budget_share: f64,
    /// Delay before a second replica is tried in parallel.
    pub hedge: HedgeConfig,
}

impl Default for FailoverConfig {
    fn default() -> Self {
        Self { max_attempts: 2, budget_share: 0.10, hedge: HedgeConfig::default() }
    }
}

/// Delay before a second replica is tried in parallel with one that is late with its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HedgeConfig {
    /// Delay as a multiple of the predicted p99 time to the first byte. Only streams are hedged.
    #[schemars(range(min = 0.1, max = 1_000.0))]
    pub after: f64,
    /// Shortest delay, ms.
    #[schemars(range(min = 0, max = 600_000))]
    pub min_ms: u64,
}

impl Default for HedgeConfig {
    fn default() -> Self {
        Self { after: 4.0, min_ms: 500 }
    }
}

/// One `[[replica]]`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplicaConfig {
    /// Unique name.
    pub name: String,
    /// Use this replica; false: ignore it.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Region; default: the replica's name.
    #[serde(default)]
    pub region: Option<String>,
    /// Kind of its engine; `gorgo kinds` lists them.
    #[schemars(extend("enum" = crate::model::EngineKind::names()))]
    pub engine: String,
    /// Base address of a real engine, `http://host:port`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub url: Option<EngineUrl>,
    /// Protocol towards the engine: `1.1` or `2`.
    #[serde(default)]
    pub http: HttpVersion,
    /// Models that it serves; empty: learned from its `/v1/models`.
    #[serde(default)]
    pub models: Vec<String>,
    /// Environment variable that holds the engine's API key.
    #[serde(default)]
    pub api_key_env: Option<String>,
    /// KV cache capacity, tokens; default: learned from the engine.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000_000_000_i64))]
    pub kv_capacity_tokens: Option<u64>,
    /// Largest batch that the engine decodes cheaply (its largest CUDA graph), requests: the basis of
    /// `[policy.NAME.admission]`; default: learned from the engine, if it reports one.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100_000))]
    pub decode_batch: Option<u32>,
    /// Address at which the engine publishes its cache events (ZeroMQ): `tcp://host:port` or `ipc://path` to connect to
    /// it, `tcp://*:port` if it connects to gorgo. The index then knows what the engine holds.
    #[serde(default)]
    pub kv_events: Option<String>,
    /// Address at which missed events can be requested; only with `kv_events`.
    #[serde(default)]
    pub kv_replay: Option<String>,
    /// Settings of the simulated engine; only with `engine = "simulated"`.
    #[serde(default)]
    pub simulated: Option<SimulatedEngineConfig>,
}

/// Protocol towards an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SimulatedEngineConfig {
    /// Round trip between router and engine, ms.
    #[schemars(range(min = 0.0, max = 60_000.0))]
    pub rtt_ms: f64,
    /// GPU profile, e.g. `l40s-qwen3.5-35b`.
    pub profile: String,
    /// Divisor of all times of the engine (not of the network).
    #[schemars(range(min = 0.001, max = 100_000.0))]
    pub speed: f64,
}

impl Default for SimulatedEngineConfig {
    fn default() -> Self {
        Self { rtt_ms: 1.0, profile: "l40s-qwen3.5-35b".to_owned(), speed: 1.0 }
    }
}
