//! Observations of replicas and requests. Facts change only by these (and by reservations): live, in the simulator and at a
//! warm restart alike.

use std::sync::Arc;

use super::{ReplicaId, TokenUsage, UnixMicros};

/// One engine metrics page, as far as gorgo reads it. `None`: the engine does not report it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EngineReport {
    /// Running requests.
    pub running: Option<f64>,
    /// Waiting requests.
    pub waiting: Option<f64>,
    /// KV tokens in use.
    pub kv_used_tokens: Option<f64>,
    /// Share of the KV cache in use, 0 to 1.
    pub kv_used_share: Option<f64>,
    /// KV capacity, tokens.
    pub kv_capacity_tokens: Option<u64>,
    /// Generation throughput, tokens/s.
    pub throughput: Option<f64>,
    /// Largest batch that the engine decodes cheaply: the largest with a captured graph, requests.
    pub decode_batch: Option<u32>,
    /// Most requests that the engine runs at once.
    pub max_running: Option<u32>,
    /// Process start time, seconds, if reported; it changes when the engine restarted.
    pub started_secs: Option<f64>,
    /// Prompt tokens that the engine has read since it started, if reported; a decrease means that it restarted.
    pub prompt_tokens_total: Option<f64>,
}

/// Observation of a replica.
#[derive(Debug, Clone, PartialEq)]
pub enum FleetEvent {
    /// A probe came back, or was lost (`rtt_ms: None`, counted as at least the time-out).
    Probe {
        /// Observed replica.
        replica: ReplicaId,
        /// When.
        at: UnixMicros,
        /// Round trip, ms.
        rtt_ms: Option<f64>,
    },
    /// The kernel's estimate for a live upstream connection (`TCP_INFO`).
    KernelRtt {
        /// Observed replica.
        replica: ReplicaId,
        /// When.
        at: UnixMicros,
        /// Smoothed round trip, ms.
        smoothed_ms: f64,
        /// Least round trip that the kernel saw on the connection, ms.
        min_ms: f64,
    },
    /// A metrics page was read.
    Report {
        /// Observed replica.
        replica: ReplicaId,
        /// When.
        at: UnixMicros,
        /// Content of the page.
        report: EngineReport,
    },
    /// The models that a replica reports (`/v1/models`); replaces what was known.
    Models {
        /// Replica that serves them.
        replica: ReplicaId,
        /// Their names.
        models: Vec<Arc<str>>,
    },
    /// The replica can be used.
    Up {
        /// Observed replica.
        replica: ReplicaId,
    },
    /// The replica cannot be used.
    Down {
        /// Observed replica.
        replica: ReplicaId,
    },
    /// The engine restarted in place: its cache is empty.
    Restarted {
        /// Observed replica.
        replica: ReplicaId,
    },
}

/// How a request ended, as far as it matters to facts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RequestOutcome {
    /// Tokens that the engine counted, if it reported them.
    pub usage: TokenUsage,
    /// Time from dispatch to the first generated content, ms; `None` where none came.
    pub ttft_ms: Option<f64>,
    /// True if the request ended well. A failure teaches no rate and confirms no prefix.
    pub completed: bool,
}
