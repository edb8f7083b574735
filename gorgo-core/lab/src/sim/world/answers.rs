//! Engine outputs on their way to the router, and failures of requests whose engine goes down.

use super::agenda::Happening;
use super::run::World;
use crate::sim::{FinishReason, Output};
use gorgo_routing::model::{At, ErrorClass, ReplicaId};

impl World<'_> {
    /// Handles the arrival of a request at its engine.
    pub(super) fn reach(&mut self, at: At, request: usize, attempt: u32) {
        let Some(live) = self.live[request].as_mut().filter(|live| live.attempt == attempt) else { return };
        // The tokens are no longer in transit: from here on the clairvoyant sees them in the engine's queue.
        let (replica, uncached) = (live.replica, u64::from(std::mem::take(&mut live.uncached_tokens)));
        let stand = &mut self.stands[replica.index()];
        stand.coming_tokens = stand.coming_tokens.saturating_sub(uncached);
        if stand.down {
            return self.fail(at, request, ErrorClass::Connect);
        }
        live.in_engine = true;
        self.advance(at, replica);
        // Ids are those of requests. An engine cannot still have an earlier attempt of this one: no attempt goes to a
        // replica that the request has tried before.
        if self.stands[replica.index()].engine.submit(at, self.setup.workload.job(request)).is_err() {
            self.fail(at, request, ErrorClass::UpstreamProtocol);
        }
        self.enter_engine(replica);
    }

    /// Advances an engine to `at` and handles its outputs.
    pub(super) fn advance(&mut self, at: At, replica: ReplicaId) {
        // One buffer for all engines, moved out while it is in use: nothing is allocated per event.
        let mut outputs = std::mem::take(&mut self.outputs);
        self.stand(replica).engine.advance(at, &mut outputs);
        for output in outputs.drain(..) {
            self.said(output);
        }
        self.outputs = outputs;
        self.enter_engine(replica);
    }

    /// Schedules the engine's next event, unless it is scheduled already.
    fn enter_engine(&mut self, replica: ReplicaId) {
        let stand = &mut self.stands[replica.index()];
        let next = stand.engine.next_event();
        if next != stand.entered {
            // An event scheduled earlier for another time stays queued; it is ignored, as its time does not match.
            stand.entered = next;
            if let Some(due) = next {
                self.agenda.enter(due, Happening::Engine(replica));
            }
        }
    }

    fn said(&mut self, output: Output) {
        let Ok(request) = usize::try_from(output.id()) else { return };
        // Outputs of an attempt that failed or was dropped in the meantime are ignored.
        let Some(live) = self.live.get_mut(request).and_then(Option::as_mut).filter(|live| live.in_engine) else {
            return;
        };
        match output {
            Output::Prefilled { cached_tokens, .. } => {
                live.prefilled = true;
                live.cached_tokens = Some(cached_tokens);
            }
            Output::Token { at, index, .. } => {
                live.generated = index + 1;
                // The router acts on the first token and on the end only; other tokens need no event.
                if index == 0 {
                    let read = At(at.0 + live.half_us);
                    self.agenda.enter(read, Happening::First(request, live.attempt));
                }
            }
            Output::Finished { at, reason: FinishReason::TooLong, .. } => {
                self.fail(at, request, ErrorClass::ClientError);
            }
            Output::Finished { at, reason: FinishReason::Length | FinishReason::Stop, .. } => {
                live.in_engine = false;
                let read = At(at.0 + live.half_us);
                self.agenda.enter(read, Happening::Done(request, live.attempt));
            }
        }
    }

    /// Records that a request's attempt failed at its replica; the router learns of it half a round trip later.
    fn fail(&mut self, at: At, request: usize, class: ErrorClass) {
        let Some(live) = self.live[request].as_mut() else { return };
        live.failure = Some(class);
        live.in_engine = false;
        self.agenda.enter(At(at.0 + live.half_us), Happening::Failed(request, live.attempt));
    }

    /// Fails all requests in a replica's engine, as when its connections break.
    pub(super) fn drop_all(&mut self, at: At, replica: ReplicaId) {
        for request in 0..self.live.len() {
            let Some(live) = &self.live[request] else { continue };
            if live.replica == replica && live.in_engine {
                let class = if live.generated > 0 { ErrorClass::UpstreamAborted } else { ErrorClass::UpstreamClosed };
                self.stand(replica).engine.cancel(request as u64);
                self.fail(at, request, class);
            }
        }
        self.enter_engine(replica);
    }
}
