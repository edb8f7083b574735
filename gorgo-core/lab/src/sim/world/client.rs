//! The client, and the path of a request through the router: sent, dispatched, retried, ended.
//!
//! The client is that of the GORGO paper's experiments: open loop with a limit on requests in flight. Latencies count
//! from the actual send, and the wait for a slot is reported separately. There is no delay between client and router.

use std::time::Duration;

use super::clairvoyant::ReplicaOutlook;
use super::event_queue::SimEvent;
use super::live_request::LiveRequest;
use super::network::micros;
use super::run::SimulatedWorld;
use super::workload;
use crate::sim::PAGE_TOKENS;
use crate::trace::RequestSample;
use gorgo_routing::model::{ErrorClass, ReplicaId, RequestOutcome, UnixMicros};

/// Time over which the share of retries among requests is limited.
const BUDGET_WINDOW: Duration = Duration::from_secs(10);
/// Retries that are always allowed within that time, however few requests there are.
const BUDGET_LEAST: usize = 1;

impl SimulatedWorld<'_> {
    /// Handles a request that is due at the client.
    pub(super) fn arrive(&mut self, at: UnixMicros, request: usize) {
        // Each arrival schedules the next, so that the queue never contains the whole trace.
        if request + 1 < self.live.len() {
            self.events.schedule(self.scheduled(request + 1).max(at), SimEvent::Arrive(request + 1));
        }
        self.waiting_for_slot.push_back(request);
        self.send_waiting(at);
    }

    fn send_waiting(&mut self, at: UnixMicros) {
        while self.setup.max_in_flight.is_none_or(|most| self.in_flight < most) {
            let Some(request) = self.waiting_for_slot.pop_front() else { break };
            self.send(at, request);
        }
    }

    fn send(&mut self, at: UnixMicros, request: usize) {
        self.in_flight += 1;
        self.recent.0.push_back(at);
        let prompt = self.setup.workload.prompt(request, self.setup.index.block_bytes, self.secret);
        let live = Box::new(LiveRequest {
            bound_ms: self.bound_ms(at, request, prompt.body_bytes),
            prompt,
            reservation: None,
            admission_wait: None,
            rechecks: 0,
            seed: 0,
            replica: ReplicaId(0),
            decision: None,
            pending_decision: None,
            tried: Vec::new(),
            attempt: 1,
            sent: at,
            dispatched: at,
            half_us: 0,
            uncached_tokens: 0,
            predicted_ttft_ms: None,
            predicted_cached_tokens: None,
            in_engine: false,
            first: None,
            prefilled: false,
            cached_tokens: None,
            generated: 0,
            failure: None,
        });
        self.dispatch(at, request, live);
    }

    /// Returns the lowest TTFT possible for a request sent now; see [`super::Run::bounds_ms`].
    fn bound_ms(&mut self, at: UnixMicros, request: usize, body_bytes: u64) -> f64 {
        let tokens = self.setup.workload.rows()[request].input_tokens;
        // The last token is always computed, and only full pages are found in the cache.
        let cached = self.setup.workload.reusable_tokens(request).min(tokens.saturating_sub(1)) / PAGE_TOKENS;
        let uncached = tokens.max(1) - cached * PAGE_TOKENS;
        let mut least = f64::INFINITY;
        for stand in &mut self.replicas {
            let profile = stand.engine.profile();
            let batches = f64::from(uncached.div_ceil(profile.chunk_tokens));
            let prefill_ms = batches * profile.prefill_batch_ms + f64::from(uncached) * profile.prefill_token_ms;
            let engine_ms = (profile.host_ms + prefill_ms) / stand.max_speed;
            // The same draw as that of the first attempt: bound and measurement meet the same jitter.
            let rtt_ms = stand.path.request_ms(at, request);
            least = least.min(engine_ms + rtt_ms + stand.path.upload_ms(rtt_ms, bytes(body_bytes)));
        }
        least
    }

    /// Decides and sends. The state moves back into `live`, or the request ends.
    fn dispatch(&mut self, at: UnixMicros, request: usize, mut live: Box<LiveRequest>) {
        if self.router.is_some() {
            return self.enter(at, request, live);
        }
        match self.clairvoyant_choice(at, request, &mut live) {
            Some(replica) => self.send_to(at, request, live, replica),
            None => self.refused(at, request, live),
        }
    }

    /// Sends a request to the chosen replica.
    pub(super) fn send_to(&mut self, at: UnixMicros, request: usize, mut live: Box<LiveRequest>, replica: ReplicaId) {
        let stand = &mut self.replicas[replica.index()];
        stand.inflight += 1;
        // A later attempt gets a different jitter.
        let draw = request + (usize::try_from(live.attempt).unwrap_or(0) - 1) * self.live.len();
        let rtt_ms = stand.path.request_ms(at, draw);
        let upload_ms = stand.path.upload_ms(rtt_ms, bytes(live.prompt.body_bytes));
        let half = micros(rtt_ms / 2.0);
        live.replica = replica;
        live.dispatched = at;
        live.failure = None;
        live.half_us = u64::try_from(half.as_micros()).unwrap_or(u64::MAX);
        self.events.schedule(at.plus(half).plus(micros(upload_ms)), SimEvent::EngineReceives(request, live.attempt));
        self.live[request] = Some(live);
    }

    /// Ends a request for which no replica was chosen.
    pub(super) fn refused(&mut self, at: UnixMicros, request: usize, mut live: Box<LiveRequest>) {
        // If a retry finds no replica, the earlier failure is reported, since it caused the retry.
        live.failure.get_or_insert(ErrorClass::Refused);
        self.end(at, request, &live, None);
    }

    /// Returns the choice of the clairvoyant.
    fn clairvoyant_choice(&mut self, at: UnixMicros, request: usize, live: &mut LiveRequest) -> Option<ReplicaId> {
        let job = self.setup.workload.job(request);
        let mut best: Option<(f64, ReplicaId, u32)> = None;
        for (stand, member) in self.replicas.iter_mut().zip(self.setup.replicas) {
            if stand.down || live.tried.contains(&member.replica.id) {
                continue;
            }
            let rtt_ms = stand.path.request_ms(at, request);
            let cached_tokens = stand.engine.cached_prefix_tokens(&job.pages, job.prompt_tokens);
            let outlook = ReplicaOutlook {
                rtt_ms: rtt_ms + stand.path.upload_ms(rtt_ms, bytes(live.prompt.body_bytes)),
                step_ms: stand.engine.step_ends().map_or(0.0, |ends| ends.millis_since(at)),
                tokens_in_transit: stand.tokens_in_transit,
                inflight: stand.inflight,
                // As in the engine, the last token is always computed.
                uncached_tokens: job.prompt_tokens.saturating_sub(cached_tokens).max(1),
                engine: &stand.engine,
            };
            let cost_ms = outlook.cost_ms();
            if best.is_none_or(|(least, ..)| cost_ms < least) {
                best = Some((cost_ms, member.replica.id, outlook.uncached_tokens));
            }
        }
        // Until the request arrives, its prefill is in no engine's queue; count it as in transit.
        let (_, replica, uncached_tokens) = best?;
        live.uncached_tokens = uncached_tokens;
        self.replica_mut(replica).tokens_in_transit += u64::from(uncached_tokens);
        Some(replica)
    }

    /// Handles the first token as the router reads it.
    pub(super) fn first(&mut self, at: UnixMicros, request: usize, attempt: u32) {
        let Some(live) = self.live[request].as_mut().filter(|live| live.attempt == attempt) else { return };
        live.first = Some(at);
        if let (Some((router, _)), Some(reservation)) = (&self.router, &mut live.reservation) {
            router.first_token(reservation, at);
        }
    }

    /// Handles the end of an answer as the router reads it.
    pub(super) fn done(&mut self, at: UnixMicros, request: usize, attempt: u32) {
        let Some(live) = self.live[request].take_if(|live| live.attempt == attempt) else { return };
        self.leave(at, request, live, true);
    }

    /// Handles a failure as the router learns of it.
    pub(super) fn failed(&mut self, at: UnixMicros, request: usize, attempt: u32) {
        let Some(live) = self.live[request].take_if(|live| live.attempt == attempt) else { return };
        self.leave(at, request, live, false);
    }

    /// Ends an attempt: reports it to the router, and retries if that is allowed.
    fn leave(&mut self, at: UnixMicros, request: usize, mut live: Box<LiveRequest>, completed: bool) {
        let replica = live.replica;
        self.replica_mut(replica).inflight -= 1;
        if let (Some((router, _)), Some(reservation)) = (&self.router, live.reservation.take()) {
            // Released before a retry is decided, which must not count the failed attempt as load. To the router TTFT
            // counts from this attempt, to the client from the first send.
            let ttft_ms = live.first.map(|first| first.millis_since(live.dispatched));
            router.finish(reservation, &live.prompt, &RequestOutcome { usage: live.usage(), ttft_ms, completed }, at);
        }
        let status = live.status();
        self.record_attempt(at, &live, Some(status));
        // As in `serve`: no retry once the client has a byte, for the client's own errors, or beyond the budget.
        let again = !completed
            && live.first.is_none()
            && live.failure != Some(ErrorClass::ClientError)
            && live.attempt < self.setup.failover.max_attempts
            && self.may_retry(at);
        if again {
            live.tried.push(replica);
            live.attempt += 1;
            // Figures of the failed attempt must not be reported as those of the next.
            live.prefilled = false;
            live.cached_tokens = None;
            live.generated = 0;
            self.dispatch(at, request, live);
        } else {
            self.end(at, request, &live, Some(replica));
        }
    }

    /// Reports whether one more retry is within the allowed share of the requests of the last 10 s; counts it if so.
    fn may_retry(&mut self, at: UnixMicros) -> bool {
        for times in [&mut self.recent.0, &mut self.recent.1] {
            while times.front().is_some_and(|time| at.elapsed_since(*time) > BUDGET_WINDOW) {
                times.pop_front();
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "requests of 10 s")]
        let allowed = self.recent.0.len() as f64 * self.setup.failover.budget_share;
        #[expect(clippy::cast_precision_loss, reason = "requests of 10 s")]
        let may = self.recent.1.len() < BUDGET_LEAST || (self.recent.1.len() as f64) < allowed;
        if may {
            self.recent.1.push_back(at);
        }
        may
    }

    /// Ends a request: the client has its answer or its error.
    fn end(&mut self, at: UnixMicros, request: usize, live: &LiveRequest, replica: Option<ReplicaId>) {
        let scheduled = self.scheduled(request);
        let row = &self.setup.workload.rows()[request];
        let sample = RequestSample {
            row: row.index,
            id: workload::name(row),
            input_tokens: row.input_tokens,
            scheduled_ms: scheduled.millis_since(self.start),
            sent_ms: live.sent.millis_since(self.start),
            slot_wait_ms: live.sent.millis_since(scheduled),
            replica: replica.map(|replica| std::sync::Arc::clone(&self.replicas[replica.index()].name)),
            ..RequestSample::default()
        };
        let sample = live.measured(at, sample);
        self.record_outcome(at, live, &sample, replica);
        self.samples.push(sample);
        self.bounds_ms.push(live.bound_ms);
        // The slot is free only now: a request that is retried keeps its slot.
        self.in_flight -= 1;
        self.send_waiting(at);
    }
}

#[expect(clippy::cast_precision_loss, reason = "bodies are far below 2^53 bytes")]
const fn bytes(count: u64) -> f64 {
    count as f64
}
