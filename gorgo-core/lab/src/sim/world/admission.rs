//! A request at the router: decided, forwarded, or held at the admission gate until the gate calls it or its recheck is
//! due. The gate determines the order of its calls, so nothing here depends on the speed of the computer.

use super::event_queue::SimEvent;
use super::live_request::LiveRequest;
use super::randomness::bits;
use super::run::{DECISIONS, SimulatedWorld};
use gorgo_routing::model::{DecisionId, UnixMicros};
use gorgo_routing::policy::{DecideError, DecisionContext, EnterResult};

/// Upper bound of the seeds of decisions, as in `serve`: SQL tools and JSON readers show such numbers exactly.
const SEED_LIMIT: u64 = 1 << 53;

impl SimulatedWorld<'_> {
    /// Handles a request that reaches the router, for the first time or after a failed attempt.
    pub(super) fn enter(&mut self, at: UnixMicros, request: usize, mut live: Box<LiveRequest>) {
        let number = self.decisions;
        self.decisions += 1;
        // Ids as `serve` makes them: ms since the epoch, then a counter in the lower 20 bits.
        let millis = i64::try_from(at.0 / 1000).unwrap_or(0);
        let id = DecisionId((millis << 20) | i64::try_from(number % (1 << 20)).unwrap_or(0));
        // A retry belongs to the same decision.
        let id = live.decision.unwrap_or(id);
        live.pending_decision = Some(id);
        live.seed = bits(self.seed, DECISIONS, number) % SEED_LIMIT;
        let Some((router, policy)) = &self.router else { return };
        let entered = router
            .admit(&live.prompt, &DecisionContext { policy: *policy, id, seed: live.seed, at, exclude: &live.tried });
        self.entered(at, request, live, entered);
    }

    /// Decides anew for a request that waited at the gate.
    fn enter_again(&mut self, at: UnixMicros, request: usize) {
        let waits = |live: &mut Box<LiveRequest>| live.admission_wait.is_some();
        let Some(mut live) = self.live[request].take_if(waits) else { return };
        let (Some(held), Some(id), Some((router, policy))) =
            (live.admission_wait.take(), live.pending_decision, &self.router)
        else {
            return;
        };
        // If the request has to wait again, it gets a new number.
        self.waiting_for_admission.remove(&held.number());
        let entered = router.readmit(
            held,
            &live.prompt,
            &DecisionContext { policy: *policy, id, seed: live.seed, at, exclude: &live.tried },
        );
        self.entered(at, request, live, entered);
    }

    fn entered(
        &mut self,
        at: UnixMicros,
        request: usize,
        mut live: Box<LiveRequest>,
        entered: Result<EnterResult, DecideError>,
    ) {
        match entered {
            Ok(EnterResult::Routed(routed)) => {
                let replica = routed.reservation.replica();
                self.record_routed(at, &mut live, *routed);
                self.send_to(at, request, live, replica);
            }
            Ok(EnterResult::Waiting(held)) => {
                live.rechecks += 1;
                self.events.schedule(held.look().max(at), SimEvent::Recheck(request, live.rechecks));
                self.waiting_for_admission.insert(held.number(), request);
                live.admission_wait = Some(held);
                self.live[request] = Some(live);
            }
            Err(error) => {
                if let (None, Some(id)) = (live.decision, live.pending_decision) {
                    live.decision = Some(id);
                    self.record_refused(at, id, &live, error.into());
                }
                self.refused(at, request, live);
            }
        }
    }

    /// Handles the due recheck of a waiting request.
    pub(super) fn recheck(&mut self, at: UnixMicros, request: usize, looks: u32) {
        if self.live[request].as_ref().is_some_and(|live| live.admission_wait.is_some() && live.rechecks == looks) {
            self.enter_again(at, request);
        }
    }

    /// Readmits the requests that the gate has called since the last event, and those that are called as a result.
    pub(super) fn readmit_called(&mut self, at: UnixMicros) {
        while !self.waiting_for_admission.is_empty() {
            let called = self.router.as_ref().map_or_else(Vec::new, |(router, _)| router.take_called());
            if called.is_empty() {
                return;
            }
            for number in called {
                if let Some(request) = self.waiting_for_admission.get(&number).copied() {
                    self.enter_again(at, request);
                }
            }
        }
    }
}
