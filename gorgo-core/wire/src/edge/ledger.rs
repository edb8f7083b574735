//! Ledger of one request: its decision row and its outcome row, each written once, on every path.
//!
//! A ledger that is dropped while open belongs to a client that left (or to a shutdown): hyper drops the future of a
//! request whose connection is gone.

use std::sync::Arc;
use std::time::Duration;

use super::DataPlane;
use super::choose::{ReplicaLease, SelectedReplica};
use super::forward::attempt::RequestAttempt;
use crate::engine::StreamObservation;
use gorgo_routing::model::{
    ApiPath, DecisionId, DecisionRecord, ErrorClass, OutcomeRecord, ParsedRequest, RefusalReason, ReplicaId,
    RouteLabels, StoreRecord, UnixMicros,
};

/// Open ledger of a request.
pub(super) struct RequestLedger {
    data: Arc<DataPlane>,
    pub(super) id: DecisionId,
    pub(super) received: UnixMicros,
    path: ApiPath,
    /// Replica of the last attempt.
    replica: Option<ReplicaId>,
    /// Known once the body was read; for refusals before that.
    pub(super) body_bytes: u64,
    pub(super) prompt: Option<Arc<ParsedRequest>>,
    decided: bool,
    open: bool,
    predicted_ttft_ms: Option<f64>,
    /// Total wait at the gate.
    admission_wait: Duration,
    pub(super) predicted_cached_tokens: Option<u32>,
}

/// Reservation for an attempt, with its predictions.
pub(super) struct ReservedAttempt {
    pub(super) lease: Box<dyn ReplicaLease>,
    pub(super) predicted_ttft_ms: Option<f64>,
    pub(super) predicted_cached_tokens: u32,
}

/// Outcome of a request for its client.
pub(super) struct ClientOutcome<'a> {
    pub(super) status: Option<u16>,
    pub(super) error: Option<ErrorClass>,
    pub(super) first_byte: Option<UnixMicros>,
    pub(super) observed: Option<&'a StreamObservation>,
}

impl ClientOutcome<'_> {
    /// Outcome without anything from an engine.
    pub(super) const fn without_response(status: Option<u16>, error: ErrorClass) -> Self {
        Self { status, error: Some(error), first_byte: None, observed: None }
    }
}

impl RequestLedger {
    /// Opens the ledger when a request's head has arrived.
    pub(super) fn open(data: &Arc<DataPlane>, path: ApiPath) -> Self {
        let received = data.clock.now();
        // Retries are limited to a share of all requests, so every request counts from its arrival.
        data.retry_budget.record_request(received);
        Self {
            // Before any decision, so that refused requests have an id too.
            id: data.ids.next(received),
            data: Arc::clone(data),
            received,
            path,
            replica: None,
            body_bytes: 0,
            prompt: None,
            decided: false,
            open: true,
            predicted_ttft_ms: None,
            admission_wait: Duration::ZERO,
            predicted_cached_tokens: None,
        }
    }

    /// Adds a wait at the gate.
    pub(super) fn add_wait(&mut self, span: Duration) {
        self.admission_wait += span;
    }

    /// Records the replica that attempt `number` goes to. `began`: start of the decision, whose duration is in the
    /// decision row only.
    pub(super) fn record_decision(
        &mut self,
        choice: SelectedReplica,
        number: u16,
        began: UnixMicros,
    ) -> ReservedAttempt {
        let SelectedReplica { mut record, lease, predicted_ttft_ms, predicted_cached_tokens } = choice;
        self.replica = Some(lease.replica());
        // One decision row per request; later attempts only add the candidates that they were chosen from.
        let row = if self.decided {
            StoreRecord::Candidates { decision: self.id, attempt: number, rows: record.candidates }
        } else {
            self.decided = true;
            record.received = self.received;
            // Of the first decision only: the row has room for one duration.
            record.decide_us = span_us(self.data.clock.now().elapsed_since(began));
            StoreRecord::Decision(record)
        };
        self.data.outlet.record(row);
        ReservedAttempt { lease, predicted_ttft_ms, predicted_cached_tokens }
    }

    /// Makes the outcome this attempt's: after a hedge, the last replica chosen need not be the one that answers.
    pub(super) fn attribute_to(&mut self, attempt: &RequestAttempt) {
        self.replica = Some(attempt.replica());
        let waited_ms = self.admission_wait.as_secs_f64() * 1e3;
        // Predictions start at the replica, the outcome's TTFT at the arrival of the head: the wait lies between.
        self.predicted_ttft_ms = attempt.predicted_ttft_ms.map(|ms| ms + waited_ms);
        self.predicted_cached_tokens = Some(attempt.predicted_cached_tokens);
    }

    /// Closes the ledger of a request that was not routed.
    pub(super) fn refuse(mut self, refusal: RefusalReason, status: Option<u16>) {
        self.write_refusal(refusal);
        let error = if refusal == RefusalReason::ClientGone { ErrorClass::ClientGone } else { ErrorClass::Refused };
        self.close(&ClientOutcome::without_response(status, error));
    }

    /// Closes the ledger.
    pub(super) fn finish(mut self, outcome: &ClientOutcome<'_>) {
        self.close(outcome);
    }

    fn write_refusal(&mut self, refusal: RefusalReason) {
        // A request that was decided has its row already, even if a later attempt found no replica.
        if std::mem::replace(&mut self.decided, true) {
            return;
        }
        let prompt = self.prompt.as_deref();
        let policy = self.data.selector.active_build(self.data.serving.get());
        self.data.outlet.record(StoreRecord::Decision(Box::new(DecisionRecord {
            model: prompt.and_then(|prompt| prompt.model.clone()),
            session_hash: prompt.map_or(0, |prompt| prompt.session_hash),
            body_bytes: self.body_bytes,
            ..DecisionRecord::refused(self.id, self.received, self.path, policy, refusal)
        })));
    }

    fn close(&mut self, outcome: &ClientOutcome<'_>) {
        // Guards against a second outcome: `drop` runs after `end` as well.
        if !std::mem::replace(&mut self.open, false) {
            return;
        }
        let since = |at: UnixMicros| micros(at.elapsed_since(self.received));
        let observed = outcome.observed;
        let usage = observed.map(|observed| observed.usage).unwrap_or_default();
        let route = RouteLabels { path: self.path, replica: self.replica };
        let outcome = OutcomeRecord {
            decision: self.id,
            status: outcome.status,
            error: outcome.error,
            ttft_us: observed.and_then(|observed| observed.first_content).map(since),
            first_byte_us: outcome.first_byte.map(since),
            e2e_us: since(self.data.clock.now()),
            itl_mean_us: observed.and_then(StreamObservation::mean_gap).map(micros),
            itl_counts: observed.and_then(|observed| observed.gaps.counts()),
            itl_p99_us: observed.and_then(|observed| observed.gaps.quantile(990)).map(i64::from),
            prompt_tokens: usage.prompt_tokens,
            cached_tokens: usage.cached_tokens,
            completion_tokens: usage.completion_tokens,
            predicted_ttft_us: self.predicted_ttft_ms.map(whole_micros),
            predicted_cached_tokens: self.predicted_cached_tokens,
        };
        self.data.outlet.record(StoreRecord::Outcome(route, Box::new(outcome)));
    }
}

impl Drop for RequestLedger {
    fn drop(&mut self) {
        if self.open {
            self.write_refusal(RefusalReason::ClientGone);
            self.close(&ClientOutcome::without_response(None, self.data.drop_reason()));
        }
    }
}

impl DataPlane {
    /// Reason why a request's future was dropped: its client left, or it was aborted by the shutdown.
    pub(super) fn drop_reason(&self) -> ErrorClass {
        if self.abort.is_triggered() { ErrorClass::Shutdown } else { ErrorClass::ClientGone }
    }
}

/// Duration in whole microseconds.
pub(super) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

fn span_us(span: Duration) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}

/// Prediction in ms as whole µs; values that are not finite or below zero become 0.
#[expect(clippy::cast_possible_truncation, reason = "clamped to 0 ..= 10^15 on the same line")]
fn whole_micros(millis: f64) -> i64 {
    if millis.is_finite() { (millis * 1e3).round().clamp(0.0, 1e15) as i64 } else { 0 }
}
