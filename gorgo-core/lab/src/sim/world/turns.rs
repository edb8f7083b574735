//! A request at the router: decided, sent on, or held at the gate until it is called or looks again. The order in which
//! the gate calls is its own, so nothing here depends on how the computer runs.

use super::agenda::Happening;
use super::chance::bits;
use super::live::Live;
use super::run::{DECISIONS, World};
use gorgo_routing::model::{At, DecisionId};
use gorgo_routing::policy::{DecideError, DecisionContext, Entered};

/// Seeds of decisions stay below this.
const SEED_LIMIT: u64 = 1 << 53;

impl World<'_> {
    /// A request comes to the router, for the first time or after an attempt that failed.
    pub(super) fn enter(&mut self, at: At, request: usize, mut live: Box<Live>) {
        let number = self.decisions;
        self.decisions += 1;
        let millis = i64::try_from(at.0 / 1000).unwrap_or(0);
        let id = DecisionId((millis << 20) | i64::try_from(number % (1 << 20)).unwrap_or(0));
        // A retry is of the same decision.
        let id = live.decision.unwrap_or(id);
        live.asked = Some(id);
        live.seed = bits(self.seed, DECISIONS, number) % SEED_LIMIT;
        let Some((router, policy)) = &self.router else { return };
        let entered = router
            .enter(&live.prompt, &DecisionContext { policy: *policy, id, seed: live.seed, at, exclude: &live.tried });
        self.entered(at, request, live, entered);
    }

    /// A request that was held is decided anew.
    fn enter_again(&mut self, at: At, request: usize) {
        let waits = |live: &mut Box<Live>| live.held.is_some();
        let Some(mut live) = self.live[request].take_if(waits) else { return };
        let (Some(held), Some(id), Some((router, policy))) = (live.held.take(), live.asked, &self.router) else {
            return;
        };
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

    /// A request that waits looks again.
    pub(super) fn look(&mut self, at: At, request: usize, looks: u32) {
        if self.live[request].as_ref().is_some_and(|live| live.held.is_some() && live.looks == looks) {
            self.enter_again(at, request);
        }
    }

    /// Those whom the gate called since the last happening come again; and those whom that calls.
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
