//! What was seen of the world. Facts change only by these (and by reservations), live, in the simulator and at a
//! warm restart alike.

use std::sync::Arc;

use super::{At, ReplicaId, Usage};

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
    /// Largest batch that it decodes cheaply: the largest with a captured graph, requests.
    pub decode_batch: Option<u32>,
    /// Most requests that it runs at once.
    pub max_running: Option<u32>,
    /// Changes when the engine restarted (its process start time, seconds), where it says.
    pub started_secs: Option<f64>,
    /// Prompt tokens that it read since it started, where it says: they fall when it restarted.
    pub prompt_tokens_total: Option<f64>,
}

/// Something that was seen of a replica.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A probe came back, or was lost (`rtt_ms: None`, counted as at least the time-out).
    Probe {
        /// Of which replica.
        replica: ReplicaId,
        /// When.
        at: At,
        /// Round trip, ms.
        rtt_ms: Option<f64>,
    },
    /// The kernel's estimate for a live upstream connection (`TCP_INFO`).
    KernelRtt {
        /// Of which replica.
        replica: ReplicaId,
        /// When.
        at: At,
        /// Smoothed round trip, ms.
        smoothed_ms: f64,
        /// Least round trip the kernel saw on it, ms.
        min_ms: f64,
    },
    /// A metrics page was read.
    Report {
        /// Of which replica.
        replica: ReplicaId,
        /// When.
        at: At,
        /// What it said.
        report: EngineReport,
    },
    /// The models a replica serves, as it says (`/v1/models`); replaces what was known.
    Models {
        /// Of which replica.
        replica: ReplicaId,
        /// Their names.
        models: Vec<Arc<str>>,
    },
    /// The replica can be used.
    Up {
        /// Which.
        replica: ReplicaId,
    },
    /// The replica cannot be used.
    Down {
        /// Which.
        replica: ReplicaId,
    },
    /// The engine restarted in place: its cache is empty.
    Restarted {
        /// Which.
        replica: ReplicaId,
    },
}

/// How a request ended, as far as facts care.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Ending {
    /// What the engine counted, where it said so.
    pub usage: Usage,
    /// Time from dispatch to the first generated content, ms; `None` where none came.
    pub ttft_ms: Option<f64>,
    /// Whether it ended well. A failure teaches no rate and confirms no prefix.
    pub completed: bool,
}
