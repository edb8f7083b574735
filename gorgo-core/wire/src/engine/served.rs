//! A request that an engine answers, for whoever learns from it beside the requests.

use std::sync::Arc;

use bytes::Bytes;

use gorgo_routing::model::{DecisionId, Prompt, ReplicaId};

/// A request that an engine answers: the first byte of its answer has come.
#[derive(Debug, Clone, Copy)]
pub struct Served<'a> {
    /// Which engine.
    pub replica: ReplicaId,
    /// The request's decision.
    pub decision: DecisionId,
    /// As it was read.
    pub prompt: &'a Arc<Prompt>,
    /// As the client sent it, unpacked.
    pub body: &'a Bytes,
}

/// Is told of each request that an engine answers. Called on the hot path, so it must not wait.
pub type TellServed = Arc<dyn Fn(&Served<'_>) + Send + Sync>;
