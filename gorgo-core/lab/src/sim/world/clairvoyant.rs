//! A greedy choice that knows what no router knows: each engine's true queue, its true cache, the true round trip.
//!
//! It minimises the predicted time to first token plus a price for the harm to those already there, the objective of
//! the design study without its tail terms; without that price it would ruin everybody's answers. Greedy, so no bound:
//! a router that thinks ahead may beat it.

use crate::sim::{Engine, Profile};

/// Price of a ms of stall of another's answer, in ms of one's own first token (μ of the study).
const HARM: f64 = 0.5;
/// Fixed GPU time by which a prefill stalls the others, ms (φ of the study).
const STALL_MS: f64 = 60.0;

/// What is known of one replica.
#[derive(Debug)]
pub(super) struct Outlook<'a> {
    pub(super) engine: &'a Engine,
    /// Round trip, ms, uploads included.
    pub(super) way_ms: f64,
    /// Time until the running step ends, ms.
    pub(super) step_ms: f64,
    /// Prefill tokens on their way there.
    pub(super) coming_tokens: u64,
    /// Requests there and on their way.
    pub(super) inflight: u32,
    /// Tokens of this request's prompt that must be computed there.
    pub(super) uncached_tokens: u32,
}

impl Outlook<'_> {
    /// Its cost, ms.
    #[expect(clippy::cast_precision_loss, reason = "queued tokens are far below 2^53")]
    pub(super) fn cost_ms(&self) -> f64 {
        let profile: &Profile = self.engine.profile();
        let speed = self.engine.speed();
        let own = f64::from(self.uncached_tokens);
        let tokens = (self.engine.prefill_ahead() + self.coming_tokens) as f64 + own;
        let batches = (tokens / f64::from(profile.chunk_tokens)).ceil();
        let prefill_ms = (batches * profile.prefill_batch_ms + tokens * profile.prefill_token_ms) / speed;
        let before_ms = (self.way_ms / 2.0 + profile.host_ms / speed).max(self.step_ms);
        let first_token_ms = before_ms + prefill_ms + self.way_ms / 2.0;
        let harm_ms = f64::from(self.inflight) * (profile.prefill_token_ms * own + STALL_MS) / speed;
        first_token_ms + HARM * harm_ms
    }
}
