//! A request on its way.

use crate::trace::Sample;
use gorgo_routing::model::{At, DecisionId, ErrorClass, Prompt, ReplicaId, Usage};
use gorgo_routing::policy::{Held, Reservation};

/// What the world knows of a request between send and end.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) prompt: Prompt,
    /// `None` where no router decided.
    pub(super) reservation: Option<Reservation>,
    /// Its place at the router's gate, while it waits there.
    pub(super) held: Option<Held>,
    /// How often it was held.
    pub(super) looks: u32,
    /// The randomness of this attempt's decisions.
    pub(super) seed: u64,
    pub(super) replica: ReplicaId,
    /// Its decision, once it was routed or refused.
    pub(super) decision: Option<DecisionId>,
    /// The same, from when it came to the router.
    pub(super) asked: Option<DecisionId>,
    /// Replicas that failed it.
    pub(super) tried: Vec<ReplicaId>,
    /// Counts from 1; what belongs to an earlier attempt is ignored.
    pub(super) attempt: u32,
    /// The client's send.
    pub(super) sent: At,
    /// This attempt's send.
    pub(super) dispatched: At,
    /// One direction of this attempt's round trip, µs.
    pub(super) half_us: u64,
    /// What its prefill costs by what is cached at its dispatch, tokens; only where a clairvoyant decided.
    pub(super) uncached_tokens: u32,
    /// TTFT that the router predicted for this attempt, ms.
    pub(super) predicted_ttft_ms: Option<f64>,
    /// Tokens that it believed cached.
    pub(super) predicted_cached_tokens: Option<u32>,
    /// Whether it is in the engine now.
    pub(super) in_engine: bool,
    /// When the router read the first token.
    pub(super) first: Option<At>,
    /// Whether the engine computed its prompt.
    pub(super) prefilled: bool,
    pub(super) cached_tokens: Option<u32>,
    pub(super) generated: u32,
    /// Why its attempt failed, from when that is sure.
    pub(super) failure: Option<ErrorClass>,
    /// Lowest TTFT that was possible, ms.
    pub(super) bound_ms: f64,
}

impl Live {
    /// Its measurements when it ends at `at`.
    pub(super) fn measured(&self, at: At, mut sample: Sample) -> Sample {
        sample.ttft_ms = self.first.map(|first| first.millis_since(self.sent));
        sample.e2e_ms = at.millis_since(self.sent);
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

    /// The status that its client gets if it ends now.
    pub(super) const fn status(&self) -> u16 {
        match self.failure {
            Some(ErrorClass::ClientError) => 400,
            Some(ErrorClass::Refused) => 429,
            Some(_) if self.first.is_none() => 502,
            _ => 200,
        }
    }

    /// What the engine says at the end.
    pub(super) fn usage(&self) -> Usage {
        if self.failure.is_some() {
            return Usage::default();
        }
        Usage {
            prompt_tokens: u32::try_from(self.prompt.prompt_bytes / 4).ok(),
            cached_tokens: self.cached_tokens,
            completion_tokens: Some(self.generated),
        }
    }
}
