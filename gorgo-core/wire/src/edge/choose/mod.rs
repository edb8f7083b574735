//! Interface between data plane and router: read a body, choose and reserve a replica, release the reservation.
//!
//! The data plane's tests implement this in a few lines, without facts and policies.

pub(super) mod admission;
mod router_ticket;

use std::pin::Pin;
use std::sync::Arc;

use super::choose::router_ticket::{Calls, Waiting};
use gorgo_routing::model::{At, Clock, DecisionRecord, Ending, PolicyBuildId, PolicyIndex, Prompt, ReplicaId};
use gorgo_routing::policy::{DecideError, DecisionContext, Entered, ReadError, Reservation, Routed, Router};

/// Chooses replicas.
pub trait Choose: Send + Sync {
    /// Reads a request body, see [`Router::read`].
    ///
    /// # Errors
    /// The body is not valid for the path.
    fn read(&self, path: &str, body: &[u8], session: Option<&[u8]>, key: Option<&[u8]>) -> Result<Prompt, ReadError>;

    /// Selects and reserves in one step, see [`Router::decide`].
    ///
    /// # Errors
    /// Why no replica could be chosen; nothing is reserved then.
    fn decide(&self, prompt: &Prompt, context: &DecisionContext<'_>) -> Result<Choice, DecideError>;

    /// Current build of a policy, see [`Router::active_build`].
    fn active_build(&self, policy: PolicyIndex) -> PolicyBuildId;

    /// Like `decide`, but the request may have to wait at the gate, see [`Router::enter`].
    ///
    /// # Errors
    /// Why no replica could be chosen; nothing is reserved then.
    fn enter(&self, prompt: &Prompt, context: &DecisionContext<'_>) -> Result<Entry, DecideError> {
        self.decide(prompt, context).map(Entry::Chosen)
    }
}

/// Result of entering the gate.
pub enum Entry {
    /// Routed to a replica.
    Chosen(Choice),
    /// Waits at the gate.
    Waits(Box<dyn Place>),
}

/// Place in a queue at the gate; dropping it gives it up.
pub trait Place: Send + Sync {
    /// Replica whose queue it is.
    fn replica(&self) -> ReplicaId;
    /// Number of times that the request was decided again and moved to another replica.
    fn moves(&self) -> u16;
    /// Completes when the request must be decided again.
    fn called(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    /// Decides again.
    ///
    /// # Errors
    /// Why no replica could be chosen; the place is given up then.
    fn enter_again(self: Box<Self>, prompt: &Prompt, context: &DecisionContext<'_>) -> Result<Entry, DecideError>;
}

/// Chosen replica.
pub struct Choice {
    /// Row for the store, complete except for the time that the decision took.
    pub record: Box<DecisionRecord>,
    /// Load that was reserved.
    pub lease: Box<dyn Lease>,
    /// TTFT predicted there, ms.
    pub predicted_ttft_ms: Option<f64>,
    /// Prompt tokens believed to be cached there.
    pub predicted_cached_tokens: u32,
}

/// Work reserved at a replica. The owner must finish it exactly once; `Attempt` sees to that.
pub trait Lease: Send + Sync {
    /// Replica that it is reserved at.
    fn replica(&self) -> ReplicaId;
    /// Records that the request produced its first content.
    fn first_token(&mut self, at: At);
    /// Releases it when the request has ended, successfully or not.
    fn finish(self: Box<Self>, prompt: &Prompt, ending: &Ending, at: At);
}

/// The real router as the data plane sees it.
#[derive(Clone)]
pub struct RouterChoice {
    pub(super) router: Arc<Router>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) calls: Arc<Calls>,
}

impl RouterChoice {
    /// Decides by `router`; requests that wait at its gate use `clock`.
    #[must_use]
    pub fn new(router: Arc<Router>, clock: Arc<dyn Clock>) -> Self {
        // The router calls waiting requests by number under its lock; the map in `calls` turns that into a wake-up.
        let calls = Arc::new(Calls::default());
        let listener = Arc::clone(&calls);
        router.on_call(move |number| listener.call(number));
        Self { router, clock, calls }
    }

    fn entry(&self, entered: Entered) -> Entry {
        match entered {
            Entered::Routed(routed) => Entry::Chosen(self.choice(*routed)),
            Entered::Held(held) => Entry::Waits(Box::new(Waiting::new(self.clone(), held))),
        }
    }

    pub(super) fn choice(&self, routed: Routed) -> Choice {
        Choice {
            record: routed.record,
            lease: Box::new(RouterLease { router: Arc::clone(&self.router), reservation: routed.reservation }),
            predicted_ttft_ms: routed.predicted_ttft_ms,
            predicted_cached_tokens: routed.predicted_cached_tokens,
        }
    }
}

struct RouterLease {
    router: Arc<Router>,
    reservation: Reservation,
}

impl Choose for RouterChoice {
    fn read(&self, path: &str, body: &[u8], session: Option<&[u8]>, key: Option<&[u8]>) -> Result<Prompt, ReadError> {
        self.router.read(path, body, session, key)
    }

    fn active_build(&self, policy: PolicyIndex) -> PolicyBuildId {
        self.router.active_build(policy)
    }

    fn decide(&self, prompt: &Prompt, context: &DecisionContext<'_>) -> Result<Choice, DecideError> {
        let routed = self.router.decide(prompt, context)?;
        Ok(self.choice(routed))
    }

    fn enter(&self, prompt: &Prompt, context: &DecisionContext<'_>) -> Result<Entry, DecideError> {
        let entered = self.router.enter(prompt, context)?;
        Ok(self.entry(entered))
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
