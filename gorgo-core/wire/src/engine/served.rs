//! Report of a request that an engine answers, for those who learn from it beside the requests.

use std::sync::Arc;

use bytes::Bytes;

use gorgo_routing::model::{DecisionId, ParsedRequest, ReplicaId};

/// Request that an engine answers: the first byte of its response has arrived.
#[derive(Debug, Clone, Copy)]
pub struct ServedRequest<'a> {
    /// Replica that answers.
    pub replica: ReplicaId,
    /// Decision of the request.
    pub decision: DecisionId,
    /// Prompt as it was read.
    pub prompt: &'a Arc<ParsedRequest>,
    /// Body as the client sent it.
    pub body: &'a Bytes,
}

/// Callback for each request that an engine answers. Called on the hot path, so it must not wait.
pub type ServedCallback = Arc<dyn Fn(&ServedRequest<'_>) + Send + Sync>;
