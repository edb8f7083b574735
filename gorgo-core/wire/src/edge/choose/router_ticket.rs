//! The router's gate as the data plane waits at it: a place in a queue that is called, or looks again by itself.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::edge::choose::{Entry, Place, RouterChoice};
use gorgo_routing::model::{Prompt, ReplicaId};
use gorgo_routing::policy::{DecideError, DecisionContext, Entered, Held};

/// Those who wait, by the number that the gate calls them by. Calls come under the router's lock, so none comes for one
/// that has left its queue; one may come before its place is entered here.
#[derive(Debug, Default)]
pub(in crate::edge) struct Calls(Mutex<HashMap<u64, Arc<Notify>>>);

impl Calls {
    /// Wakes the one of that number.
    pub(in crate::edge) fn call(&self, number: u64) {
        self.0.lock().entry(number).or_default().notify_one();
    }

    fn enter(&self, number: u64) -> Arc<Notify> {
        Arc::clone(self.0.lock().entry(number).or_default())
    }

    fn leave(&self, number: u64) {
        self.0.lock().remove(&number);
    }
}

/// A place in the queue of the router's gate. Dropped, it is given up at once.
pub(in crate::edge) struct Waiting {
    choice: RouterChoice,
    bell: Arc<Notify>,
    /// `None` while it is decided anew.
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
            // It keeps its number and its bell, which may have rung meanwhile.
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
            self.choice.router.leave(held, self.choice.clock.now());
        }
        self.choice.calls.leave(self.number);
    }
}
