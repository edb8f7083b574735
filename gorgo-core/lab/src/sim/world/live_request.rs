//! State of a request in flight.

use crate::trace::RequestSample;
use gorgo_routing::model::{DecisionId, ErrorClass, ParsedRequest, ReplicaId, TokenUsage, UnixMicros};
use gorgo_routing::policy::{Reservation, WaitingRequest};

/// State of a request between its send and its end.
#[derive(Debug)]
pub(super) struct LiveRequest {
    pub(super) prompt: ParsedRequest,
    /// Reservation of the current attempt; `None` if no router decided.
    pub(super) reservation: Option<Reservation>,
    /// Position at the router's admission gate while it waits there.
    pub(super) admission_wait: Option<WaitingRequest>,
    /// Number of times that it had to wait at the gate.
    pub(super) rechecks: u32,
    /// Seed of this attempt's decision.
    pub(super) seed: u64,
    pub(super) replica: ReplicaId,
    /// Decision, once it was routed or refused.
    pub(super) decision: Option<DecisionId>,
    /// Id of the decision from its arrival at the router, before it was routed or refused.
    pub(super) pending_decision: Option<DecisionId>,
    /// Replicas at which attempts failed.
    pub(super) tried: Vec<ReplicaId>,
    /// Number of the current attempt, from 1; events of an earlier attempt are ignored.
    pub(super) attempt: u32,
    /// Time at which the client sent it.
    pub(super) sent: UnixMicros,
    /// Time at which this attempt was sent.
    pub(super) dispatched: UnixMicros,
    /// One direction of this attempt's round trip, µs.
    pub(super) half_us: u64,
    /// Uncached tokens of its prompt at dispatch; only if the clairvoyant decided.
    pub(super) uncached_tokens: u32,
    /// TTFT that the router predicted for this attempt, ms.
    pub(super) predicted_ttft_ms: Option<f64>,
    /// Tokens that the router believed cached.
    pub(super) predicted_cached_tokens: Option<u32>,
    /// The request is in the engine now.
    pub(super) in_engine: bool,
    /// Time at which the router read the first token.
    pub(super) first: Option<UnixMicros>,
    /// The engine has computed its prompt.
    pub(super) prefilled: bool,
    pub(super) cached_tokens: Option<u32>,
    pub(super) generated: u32,
    /// Reason why the attempt failed, as soon as that is certain.
    pub(super) failure: Option<ErrorClass>,
    /// Lowest possible TTFT, ms.
    pub(super) bound_ms: f64,
}

impl LiveRequest {
    /// Returns the measurements of a request that ends at `at`.
    pub(super) fn measured(&self, at: UnixMicros, mut sample: RequestSample) -> RequestSample {
        sample.ttft_ms = self.first.map(|first| first.millis_since(self.sent));
        sample.e2e_ms = at.millis_since(self.sent);
        // A mean gap needs two tokens, and a failed answer has no last one.
        if let (Some(first), true, None) = (self.first, self.generated > 1, self.failure) {
            sample.itl_ms = Some(at.millis_since(first) / f64::from(self.generated - 1));
        }
        sample.content_events = self.generated;
        sample.decision = self.decision.and_then(|id| u64::try_from(id.0).ok());
        sample.error = self.failure;
        sample.usage = self.usage();
        sample.status = Some(self.status());
        sample
    }

    /// Returns the status that the client gets if the request ends now.
    pub(super) const fn status(&self) -> u16 {
        match self.failure {
            Some(ErrorClass::ClientError) => 400,
            Some(ErrorClass::Refused) => 429,
            // After the first token the status line has been sent, so a later failure still has status 200.
            Some(_) if self.first.is_none() => 502,
            _ => 200,
        }
    }

    /// Returns the token counts that the engine reports at the end; empty for a failed request.
    pub(super) fn usage(&self) -> TokenUsage {
        if self.failure.is_some() {
            return TokenUsage::default();
        }
        TokenUsage {
            // Four bytes per token, as everywhere in simulated prompts.
            prompt_tokens: u32::try_from(self.prompt.prompt_bytes / 4).ok(),
            cached_tokens: self.cached_tokens,
            completion_tokens: Some(self.generated),
        }
    }
}
