//! Engine outputs on their way to the router, and failures of requests whose engine goes down.

use super::event_queue::SimEvent;
use super::run::SimulatedWorld;
use crate::sim::{EngineOutput, FinishReason};
use gorgo_routing::model::{ErrorClass, ReplicaId, UnixMicros};

impl SimulatedWorld<'_> {
    /// Handles the arrival of a request at its engine.
    pub(super) fn engine_receives(&mut self, at: UnixMicros, request: usize, attempt: u32) {
        let Some(live) = self.live[request].as_mut().filter(|live| live.attempt == attempt) else { return };
        // The tokens are no longer in transit: from here on the clairvoyant sees them in the engine's queue.
        let (replica, uncached) = (live.replica, u64::from(std::mem::take(&mut live.uncached_tokens)));
        let stand = &mut self.replicas[replica.index()];
        stand.tokens_in_transit = stand.tokens_in_transit.saturating_sub(uncached);
        if stand.down {
            return self.fail(at, request, ErrorClass::Connect);
        }
        live.in_engine = true;
        self.advance(at, replica);
        // Ids are those of requests. An engine cannot still have an earlier attempt of this one: no attempt goes to a
        // replica that the request has tried before.
        if self.replicas[replica.index()].engine.submit(at, self.setup.workload.job(request)).is_err() {
            self.fail(at, request, ErrorClass::UpstreamProtocol);
        }
        self.schedule_engine(replica);
    }

    /// Advances an engine to `at` and handles its outputs.
    pub(super) fn advance(&mut self, at: UnixMicros, replica: ReplicaId) {
        // One buffer for all engines, moved out while it is in use: nothing is allocated per event.
        let mut outputs = std::mem::take(&mut self.outputs);
        self.replica_mut(replica).engine.advance(at, &mut outputs);
        for output in outputs.drain(..) {
            self.handle_output(output);
        }
        self.outputs = outputs;
        self.schedule_engine(replica);
    }

    /// Schedules the engine's next event, unless it is scheduled already.
    fn schedule_engine(&mut self, replica: ReplicaId) {
        let stand = &mut self.replicas[replica.index()];
        let next = stand.engine.next_event();
        if next != stand.scheduled_event {
            // An event scheduled earlier for another time stays queued; it is ignored, as its time does not match.
            stand.scheduled_event = next;
            if let Some(due) = next {
                self.events.schedule(due, SimEvent::EngineDue(replica));
            }
        }
    }

    fn handle_output(&mut self, output: EngineOutput) {
        let Ok(request) = usize::try_from(output.id()) else { return };
        // Outputs of an attempt that failed or was dropped in the meantime are ignored.
        let Some(live) = self.live.get_mut(request).and_then(Option::as_mut).filter(|live| live.in_engine) else {
            return;
        };
        match output {
            EngineOutput::Prefilled { cached_tokens, .. } => {
                live.prefilled = true;
                live.cached_tokens = Some(cached_tokens);
            }
            EngineOutput::Token { at, index, .. } => {
                live.generated = index + 1;
                // The router acts on the first token and on the end only; other tokens need no event.
                if index == 0 {
                    let read = UnixMicros(at.0 + live.half_us);
                    self.events.schedule(read, SimEvent::FirstToken(request, live.attempt));
                }
            }
            EngineOutput::Finished { at, reason: FinishReason::TooLong, .. } => {
                self.fail(at, request, ErrorClass::ClientError);
            }
            EngineOutput::Finished { at, reason: FinishReason::Length | FinishReason::Stop, .. } => {
                live.in_engine = false;
                let read = UnixMicros(at.0 + live.half_us);
                self.events.schedule(read, SimEvent::Done(request, live.attempt));
            }
        }
    }

    /// Records that a request's attempt failed at its replica; the router learns of it half a round trip later.
    fn fail(&mut self, at: UnixMicros, request: usize, class: ErrorClass) {
        let Some(live) = self.live[request].as_mut() else { return };
        live.failure = Some(class);
        live.in_engine = false;
        self.events.schedule(UnixMicros(at.0 + live.half_us), SimEvent::Failed(request, live.attempt));
    }

    /// Fails all requests in a replica's engine, as when its connections break.
    pub(super) fn drop_all(&mut self, at: UnixMicros, replica: ReplicaId) {
        // All requests are searched: faults are rare, and an index by replica would cost time at every event. A
        // request that is still on its way meets the state of the replica when it arrives.
        for request in 0..self.live.len() {
            let Some(live) = &self.live[request] else { continue };
            if live.replica == replica && live.in_engine {
                let class = if live.generated > 0 { ErrorClass::UpstreamAborted } else { ErrorClass::UpstreamClosed };
                self.replica_mut(replica).engine.cancel(request as u64);
                self.fail(at, request, class);
            }
        }
        self.schedule_engine(replica);
    }
}
