//! What the data plane asks of the router: read a body, choose and reserve, give the reservation back.
//!
//! The wires are tested against a few lines that implement this, and know nothing of facts and policies.

use std::sync::Arc;

use crate::model::{At, DecisionId, DecisionRecord, Ending, PolicyId, Prompt, ReplicaId};
use crate::policy::{DecideError, ReadError, Reservation, Router};

/// Chooses replicas.
pub trait Choose: Send + Sync {
    /// Reads a request body, see [`Router::read`].
    ///
    /// # Errors
    /// Where the body is not what the path needs.
    fn read(&self, path: &str, body: &[u8], session: Option<&[u8]>, key: Option<&[u8]>) -> Result<Prompt, ReadError>;

    /// Selects and reserves in one step, see [`Router::decide`].
    ///
    /// # Errors
    /// Who could not be chosen; nothing is reserved then.
    fn decide(&self, prompt: &Prompt, call: &Call<'_>) -> Result<Choice, DecideError>;
}

/// The circumstances of a decision.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// By which policy.
    pub policy: PolicyId,
    /// Of which request.
    pub id: DecisionId,
    /// The only randomness.
    pub seed: u64,
    /// When.
    pub at: At,
    /// Replicas that this request already tried.
    pub exclude: &'a [ReplicaId],
}

/// A chosen replica.
pub struct Choice {
    /// The row for the store, complete but for the time that deciding took.
    pub record: Box<DecisionRecord>,
    /// The load that was reserved.
    pub lease: Box<dyn Lease>,
    /// TTFT predicted there, ms.
    pub predicted_ttft_ms: Option<f64>,
    /// Tokens believed cached there.
    pub predicted_cached_tokens: u32,
}

/// Work reserved at a replica. Whoever holds it must finish it, once; `AttemptGuard` sees to that.
pub trait Lease: Send + Sync {
    /// Where.
    fn replica(&self) -> ReplicaId;
    /// The request produced its first content.
    fn first_token(&mut self, at: At);
    /// The request ended, well or not.
    fn finish(self: Box<Self>, prompt: &Prompt, ending: &Ending, at: At);
}

/// The real router as the data plane sees it.
#[derive(Debug, Clone)]
pub struct RouterChoice(pub Arc<Router>);

struct RouterLease {
    router: Arc<Router>,
    reservation: Reservation,
}

impl Choose for RouterChoice {
    fn read(&self, path: &str, body: &[u8], session: Option<&[u8]>, key: Option<&[u8]>) -> Result<Prompt, ReadError> {
        self.0.read(path, body, session, key)
    }

    fn decide(&self, prompt: &Prompt, call: &Call<'_>) -> Result<Choice, DecideError> {
        let routed = self.0.decide(prompt, call.policy, call.id, call.seed, call.at, call.exclude)?;
        Ok(Choice {
            record: routed.record,
            lease: Box::new(RouterLease { router: Arc::clone(&self.0), reservation: routed.reservation }),
            predicted_ttft_ms: routed.predicted_ttft_ms,
            predicted_cached_tokens: routed.predicted_cached_tokens,
        })
    }
}

impl Lease for RouterLease {
    fn replica(&self) -> ReplicaId {
        self.reservation.replica()
    }

    fn first_token(&mut self, at: At) {
        self.router.first_token(&mut self.reservation, at);
    }

    fn finish(self: Box<Self>, prompt: &Prompt, ending: &Ending, at: At) {
        self.router.finish(self.reservation, prompt, ending, at);
    }
}
