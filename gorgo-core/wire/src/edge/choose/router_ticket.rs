//! The router's gate as the data plane waits at it: a place in a queue that is called, or looks again after a while.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::edge::choose::{Entry, Place, RouterChoice};
use gorgo_routing::model::{Prompt, ReplicaId};
use gorgo_routing::policy::{DecideError, DecisionContext, Entered, Held};

/// Waiting requests, by their number at the gate. Calls are made under the router's lock, so none comes for a request
/// that has left its queue; one may come before the request is entered here.
#[derive(Debug, Default)]
pub(in crate::edge) struct Calls(Mutex<HashMap<u64, Arc<Notify>>>);

impl Calls {
    /// Wakes the request of that number.
    pub(in crate::edge) fn call(&self, number: u64) {
        // `or_default`: the call may arrive before `enter`; `notify_one` keeps it as a permit.
        self.0.lock().entry(number).or_default().notify_one();
    }

    fn enter(&self, number: u64) -> Arc<Notify> {
        Arc::clone(self.0.lock().entry(number).or_default())
    }

    fn leave(&self, number: u64) {
        self.0.lock().remove(&number);
    }
}

/// Place in the queue of the router's gate; dropping it gives it up at once.
pub(in crate::edge) struct Waiting {
    choice: RouterChoice,
    bell: Arc<Notify>,
    /// `None` while it is decided again.
    held: Option<Held>,
    replica: ReplicaId,
    number: u64,
    moves: u16,
}

impl Waiting {
    pub(in crate::edge) fn new(choice: RouterChoice, held: Held) -> Self {
        let (replica, number, moves) = (held.replica(), held.number(), held.moves());
        Self { bell: choice.calls.enter(number), choice, held: Some(held), replica, number, moves }
    }
}

impl Place for Waiting {
    fn replica(&self) -> ReplicaId {
        self.replica
    }

    fn moves(&self) -> u16 {
        self.moves
    }

    fn called(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let now = self.choice.clock.now();
        // Not only the call: a request also looks again by itself, should a replica's state change without a release.
        let look = self.held.as_ref().map_or(now, Held::look);
        Box::pin(async move {
            tokio::select! {
                () = self.bell.notified() => {}
                () = sleep(look.since(now)) => {}
            }
        })
    }

    fn enter_again(mut self: Box<Self>, prompt: &Prompt, context: &DecisionContext<'_>) -> Result<Entry, DecideError> {
        let Some(held) = self.held.take() else { return Err(DecideError::NoReplica) };
        match self.choice.router.enter_again(held, prompt, context)? {
            Entered::Routed(routed) => Ok(Entry::Chosen(self.choice.choice(*routed))),
            // It keeps its number and its `Notify`, which may have been called meanwhile.
            Entered::Held(held) => {
                (self.replica, self.moves) = (held.replica(), held.moves());
                self.held = Some(held);
                Ok(Entry::Waits(self))
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            // Leaves the router's queue first: afterwards no call for this number can re-create its entry.
            self.choice.router.leave(held, self.choice.clock.now());
        }
        self.choice.calls.leave(self.number);
    }
}
