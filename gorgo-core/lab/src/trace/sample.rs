//! What was measured on one request of a replay or a simulation.

use std::sync::Arc;

use gorgo_routing::model::{ErrorClass, Usage};

/// One request's measurements. Times are ms; `scheduled_ms` and `sent_ms` count from the start of the run, the others
/// from the actual send, so that a late load generator does not colour them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sample {
    /// Position of the request in the trace file, from 0.
    pub row: usize,
    /// The trace's own name for it.
    pub id: Option<Arc<str>>,
    /// Prompt tokens by the trace.
    pub input_tokens: u32,
    /// When the trace would have sent it.
    pub scheduled_ms: f64,
    /// When it was handed to its connection.
    pub sent_ms: f64,
    /// Time it waited for a free slot under the limit of requests in flight; part of the slip.
    pub slot_wait_ms: f64,
    /// How often it was sent again before this answer, where the client was told to; its times count from the first.
    pub retries: u32,
    /// First generated content; `None` where none came.
    pub ttft_ms: Option<f64>,
    /// Last byte, or the failure.
    pub e2e_ms: f64,
    /// (last content − first content) / (completion tokens − 1); `None` below two tokens.
    pub itl_ms: Option<f64>,
    /// Events that carried content.
    pub content_events: u32,
    /// What the engine counted.
    pub usage: Usage,
    /// Who served it (`x-gorgo-replica`).
    pub replica: Option<Arc<str>>,
    /// The router's decision (`x-gorgo-decision`), to join with its database.
    pub decision: Option<u64>,
    /// Response status; `None` where no response came.
    pub status: Option<u16>,
    /// What went wrong, as this client saw it: upstream is the server it talked to.
    pub error: Option<ErrorClass>,
    /// The server's or the system's words on that.
    pub detail: Option<Arc<str>>,
}

impl Sample {
    /// How late it was sent, ms.
    #[must_use]
    pub fn slip_ms(&self) -> f64 {
        (self.sent_ms - self.scheduled_ms).max(0.0)
    }
}
