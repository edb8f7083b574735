//! One attempt at one replica, as a value: its row, and the load reserved for it.
//!
//! Whatever happens to the attempt, also that its future is dropped, the reservation is given back once and the row is
//! written once. Several attempts of one request may be alive at the same time.

use std::sync::Arc;

use super::Data;
use super::choose::Lease;
use super::ledger::micros;
use super::pool::Trip;
use super::upstream::Upstream;
use crate::model::{At, AttemptRecord, DecisionId, Ending, ErrorClass, Prompt, Record, ReplicaId, Usage};

/// A running attempt.
pub(super) struct Attempt {
    data: Arc<Data>,
    prompt: Arc<Prompt>,
    decision: DecisionId,
    received: At,
    number: u16,
    replica: ReplicaId,
    lease: Option<Box<dyn Lease>>,
    pub(super) trip: Trip,
    pub(super) head: Option<At>,
    pub(super) status: Option<u16>,
    first_content: Option<At>,
}

impl Attempt {
    /// An attempt that begins. `lease`: what was reserved for it.
    pub(super) fn begin(
        data: &Arc<Data>,
        prompt: &Arc<Prompt>,
        decision: DecisionId,
        received: At,
        number: u16,
        lease: Box<dyn Lease>,
    ) -> Self {
        Self {
            data: Arc::clone(data),
            prompt: Arc::clone(prompt),
            decision,
            received,
            number,
            replica: lease.replica(),
            lease: Some(lease),
            trip: Trip::default(),
            head: None,
            status: None,
            first_content: None,
        }
    }

    pub(super) const fn replica(&self) -> ReplicaId {
        self.replica
    }

    pub(super) const fn number(&self) -> u16 {
        self.number
    }

    /// The replica's address and connections; `None` where the router chose one that is not in the fleet.
    pub(super) fn upstream(&self) -> Option<&Upstream> {
        self.data.upstream(self.replica)
    }

    /// The first content came: the prefill is done.
    pub(super) fn first_content(&mut self, at: At) {
        if self.first_content.is_none() {
            self.first_content = Some(at);
            if let Some(lease) = &mut self.lease {
                lease.first_token(at);
            }
        }
    }

    /// Ends it: gives the load back and writes the row.
    pub(super) fn end(mut self, error: Option<ErrorClass>, usage: Usage) {
        self.close(error, usage);
    }

    /// Writes the row of this try and begins another one at the same replica, with the same load.
    pub(super) fn again(&mut self, error: ErrorClass) {
        self.write(Some(error));
        self.number += 1;
        self.trip = Trip::default();
        self.head = None;
        self.status = None;
    }

    fn close(&mut self, error: Option<ErrorClass>, usage: Usage) {
        let Some(lease) = self.lease.take() else { return };
        let sent = self.trip.sent.unwrap_or(self.received);
        let ttft_ms = self.first_content.map(|at| at.millis_since(sent));
        lease.finish(&self.prompt, &Ending { usage, ttft_ms, completed: error.is_none() }, self.data.clock.now());
        self.write(error);
    }

    fn write(&self, error: Option<ErrorClass>) {
        let since = |at: At| micros(at.since(self.received));
        self.data.records.record(Record::Attempt(AttemptRecord {
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
        let abandoned = self.data.abandoned();
        self.close(Some(abandoned), Usage::default());
    }
}
