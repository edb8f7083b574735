//! Interface between data plane and router: read a body, choose and reserve a replica, release the reservation.
//!
//! The data plane's tests implement this in a few lines, without facts and policies.

pub(super) mod admission;
mod router_ticket;

use std::pin::Pin;
use std::sync::Arc;

use super::choose::router_ticket::{AdmissionWakers, RouterTicket};
use gorgo_routing::model::{
    Clock, DecisionRecord, ParsedRequest, PolicyBuildId, PolicyIndex, ReplicaId, RequestOutcome, UnixMicros,
};
use gorgo_routing::policy::{DecideError, DecisionContext, EnterResult, ReadError, Reservation, RoutedRequest, Router};

/// Chooses replicas.
pub trait ReplicaSelector: Send + Sync {
    /// Reads a request body, see [`Router::parse_request`].
    ///
    /// # Errors
    /// The body is not valid for the path.
    fn read(
        &self,
        path: &str,
        body: &[u8],
        session: Option<&[u8]>,
        key: Option<&[u8]>,
    ) -> Result<ParsedRequest, ReadError>;

    /// Selects and reserves in one step, see [`Router::decide`].
    ///
    /// # Errors
    /// Why no replica could be chosen; nothing is reserved then.
    fn decide(&self, prompt: &ParsedRequest, context: &DecisionContext<'_>) -> Result<SelectedReplica, DecideError>;

    /// Current build of a policy, see [`Router::active_build`].
    fn active_build(&self, policy: PolicyIndex) -> PolicyBuildId;

    /// Like `decide`, but the request may have to wait at the gate, see [`Router::admit`].
    ///
    /// # Errors
    /// Why no replica could be chosen; nothing is reserved then.
    fn admit(&self, prompt: &ParsedRequest, context: &DecisionContext<'_>) -> Result<SelectionOutcome, DecideError> {
        self.decide(prompt, context).map(SelectionOutcome::Selected)
    }
}

/// Result of entering the gate.
pub enum SelectionOutcome {
    /// Routed to a replica.
    Selected(SelectedReplica),
    /// Waits at the gate.
    Queued(Box<dyn AdmissionTicket>),
}

/// Place in a queue at the gate; dropping it gives it up.
pub trait AdmissionTicket: Send + Sync {
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
    fn enter_again(
        self: Box<Self>,
        prompt: &ParsedRequest,
        context: &DecisionContext<'_>,
    ) -> Result<SelectionOutcome, DecideError>;
}

/// Chosen replica.
pub struct SelectedReplica {
    /// Row for the store, complete except for the time that the decision took.
    pub record: Box<DecisionRecord>,
    /// Load that was reserved.
    pub lease: Box<dyn ReplicaLease>,
    /// TTFT predicted there, ms.
    pub predicted_ttft_ms: Option<f64>,
    /// Prompt tokens believed to be cached there.
    pub predicted_cached_tokens: u32,
}

/// Work reserved at a replica. The owner must finish it exactly once; `Attempt` sees to that.
pub trait ReplicaLease: Send + Sync {
    /// Replica that it is reserved at.
    fn replica(&self) -> ReplicaId;
    /// Records that the request produced its first content.
    fn first_token(&mut self, at: UnixMicros);
    /// Releases it when the request has ended, successfully or not.
    fn finish(self: Box<Self>, prompt: &ParsedRequest, ending: &RequestOutcome, at: UnixMicros);
}

/// The real router as the data plane sees it.
#[derive(Clone)]
pub struct RouterSelector {
    pub(super) router: Arc<Router>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) wakers: Arc<AdmissionWakers>,
}

impl RouterSelector {
    /// Decides by `router`; requests that wait at its gate use `clock`.
    #[must_use]
    pub fn new(router: Arc<Router>, clock: Arc<dyn Clock>) -> Self {
        // The router calls waiting requests by number under its lock; the map in `calls` turns that into a wake-up.
        let calls = Arc::new(AdmissionWakers::default());
        let listener = Arc::clone(&calls);
        router.on_admission_call(move |number| listener.wake(number));
        Self { router, clock, wakers: calls }
    }

    fn outcome(&self, entered: EnterResult) -> SelectionOutcome {
        match entered {
            EnterResult::Routed(routed) => SelectionOutcome::Selected(self.selected(*routed)),
            EnterResult::Waiting(held) => SelectionOutcome::Queued(Box::new(RouterTicket::new(self.clone(), held))),
        }
    }

    pub(super) fn selected(&self, routed: RoutedRequest) -> SelectedReplica {
        SelectedReplica {
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

impl ReplicaSelector for RouterSelector {
    fn read(
        &self,
        path: &str,
        body: &[u8],
        session: Option<&[u8]>,
        key: Option<&[u8]>,
    ) -> Result<ParsedRequest, ReadError> {
        self.router.parse_request(path, body, session, key)
    }

    fn active_build(&self, policy: PolicyIndex) -> PolicyBuildId {
        self.router.active_build(policy)
    }

    fn decide(&self, prompt: &ParsedRequest, context: &DecisionContext<'_>) -> Result<SelectedReplica, DecideError> {
        let routed = self.router.decide(prompt, context)?;
        Ok(self.selected(routed))
    }

    fn admit(&self, prompt: &ParsedRequest, context: &DecisionContext<'_>) -> Result<SelectionOutcome, DecideError> {
        let entered = self.router.admit(prompt, context)?;
        Ok(self.outcome(entered))
    }
}

impl ReplicaLease for RouterLease {
    fn replica(&self) -> ReplicaId {
        self.reservation.replica()
    }

    fn first_token(&mut self, at: UnixMicros) {
        self.router.first_token(&mut self.reservation, at);
    }

    fn finish(self: Box<Self>, prompt: &ParsedRequest, ending: &RequestOutcome, at: UnixMicros) {
        self.router.finish(self.reservation, prompt, ending, at);
    }
}
