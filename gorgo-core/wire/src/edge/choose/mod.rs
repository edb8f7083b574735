//! Step 3 of a request: a replica is chosen, and the request waits until that replica admits it.
//!
//! What the data plane asks of the router: read a body, choose and reserve, give the reservation back.
//!
//! The wires are tested against a few lines that implement this, and know nothing of facts and policies.

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
    /// Where the body is not what the path needs.
    fn read(&self, path: &str, body: &[u8], session: Option<&[u8]>, key: Option<&[u8]>) -> Result<Prompt, ReadError>;

    /// Selects and reserves in one step, see [`Router::decide`].
    ///
    /// # Errors
    /// Who could not be chosen; nothing is reserved then.
    fn decide(&self, prompt: &Prompt, context: &DecisionContext<'_>) -> Result<Choice, DecideError>;

    /// The build of that policy that decides now, see [`Router::active_build`].
    fn active_build(&self, policy: PolicyIndex) -> PolicyBuildId;

    /// The same, but the request may be told to wait, see [`Router::enter`].
    ///
    /// # Errors
    /// Who could not be chosen; nothing is reserved then.
    fn enter(&self, prompt: &Prompt, context: &DecisionContext<'_>) -> Result<Entry, DecideError> {
        self.decide(prompt, context).map(Entry::Chosen)
    }
}

/// What became of a request that entered.
pub enum Entry {
    /// It was routed.
    Chosen(Choice),
    /// It waits at the gate.
    Waits(Box<dyn Place>),
}

/// A place in a queue at the gate. Dropped, it is given up.
pub trait Place: Send + Sync {
    /// For whom it waits.
    fn replica(&self) -> ReplicaId;
    /// How often it was decided anew for another replica.
    fn moves(&self) -> u16;
    /// Ends when the request is to be decided anew.
    fn called(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    /// Decides anew.
    ///
    /// # Errors
    /// Who could not be chosen; the place is given up then.
    fn enter_again(self: Box<Self>, prompt: &Prompt, context: &DecisionContext<'_>) -> Result<Entry, DecideError>;
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
#[derive(Clone)]
pub struct RouterChoice {
    pub(super) router: Arc<Router>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) calls: Arc<Calls>,
}

impl RouterChoice {
    /// Decides by `router`; who waits at its gate looks at `clock`.
    #[must_use]
    pub fn new(router: Arc<Router>, clock: Arc<dyn Clock>) -> Self {
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
