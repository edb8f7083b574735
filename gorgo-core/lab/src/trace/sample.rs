//! Measurements of one request of a replay or a simulation.

use std::sync::Arc;

use gorgo_routing::model::{ErrorClass, TokenUsage};

/// Measurements of one request. Times are in ms; `scheduled_ms` and `sent_ms` count from the start of the run, the
/// others from the actual send, so that a late load generator does not distort them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestSample {
    /// Position of the request in the trace file, from 0.
    pub row: usize,
    /// Name of the request in the trace.
    pub id: Option<Arc<str>>,
    /// Prompt tokens according to the trace.
    pub input_tokens: u32,
    /// Time at which the trace would have sent it.
    pub scheduled_ms: f64,
    /// Time at which it was handed to its connection.
    pub sent_ms: f64,
    /// Time for which it waited for a free slot under the limit on requests in flight; part of the slip.
    pub slot_wait_ms: f64,
    /// Number of times it was sent again before this answer, if the client is set to retry; times count from the first
    /// send.
    pub retries: u32,
    /// Time to the first generated content; `None` if none came.
    pub ttft_ms: Option<f64>,
    /// Time to the last byte, or to the failure.
    pub e2e_ms: f64,
    /// (last content − first content) / (completion tokens − 1); `None` below two tokens.
    pub itl_ms: Option<f64>,
    /// Number of events that carried content.
    pub content_events: u32,
    /// Token counts that the engine reported.
    pub usage: TokenUsage,
    /// Replica that served it (`x-gorgo-replica`).
    pub replica: Option<Arc<str>>,
    /// Id of the router's decision (`x-gorgo-decision`), to join with its database.
    pub decision: Option<u64>,
    /// Response status; `None` if no response came.
    pub status: Option<u16>,
    /// Error as this client saw it: in its class, "upstream" is the server that the client talked to.
    pub error: Option<ErrorClass>,
    /// Error text of the server or the operating system.
    pub detail: Option<Arc<str>>,
}

impl RequestSample {
    /// Delay with which it was sent, ms.
    #[must_use]
    pub fn slip_ms(&self) -> f64 {
        (self.sent_ms - self.scheduled_ms).max(0.0)
    }
}
