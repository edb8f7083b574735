//! One attempt at one replica, as a value: its row, and the load reserved for it.
//!
//! However the attempt ends, even if its future is dropped, the reservation is released once and the row is written
//! once. Several attempts of one request may be alive at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::edge::Data;
use crate::edge::choose::Lease;
use crate::edge::ledger::{Ledger, Reserved, micros};
use crate::edge::upstream::Upstream;
use crate::edge::upstream::pool::Trip;
use crate::engine::ejection::Failure;
use gorgo_routing::model::{At, AttemptRecord, DecisionId, Ending, ErrorClass, Prompt, Record, ReplicaId, Usage};

/// Running attempt.
pub(in crate::edge) struct Attempt {
    data: Arc<Data>,
    prompt: Arc<Prompt>,
    decision: DecisionId,
    received: At,
    number: u16,
    replica: ReplicaId,
    lease: Option<Box<dyn Lease>>,
    pub(in crate::edge) trip: Trip,
    pub(in crate::edge) head: Option<At>,
    pub(in crate::edge) status: Option<u16>,
    /// Time for which the engine asks to get no requests, if its refusal named one.
    pub(in crate::edge) leave_alone: Option<Duration>,
    pub(in crate::edge) predicted_ttft_ms: Option<f64>,
    pub(in crate::edge) predicted_cached_tokens: u32,
    began: At,
    /// True once the client gets this response.
    answered: bool,
    first_content: Option<At>,
    fate: Fate,
}

/// Determines from outside how a running attempt ends when it is dropped. Unset, a dropped attempt means that its
/// client left.
#[derive(Debug, Clone, Default)]
pub(in crate::edge) struct Fate(Arc<AtomicU8>);

const LOST: u8 = 1;
const LOST_LATE: u8 = 2;

impl Fate {
    /// Another attempt was faster. `late`: this one had exceeded its hedge delay.
    pub(in crate::edge) fn lost(&self, late: bool) {
        self.0.store(if late { LOST_LATE } else { LOST }, Ordering::Relaxed);
    }
}

impl Attempt {
    /// Starts an attempt at time `began`, with what was reserved for it.
    pub(in crate::edge) fn begin(
        data: &Arc<Data>,
        prompt: &Arc<Prompt>,
        ledger: &Ledger,
        number: u16,
        began: At,
        reserved: Reserved,
    ) -> Self {
        let Reserved { lease, predicted_ttft_ms, predicted_cached_tokens } = reserved;
        let replica = lease.replica();
        // Counted at the start: a replica that returns from ejection admits a single trial request at a time.
        data.vitals.ejections().began(replica, began);
        Self {
            data: Arc::clone(data),
            prompt: Arc::clone(prompt),
            decision: ledger.id,
            received: ledger.received,
            number,
            replica,
            lease: Some(lease),
            leave_alone: None,
            predicted_ttft_ms,
            predicted_cached_tokens,
            began,
            answered: false,
            trip: Trip::default(),
            head: None,
            status: None,
            first_content: None,
            fate: Fate::default(),
        }
    }

    pub(in crate::edge) const fn replica(&self) -> ReplicaId {
        self.replica
    }

    /// Address and connections of the replica; `None` if the router chose one that is not in the fleet.
    pub(in crate::edge) fn upstream(&self) -> Option<&Upstream> {
        self.data.upstream(self.replica)
    }

    /// Records that the first content arrived, so the prefill is over.
    pub(in crate::edge) fn first_content(&mut self, at: At) {
        if self.first_content.is_none() {
            self.first_content = Some(at);
            if let Some(lease) = &mut self.lease {
                lease.first_token(at);
            }
        }
    }

    /// Records that the client gets this response, whose first byte has arrived.
    pub(in crate::edge) fn answered(&mut self) {
        self.answered = true;
        let now = self.data.clock.now();
        self.data.vitals.heard(self.replica, now);
        // 5xx are judged in `failure`; below that the replica works, even if it rejects the request.
        if self.status.is_some_and(|status| status < 500) {
            let shift = self.data.vitals.ejections().answered(self.replica, self.began);
            self.data.note_shift(self.replica, shift, None);
        }
        // Only streams: the first byte of a whole response comes after all of it was generated.
        if self.status == Some(200) && self.prompt.stream {
            let waited_ms = now.millis_since(self.trip.sent.unwrap_or(self.began));
            self.data.patience.learn(self.replica, waited_ms, self.predicted_ttft_ms);
        }
    }

    /// Ends the attempt: releases the load and writes the row.
    pub(in crate::edge) fn end(mut self, error: Option<ErrorClass>, usage: Usage) {
        self.close(error, usage);
    }

    /// Handle that determines how the attempt ends when it is dropped.
    pub(in crate::edge) fn fate(&self) -> Fate {
        self.fate.clone()
    }

    /// Ends an attempt that lost to a faster replica. If `late`, the elapsed time is recorded as its time to the first
    /// token: a lower bound (censored), but without it nothing would be learned of replicas that always lose.
    fn lose(&mut self, late: bool) {
        // Taken, so that `close` in `drop` finds nothing left to do.
        let Some(lease) = self.lease.take() else { return };
        let now = self.data.clock.now();
        let waited_ms = now.millis_since(self.trip.sent.unwrap_or(self.began));
        let ending = Ending { usage: Usage::default(), ttft_ms: late.then_some(waited_ms), completed: late };
        lease.finish(&self.prompt, &ending, now);
        // Late, and nothing arrived on any of its streams while another replica answered: it hangs, or its link is
        // down.
        let silent = late && self.data.vitals.last(self.replica) < self.began;
        self.settle_standing(Some(ErrorClass::LostRace), silent.then_some(Failure::Unanswered));
        self.write(Some(ErrorClass::LostRace));
    }

    /// Writes the row of this try and begins another one at the same replica, with the same reservation.
    pub(in crate::edge) fn again(&mut self, error: ErrorClass, number: u16) {
        // `lease` is kept: releasing and reserving again would let another request take the load in between.
        self.write(Some(error));
        self.number = number;
        self.trip = Trip::default();
        self.head = None;
        self.status = None;
    }

    fn close(&mut self, error: Option<ErrorClass>, usage: Usage) {
        let Some(lease) = self.lease.take() else { return };
        // TTFT counts from the sending, so that waiting at the gate is not attributed to the replica.
        let sent = self.trip.sent.unwrap_or(self.received);
        let ttft_ms = self.first_content.map(|at| at.millis_since(sent));
        lease.finish(&self.prompt, &Ending { usage, ttft_ms, completed: error.is_none() }, self.data.clock.now());
        self.settle_standing(error, error.and_then(|error| self.failure(error)));
        self.write(error);
    }

    /// Failure of the replica that an error indicates; `None`: none.
    const fn failure(&self, error: ErrorClass) -> Option<Failure> {
        match error {
            ErrorClass::UpstreamStatus if matches!(self.status, Some(500)) => Some(Failure::ServerError),
            // At its limit, which is no failure; a `Retry-After` is obeyed in `settle_standing`.
            ErrorClass::UpstreamStatus if matches!(self.status, Some(429)) => None,
            ErrorClass::Connect
            | ErrorClass::UpstreamClosed
            | ErrorClass::UpstreamProtocol
            | ErrorClass::FirstByteTimeout
            | ErrorClass::UpstreamStatus => Some(Failure::Unanswered),
            ErrorClass::UpstreamAborted | ErrorClass::IdleTimeout if self.answered => Some(Failure::Broken),
            ErrorClass::UpstreamAborted | ErrorClass::IdleTimeout => Some(Failure::Unanswered),
            // In mid-stream the request itself may be the cause.
            ErrorClass::UpstreamErrorEvent if !self.answered => Some(Failure::Unanswered),
            _ => None,
        }
    }

    fn settle_standing(&self, error: Option<ErrorClass>, failure: Option<Failure>) {
        // All of the ejection's bookkeeping happens here, once per attempt, so that its trial requests are always
        // accounted for.
        let (ejections, now) = (self.data.vitals.ejections(), self.data.clock.now());
        if error.is_none() {
            ejections.completed(self.replica);
        }
        let shift = ejections.ended(self.replica, self.began, now, failure);
        self.data.note_shift(self.replica, shift, error);
        if let Some(wish) = self.leave_alone {
            let shift = ejections.leave_alone(self.replica, now, wish);
            self.data.note_shift(self.replica, shift, error);
        }
    }

    fn write(&self, error: Option<ErrorClass>) {
        let since = |at: At| micros(at.since(self.received));
        self.data.outlet.record(Record::Attempt(AttemptRecord {
            decision: self.decision,
            attempt: self.number,
            replica: self.replica,
            connection: self.trip.connection,
            connect_us: self.trip.connect.map(micros),
            sent_us: self.trip.sent.map(since),
            first_byte_us: self.head.map(since),
            ended_us: since(self.data.clock.now()),
            status: self.status,
            error,
        }));
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        // Set by the hedge that won; a drop without it means that the client left or the router shuts down.
        match self.fate.0.load(Ordering::Relaxed) {
            LOST => self.lose(false),
            LOST_LATE => self.lose(true),
            _ => {}
        }
        let abandoned = self.data.abandoned();
        self.close(Some(abandoned), Usage::default());
    }
}
