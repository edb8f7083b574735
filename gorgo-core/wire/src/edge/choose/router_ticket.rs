//! The router's gate as the data plane waits at it: a place in a queue that is called, or looks again after a while.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::edge::choose::{AdmissionTicket, RouterSelector, SelectionOutcome};
use gorgo_routing::model::{ParsedRequest, ReplicaId};
use gorgo_routing::policy::{DecideError, DecisionContext, EnterResult, WaitingRequest};

/// Waiting requests, by their number at the gate. Calls are made under the router's lock, so none comes for a request
/// that has left its queue; one may come before the request is entered here.
#[derive(Debug, Default)]
pub(in crate::edge) struct AdmissionWakers(Mutex<HashMap<u64, Arc<Notify>>>);

impl AdmissionWakers {
    /// Wakes the request of that number.
    pub(in crate::edge) fn wake(&self, number: u64) {
        // `or_default`: the call may arrive before `enter`; `notify_one` keeps it as a permit.
        self.0.lock().entry(number).or_default().notify_one();
    }

    fn register(&self, number: u64) -> Arc<Notify> {
        Arc::clone(self.0.lock().entry(number).or_default())
    }

    fn deregister(&self, number: u64) {
        self.0.lock().remove(&number);
    }
}

/// Place in the queue of the router's gate; dropping it gives it up at once.
pub(in crate::edge) struct RouterTicket {
    selector: RouterSelector,
    notify: Arc<Notify>,
    /// `None` while it is decided again.
    waiting: Option<WaitingRequest>,
    replica: ReplicaId,
    number: u64,
    moves: u16,
}

impl RouterTicket {
    pub(in crate::edge) fn new(choice: RouterSelector, held: WaitingRequest) -> Self {
        let (replica, number, moves) = (held.replica(), held.number(), held.moves());
        Self { notify: choice.wakers.register(number), selector: choice, waiting: Some(held), replica, number, moves }
    }
}

impl AdmissionTicket for RouterTicket {
    fn replica(&self) -> ReplicaId {
        self.replica
    }

    fn moves(&self) -> u16 {
        self.moves
    }

    fn called(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let now = self.selector.clock.now();
        // Not only the call: a request also looks again by itself, should a replica's state change without a release.
        let look = self.waiting.as_ref().map_or(now, WaitingRequest::look);
        Box::pin(async move {
            tokio::select! {
                () = self.notify.notified() => {}
                () = sleep(look.elapsed_since(now)) => {}
            }
        })
    }

    fn enter_again(
        mut self: Box<Self>,
        prompt: &ParsedRequest,
        context: &DecisionContext<'_>,
    ) -> Result<SelectionOutcome, DecideError> {
        let Some(held) = self.waiting.take() else { return Err(DecideError::NoReplica) };
        match self.selector.router.readmit(held, prompt, context)? {
            EnterResult::Routed(routed) => Ok(SelectionOutcome::Selected(self.selector.selected(*routed))),
            // It keeps its number and its `Notify`, which may have been called meanwhile.
            EnterResult::Waiting(held) => {
                (self.replica, self.moves) = (held.replica(), held.moves());
                self.waiting = Some(held);
                Ok(SelectionOutcome::Queued(self))
            }
        }
    }
}

impl Drop for RouterTicket {
    fn drop(&mut self) {
        if let Some(held) = self.waiting.take() {
            // Leaves the router's queue first: afterwards no call for this number can re-create its entry.
            self.selector.router.cancel_wait(held, self.selector.clock.now());
        }
        self.selector.wakers.deregister(self.number);
    }
}
