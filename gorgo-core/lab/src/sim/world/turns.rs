//! A request at the router: decided, forwarded, or held at the admission gate until the gate calls it or its recheck is
//! due. The gate determines the order of its calls, so nothing here depends on the speed of the computer.

use super::agenda::Happening;
use super::chance::bits;
use super::live::Live;
use super::run::{DECISIONS, World};
use gorgo_routing::model::{At, DecisionId};
use gorgo_routing::policy::{DecideError, DecisionContext, Entered};

/// Upper bound of the seeds of decisions, as in `serve`: SQL tools and JSON readers show such numbers exactly.
const SEED_LIMIT: u64 = 1 << 53;

impl World<'_> {
    /// Handles a request that reaches the router, for the first time or after a failed attempt.
    pub(super) fn enter(&mut self, at: At, request: usize, mut live: Box<Live>) {
        let number = self.decisions;
        self.decisions += 1;
        // Ids as `serve` makes them: ms since the epoch, then a counter in the lower 20 bits.
        let millis = i64::try_from(at.0 / 1000).unwrap_or(0);
        let id = DecisionId((millis << 20) | i64::try_from(number % (1 << 20)).unwrap_or(0));
        // A retry belongs to the same decision.
        let id = live.decision.unwrap_or(id);
        live.asked = Some(id);
        live.seed = bits(self.seed, DECISIONS, number) % SEED_LIMIT;
        let Some((router, policy)) = &self.router else { return };
        let entered = router
            .enter(&live.prompt, &DecisionContext { policy: *policy, id, seed: live.seed, at, exclude: &live.tried });
        self.entered(at, request, live, entered);
    }

    /// Decides anew for a request that waited at the gate.
    fn enter_again(&mut self, at: At, request: usize) {
        let waits = |live: &mut Box<Live>| live.held.is_some();
        let Some(mut live) = self.live[request].take_if(waits) else { return };
        let (Some(held), Some(id), Some((router, policy))) = (live.held.take(), live.asked, &self.router) else {
            return;
        };
        // If the request has to wait again, it gets a new number.
        self.waiting.remove(&held.number());
        let entered = router.enter_again(
            held,
            &live.prompt,
            &DecisionContext { policy: *policy, id, seed: live.seed, at, exclude: &live.tried },
        );
        self.entered(at, request, live, entered);
    }

    fn entered(&mut self, at: At, request: usize, mut live: Box<Live>, entered: Result<Entered, DecideError>) {
        match entered {
            Ok(Entered::Routed(routed)) => {
                let replica = routed.reservation.replica();
                self.book_routed(at, &mut live, *routed);
                self.send_to(at, request, live, replica);
            }
            Ok(Entered::Held(held)) => {
                live.looks += 1;
                self.agenda.enter(held.look().max(at), Happening::Look(request, live.looks));
                self.waiting.insert(held.number(), request);
                live.held = Some(held);
                self.live[request] = Some(live);
            }
            Err(error) => {
                if let (None, Some(id)) = (live.decision, live.asked) {
                    live.decision = Some(id);
                    self.book_refused(at, id, &live, error.into());
                }
                self.refused(at, request, live);
            }
        }
    }

    /// Handles the due recheck of a waiting request.
    pub(super) fn look(&mut self, at: At, request: usize, looks: u32) {
        if self.live[request].as_ref().is_some_and(|live| live.held.is_some() && live.looks == looks) {
            self.enter_again(at, request);
        }
    }

    /// Readmits the requests that the gate has called since the last event, and those that are called as a result.
    pub(super) fn answer_calls(&mut self, at: At) {
        while !self.waiting.is_empty() {
            let called = self.router.as_ref().map_or_else(Vec::new, |(router, _)| router.take_called());
            if called.is_empty() {
                return;
            }
            for number in called {
                if let Some(request) = self.waiting.get(&number).copied() {
                    self.enter_again(at, request);
                }
            }
        }
    }
}
