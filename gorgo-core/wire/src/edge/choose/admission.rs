//! Wait between choosing and sending: a request whose chosen replica has enough in flight waits here.
//!
//! A request is decided again each time it is called, so a replica that is ejected or down meanwhile loses the requests
//! that wait for it. There is no time-out: the queue is bounded, and a client that leaves gives its place up at once.
//! The wait is part of the request's times, which count from the arrival of its head.

use std::sync::Arc;

use crate::edge::DataPlane;
use crate::edge::choose::{AdmissionTicket, SelectedReplica, SelectionOutcome};
use crate::edge::forward::attempt::RequestAttempt;
use crate::edge::forward::buffered_request::BufferedRequest;
use crate::edge::forward::seed;
use crate::edge::ledger::{RequestLedger, micros};
use gorgo_routing::model::{
    AdmissionEnd, AdmissionRecord, DecisionId, ErrorClass, RefusalReason, ReplicaId, StoreRecord, UnixMicros,
};
use gorgo_routing::policy::{DecideError, DecisionContext};

/// Attempt for which a replica was requested: chosen, or waiting for one.
pub(in crate::edge) struct PendingAttempt {
    number: u16,
    /// Start of the decision.
    decide_began_at: UnixMicros,
    outcome: SelectionOutcome,
}

/// Request that cannot be routed.
pub(in crate::edge) struct RoutingRefusal {
    pub(in crate::edge) refusal: RefusalReason,
    /// Seconds after which the client may retry, if known.
    pub(in crate::edge) retry_secs: Option<u64>,
}

impl From<DecideError> for RoutingRefusal {
    fn from(error: DecideError) -> Self {
        let retry_secs = if let DecideError::GateFull { retry_secs } = error { Some(retry_secs) } else { None };
        Self { refusal: error.into(), retry_secs }
    }
}

/// Requests a replica. Ejected ones are chosen only if no other is left. `since`: start of the decision; for the first
/// one, reading the body is part of it.
pub(in crate::edge) fn admit(
    asked: &BufferedRequest,
    id: DecisionId,
    tried: &[ReplicaId],
    since: UnixMicros,
) -> Result<PendingAttempt, DecideError> {
    let number = asked.next_attempt_number();
    let entry =
        decide_excluding(asked, id, number, tried, |context| asked.data.selector.admit(&asked.prompt, context))?;
    Ok(PendingAttempt { number, decide_began_at: since, outcome: entry })
}

impl PendingAttempt {
    /// Waits at the gate if necessary, and begins the attempt.
    pub(in crate::edge) async fn begin_when_admitted(
        self,
        asked: &BufferedRequest,
        ledger: &mut RequestLedger,
        tried: &[ReplicaId],
    ) -> Result<RequestAttempt, RoutingRefusal> {
        let data = &asked.data;
        let Self { number, decide_began_at: mut since, outcome: mut entry } = self;
        let mut hold = None;
        let choice: SelectedReplica = loop {
            match entry {
                SelectionOutcome::Selected(choice) => break choice,
                SelectionOutcome::Queued(place) => {
                    let hold = hold.get_or_insert_with(|| AdmissionWait::begin(data, ledger.id, number));
                    hold.update(&*place);
                    tokio::select! {
                        // Checked first: aborted requests free places, and those must not be taken during the shutdown.
                        biased;
                        () = data.abort.wait() => {
                            hold.ended = AdmissionEnd::Shutdown;
                            return Err(RoutingRefusal { refusal: RefusalReason::Draining, retry_secs: None });
                        }
                        () = place.called() => {}
                    }
                    // The time at the gate is recorded as a wait; the decision's own time starts again here.
                    since = data.clock.now();
                    entry = readmit(asked, ledger.id, number, tried, place).map_err(|error| {
                        hold.ended = AdmissionEnd::Refused;
                        RoutingRefusal::from(error)
                    })?;
                }
            }
        };
        // Set before `hold` is dropped, which writes its row.
        if let Some(mut hold) = hold {
            hold.ended = AdmissionEnd::Dispatched;
            hold.replica = choice.lease.replica();
            ledger.add_wait(data.clock.now().elapsed_since(hold.began));
        }
        let reserved = ledger.record_decision(choice, number, since);
        Ok(RequestAttempt::begin(data, &asked.prompt, ledger, number, data.clock.now(), reserved))
    }
}

/// Decides a waiting request again. If only ejected replicas are left, it enters their queues from the start.
fn readmit(
    asked: &BufferedRequest,
    id: DecisionId,
    number: u16,
    tried: &[ReplicaId],
    place: Box<dyn AdmissionTicket>,
) -> Result<SelectionOutcome, DecideError> {
    let mut place = Some(place);
    // A second call, which admits ejected replicas, finds that the first one has used up the place.
    decide_excluding(asked, id, number, tried, |context| match place.take() {
        Some(place) => place.enter_again(&asked.prompt, context),
        None => asked.data.selector.admit(&asked.prompt, context),
    })
}

fn decide_excluding<T>(
    asked: &BufferedRequest,
    id: DecisionId,
    number: u16,
    tried: &[ReplicaId],
    mut by: impl FnMut(&DecisionContext<'_>) -> Result<T, DecideError>,
) -> Result<T, DecideError> {
    let data = &asked.data;
    let (at, seed) = (data.clock.now(), seed(data.seed, id.0, number));
    let mut by = |exclude: &[ReplicaId]| by(&DecisionContext { policy: data.serving.get(), id, seed, at, exclude });
    // The usual case by far: no list to build on the hot path.
    let mut held_back = data.liveness.ejections().ejected(at);
    if held_back.is_empty() {
        return by(tried);
    }
    held_back.extend_from_slice(tried);
    // A full queue is an answer, not a lack of replicas: sending the request to an ejected one instead would only fail.
    by(&held_back).or_else(|error| if matches!(error, DecideError::GateFull { .. }) { Err(error) } else { by(tried) })
}

/// Chooses a replica that has room now and begins an attempt there: for a hedge, which would be of no use in a queue.
pub(in crate::edge) fn select_for_hedge(
    asked: &BufferedRequest,
    ledger: &mut RequestLedger,
    tried: &[ReplicaId],
) -> Result<RequestAttempt, DecideError> {
    let data = &asked.data;
    let (since, number) = (data.clock.now(), asked.next_attempt_number());
    let choice =
        decide_excluding(asked, ledger.id, number, tried, |context| data.selector.decide(&asked.prompt, context))?;
    let reserved = ledger.record_decision(choice, number, since);
    Ok(RequestAttempt::begin(data, &asked.prompt, ledger, number, since, reserved))
}

/// Wait at the gate that has not ended. Its row is written on drop, whatever ended it.
struct AdmissionWait {
    data: Arc<DataPlane>,
    decision: DecisionId,
    number: u16,
    began: UnixMicros,
    replica: ReplicaId,
    moves: u16,
    ended: AdmissionEnd,
}

impl AdmissionWait {
    fn begin(data: &Arc<DataPlane>, decision: DecisionId, number: u16) -> Self {
        let began = data.clock.now();
        let data = Arc::clone(data);
        Self { data, decision, number, began, replica: ReplicaId(0), moves: 0, ended: AdmissionEnd::ClientGone }
    }

    fn update(&mut self, place: &dyn AdmissionTicket) {
        (self.replica, self.moves) = (place.replica(), place.moves());
    }
}

impl Drop for AdmissionWait {
    fn drop(&mut self) {
        // During a shutdown the client did not leave; its request was aborted.
        let abandoned = self.data.drop_reason() == ErrorClass::Shutdown && self.ended == AdmissionEnd::ClientGone;
        self.data.outlet.record(StoreRecord::Hold(AdmissionRecord {
            decision: self.decision,
            attempt: self.number,
            replica: self.replica,
            moves: self.moves,
            held_us: micros(self.data.clock.now().elapsed_since(self.began)),
            ended: if abandoned { AdmissionEnd::Shutdown } else { self.ended },
        }));
    }
}
