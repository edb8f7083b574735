//! A greedy choice that knows what no router knows: each engine's true queue, its true cache, and the true round trip.
//!
//! The choice minimises the predicted time to first token plus a price for the delay of requests already at the
//! replica. Without that price it would ruin the answers of all others. Since it is greedy, it is no bound: a router
//! that plans ahead may beat it.

use crate::sim::{EngineProfile, SimulatedEngine};

/// Price of 1 ms of stall of another request's answer, in ms of this request's own TTFT.
const HARM: f64 = 0.5;
/// Fixed GPU time by which a prefill stalls other requests, ms; about that of a prefill batch.
const STALL_MS: f64 = 60.0;

/// True state of one replica.
#[derive(Debug)]
pub(super) struct ReplicaOutlook<'a> {
    pub(super) engine: &'a SimulatedEngine,
    /// Round trip, ms, including the upload.
    pub(super) rtt_ms: f64,
    /// Time until the running step ends, ms.
    pub(super) step_ms: f64,
    /// Prefill tokens on their way to it.
    pub(super) tokens_in_transit: u64,
    /// Requests at it and on their way to it.
    pub(super) inflight: u32,
    /// Tokens of this request's prompt that must be computed there.
    pub(super) uncached_tokens: u32,
}

impl ReplicaOutlook<'_> {
    /// Returns the cost of sending the request there, ms.
    #[expect(clippy::cast_precision_loss, reason = "queued tokens are far below 2^53")]
    pub(super) fn cost_ms(&self) -> f64 {
        let profile: &EngineProfile = self.engine.profile();
        let speed = self.engine.speed();
        let own = f64::from(self.uncached_tokens);
        let tokens = (self.engine.queued_prefill_tokens() + self.tokens_in_transit) as f64 + own;
        let batches = (tokens / f64::from(profile.chunk_tokens)).ceil();
        let prefill_ms = (batches * profile.prefill_batch_ms + tokens * profile.prefill_token_ms) / speed;
        // The request travels while the running step goes on: the later of the two ends the wait.
        let before_ms = (self.rtt_ms / 2.0 + profile.host_ms / speed).max(self.step_ms);
        let first_token_ms = before_ms + prefill_ms + self.rtt_ms / 2.0;
        // While the prompt is prefilled, no other request at the replica gets a token.
        let harm_ms = f64::from(self.inflight) * (profile.prefill_token_ms * own + STALL_MS) / speed;
        first_token_ms + HARM * harm_ms
    }
}
