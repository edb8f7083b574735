//! One attempt at one replica, as a value: its row, and the load reserved for it.
//!
//! However the attempt ends, even if its future is dropped, the reservation is released once and the row is written
//! once. Several attempts of one request may be alive at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::edge::DataPlane;
use crate::edge::choose::ReplicaLease;
use crate::edge::ledger::{RequestLedger, ReservedAttempt, micros};
use crate::edge::upstream::UpstreamReplica;
use crate::edge::upstream::pool::SendTiming;
use crate::engine::ejection::AttemptFailure;
use gorgo_routing::model::{
    AttemptRecord, DecisionId, ErrorClass, ParsedRequest, ReplicaId, RequestOutcome, StoreRecord, TokenUsage,
    UnixMicros,
};

/// Running attempt.
pub(in crate::edge) struct RequestAttempt {
    data: Arc<DataPlane>,
    prompt: Arc<ParsedRequest>,
    decision: DecisionId,
    received: UnixMicros,
    number: u16,
    replica: ReplicaId,
    lease: Option<Box<dyn ReplicaLease>>,
    pub(in crate::edge) timing: SendTiming,
    pub(in crate::edge) head_at: Option<UnixMicros>,
    pub(in crate::edge) status: Option<u16>,
    /// Time for which the engine asks to get no requests, if its refusal named one.
    pub(in crate::edge) retry_after: Option<Duration>,
    pub(in crate::edge) predicted_ttft_ms: Option<f64>,
    pub(in crate::edge) predicted_cached_tokens: u32,
    began_at: UnixMicros,
    /// True once the client gets this response.
    answered: bool,
    first_content_at: Option<UnixMicros>,
    hedge_outcome: HedgeOutcome,
}

/// Determines from outside how a running attempt ends when it is dropped. Unset, a dropped attempt means that its
/// client left.
#[derive(Debug, Clone, Default)]
pub(in crate::edge) struct HedgeOutcome(Arc<AtomicU8>);

const LOST: u8 = 1;
const LOST_LATE: u8 = 2;

impl HedgeOutcome {
    /// Another attempt was faster. `late`: this one had exceeded its hedge delay.
    pub(in crate::edge) fn mark_lost(&self, late: bool) {
        self.0.store(if late { LOST_LATE } else { LOST }, Ordering::Relaxed);
    }
}

impl RequestAttempt {
    /// Starts an attempt at time `began`, with what was reserved for it.
    pub(in crate::edge) fn begin(
        data: &Arc<DataPlane>,
        prompt: &Arc<ParsedRequest>,
        ledger: &RequestLedger,
        number: u16,
        began: UnixMicros,
        reserved: ReservedAttempt,
    ) -> Self {
        let ReservedAttempt { lease, predicted_ttft_ms, predicted_cached_tokens } = reserved;
        let replica = lease.replica();
        // Counted at the start: a replica that returns from ejection admits a single trial request at a time.
        data.liveness.ejections().attempt_began(replica, began);
        Self {
            data: Arc::clone(data),
            prompt: Arc::clone(prompt),
            decision: ledger.id,
            received: ledger.received,
            number,
            replica,
            lease: Some(lease),
            retry_after: None,
            predicted_ttft_ms,
            predicted_cached_tokens,
            began_at: began,
            answered: false,
            timing: SendTiming::default(),
            head_at: None,
            status: None,
            first_content_at: None,
            hedge_outcome: HedgeOutcome::default(),
        }
    }

    pub(in crate::edge) const fn replica(&self) -> ReplicaId {
        self.replica
    }

    /// Address and connections of the replica; `None` if the router chose one that is not in the fleet.
    pub(in crate::edge) fn upstream(&self) -> Option<&UpstreamReplica> {
        self.data.replica(self.replica)
    }

    /// Records that the first content arrived, so the prefill is over.
    pub(in crate::edge) fn record_first_content(&mut self, at: UnixMicros) {
        if self.first_content_at.is_none() {
            self.first_content_at = Some(at);
            if let Some(lease) = &mut self.lease {
                lease.first_token(at);
            }
        }
    }

    /// Records that the client gets this response, whose first byte has arrived.
    pub(in crate::edge) fn mark_answered(&mut self) {
        self.answered = true;
        let now = self.data.clock.now();
        self.data.liveness.record_activity(self.replica, now);
        // 5xx are judged in `failure`; below that the replica works, even if it rejects the request.
        if self.status.is_some_and(|status| status < 500) {
            let shift = self.data.liveness.ejections().attempt_answered(self.replica, self.began_at);
            self.data.record_ejection_change(self.replica, shift, None);
        }
        // Only streams: the first byte of a whole response comes after all of it was generated.
        if self.status == Some(200) && self.prompt.stream {
            let waited_ms = now.millis_since(self.timing.sent.unwrap_or(self.began_at));
            self.data.hedge_delays.observe(self.replica, waited_ms, self.predicted_ttft_ms);
        }
    }

    /// Ends the attempt: releases the load and writes the row.
    pub(in crate::edge) fn end(mut self, error: Option<ErrorClass>, usage: TokenUsage) {
        self.close(error, usage);
    }

    /// Handle that determines how the attempt ends when it is dropped.
    pub(in crate::edge) fn hedge_outcome(&self) -> HedgeOutcome {
        self.hedge_outcome.clone()
    }

    /// Ends an attempt that lost to a faster replica. If `late`, the elapsed time is recorded as its time to the first
    /// token: a lower bound (censored), but without it nothing would be learned of replicas that always lose.
    fn lose_hedge(&mut self, late: bool) {
        // Taken, so that `close` in `drop` finds nothing left to do.
        let Some(lease) = self.lease.take() else { return };
        let now = self.data.clock.now();
        let waited_ms = now.millis_since(self.timing.sent.unwrap_or(self.began_at));
        let ending =
            RequestOutcome { usage: TokenUsage::default(), ttft_ms: late.then_some(waited_ms), completed: late };
        lease.finish(&self.prompt, &ending, now);
        // Late, and nothing arrived on any of its streams while another replica answered: it hangs, or its link is
        // down.
        let silent = late && self.data.liveness.last_activity(self.replica) < self.began_at;
        self.update_ejection(Some(ErrorClass::LostHedge), silent.then_some(AttemptFailure::Unanswered));
        self.write_row(Some(ErrorClass::LostHedge));
    }

    /// Writes the row of this try and begins another one at the same replica, with the same reservation.
    pub(in crate::edge) fn restart_at_same_replica(&mut self, error: ErrorClass, number: u16) {
        // `lease` is kept: releasing and reserving again would let another request take the load in between.
        self.write_row(Some(error));
        self.number = number;
        self.timing = SendTiming::default();
        self.head_at = None;
        self.status = None;
    }

    fn close(&mut self, error: Option<ErrorClass>, usage: TokenUsage) {
        let Some(lease) = self.lease.take() else { return };
        // TTFT counts from the sending, so that waiting at the gate is not attributed to the replica.
        let sent = self.timing.sent.unwrap_or(self.received);
        let ttft_ms = self.first_content_at.map(|at| at.millis_since(sent));
        lease.finish(
            &self.prompt,
            &RequestOutcome { usage, ttft_ms, completed: error.is_none() },
            self.data.clock.now(),
        );
        self.update_ejection(error, error.and_then(|error| self.counted_failure(error)));
        self.write_row(error);
    }

    /// Failure of the replica that an error indicates; `None`: none.
    const fn counted_failure(&self, error: ErrorClass) -> Option<AttemptFailure> {
        match error {
            ErrorClass::UpstreamStatus if matches!(self.status, Some(500)) => Some(AttemptFailure::ServerError),
            // At its limit, which is no failure; a `Retry-After` is obeyed in `settle_standing`.
            ErrorClass::UpstreamStatus if matches!(self.status, Some(429)) => None,
            ErrorClass::Connect
            | ErrorClass::UpstreamClosed
            | ErrorClass::UpstreamProtocol
            | ErrorClass::FirstByteTimeout
            | ErrorClass::UpstreamStatus => Some(AttemptFailure::Unanswered),
            ErrorClass::UpstreamAborted | ErrorClass::IdleTimeout if self.answered => Some(AttemptFailure::BrokeOff),
            ErrorClass::UpstreamAborted | ErrorClass::IdleTimeout => Some(AttemptFailure::Unanswered),
            // In mid-stream the request itself may be the cause.
            ErrorClass::UpstreamErrorEvent if !self.answered => Some(AttemptFailure::Unanswered),
            _ => None,
        }
    }

    fn update_ejection(&self, error: Option<ErrorClass>, failure: Option<AttemptFailure>) {
        // All of the ejection's bookkeeping happens here, once per attempt, so that its trial requests are always
        // accounted for.
        let (ejections, now) = (self.data.liveness.ejections(), self.data.clock.now());
        if error.is_none() {
            ejections.response_completed(self.replica);
        }
        let shift = ejections.attempt_ended(self.replica, self.began_at, now, failure);
        self.data.record_ejection_change(self.replica, shift, error);
        if let Some(wish) = self.retry_after {
            let shift = ejections.eject_for(self.replica, now, wish);
            self.data.record_ejection_change(self.replica, shift, error);
        }
    }

    fn write_row(&self, error: Option<ErrorClass>) {
        let since = |at: UnixMicros| micros(at.elapsed_since(self.received));
        self.data.outlet.record(StoreRecord::Attempt(AttemptRecord {
            decision: self.decision,
            attempt: self.number,
            replica: self.replica,
            connection: self.timing.connection,
            connect_us: self.timing.connect.map(micros),
            sent_us: self.timing.sent.map(since),
            first_byte_us: self.head_at.map(since),
            ended_us: since(self.data.clock.now()),
            status: self.status,
            error,
        }));
    }
}

impl Drop for RequestAttempt {
    fn drop(&mut self) {
        // Set by the hedge that won; a drop without it means that the client left or the router shuts down.
        match self.hedge_outcome.0.load(Ordering::Relaxed) {
            LOST => self.lose_hedge(false),
            LOST_LATE => self.lose_hedge(true),
            _ => {}
        }
        let abandoned = self.data.drop_reason();
        self.close(Some(abandoned), TokenUsage::default());
    }
}
