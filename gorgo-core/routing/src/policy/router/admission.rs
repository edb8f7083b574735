//! Requests that wait at the gate: a request enters, and is routed or held; a held one is called, and enters again.
//!
//! The gate itself is `feature::admission`; here it is combined with the facts, under the lock that decisions are made
//! under.

use std::fmt;

use parking_lot::MutexGuard;

use super::router_state::RouterState;
use super::{DecideError, DecisionContext, RoutedRequest, Router};
use crate::feature::admission::{AdmissionRequest, CountCorrection, QueueTicket, WithdrawnTicket};
use crate::model::{
    AdmissionRule, ApiPath, Candidates, FleetEvent, ParsedRequest, PolicyBuildId, PolicyIndex, ReplicaId, RequestView,
    UnixMicros,
};
use crate::policy::Policy;
use crate::tune::AssignedWeights;

/// Fixed GPU time by which a prefill stalls the requests that decode, ms; and the price of a ms of their time. Used for
/// the cost gap that orders the queue, whatever policy chooses; the values are those of the term `stall` in
/// simulations.
const STALL_MS: f64 = 60.0;
const STALL_PRICE: f64 = 0.5;

/// Result of entering the gate.
#[derive(Debug)]
pub enum EnterResult {
    /// The request was routed.
    Routed(Box<RoutedRequest>),
    /// The request waits.
    Waiting(WaitingRequest),
}

/// A request that waits at the gate. Passed to [`Router::readmit`] or [`Router::cancel_wait`].
#[derive(Debug)]
#[must_use = "a queue position that is dropped blocks the requests behind it"]
pub struct WaitingRequest {
    pub(super) ticket: QueueTicket,
    pub(super) assigned: AssignedWeights,
    /// The turn of its first decision: repeating the decision takes no further turn.
    pub(super) turn: u64,
    /// Position of its policy in the list.
    pub(super) policy_slot: PolicyIndex,
    /// The build of that policy: another may be active at its position by the time the request is called.
    pub(super) policy: PolicyBuildId,
}

impl WaitingRequest {
    /// Number that it is called by; kept when it is held again.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.ticket.number()
    }

    /// Replica that it waits for.
    #[must_use]
    pub const fn replica(&self) -> ReplicaId {
        self.ticket.replica()
    }

    /// Time to enter again, called or not.
    #[must_use]
    pub const fn look(&self) -> UnixMicros {
        self.ticket.look()
    }

    /// Number of repeated decisions that chose another replica.
    #[must_use]
    pub const fn moves(&self) -> u16 {
        self.ticket.moves()
    }
}

/// Relation of a request to the queue.
#[derive(Debug)]
pub(super) enum AdmissionMode {
    /// The request will not wait.
    Now,
    /// The request comes for the first time.
    First,
    /// The request waited, and keeps this turn of the policy.
    Again(Option<QueueTicket>, u64),
}

impl AdmissionMode {
    /// Takes the request out of its queue. Also returns its turn, if it already has one.
    pub(super) fn begin(&mut self, state: &mut RouterState) -> (Option<WithdrawnTicket>, Option<u64>) {
        match self {
            Self::Now | Self::First => (None, None),
            Self::Again(ticket, turn) => (ticket.take().map(|ticket| state.gate.withdraw(ticket)), Some(*turn)),
        }
    }
}

/// The gate at which a request of this kind waits: requests that generate nothing pass.
pub(super) fn gated(policy: &Policy, path: ApiPath) -> Option<AdmissionRule> {
    policy.admission.filter(|_| !matches!(path, ApiPath::Embeddings | ApiPath::Other))
}

/// Message about a corrected count, for operators.
pub(super) fn resync_message(resync: &CountCorrection) -> String {
    let CountCorrection { written_off, engine_has, .. } = resync;
    format!(
        "the gate counted {written_off} requests that the engine has not had for 10 s (it reports {engine_has}); they were \
         written off"
    )
}

/// Receives the numbers of requests that the gate calls.
pub(super) struct CallListener(Box<dyn Fn(u64) + Send + Sync>);

impl fmt::Debug for CallListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallListener")
    }
}

impl Router {
    /// Selects and reserves in one step, as [`Router::decide`], or answers that the request has to wait.
    ///
    /// # Errors
    /// The reason why no replica could be chosen; also that the queue for the chosen one is full.
    pub fn admit(&self, prompt: &ParsedRequest, context: &DecisionContext<'_>) -> Result<EnterResult, DecideError> {
        self.enter_as(AdmissionMode::First, prompt, context)
    }

    /// Decides again for a request that waited and was called, or whose time to look again has come, by the policy at
    /// the index that it was held by; the context's policy is ignored.
    ///
    /// # Errors
    /// As [`Router::admit`]; the request no longer waits then.
    pub fn readmit(
        &self,
        held: WaitingRequest,
        prompt: &ParsedRequest,
        context: &DecisionContext<'_>,
    ) -> Result<EnterResult, DecideError> {
        let WaitingRequest { ticket, mut assigned, turn, policy_slot: place, policy } = held;
        let context = DecisionContext { policy: place, ..*context };
        let ruling = self.active.load();
        if ruling.policies.get(place).is_none_or(|now| now.id != policy) {
            // Another build took over meanwhile: the old weights fit neither it nor its tuner.
            assigned = ruling.assign_weights(prompt, &context);
        }
        let stamp = assigned.stamp;
        let turn = AdmissionMode::Again(Some(ticket), turn);
        let entered = self.decide_with(&ruling, prompt, &context, assigned, turn);
        // As in `enter_as`: a request that is refused must not count to its arm.
        if entered.is_err() {
            ruling.withdraw(place, stamp, context.at);
        }
        entered
    }

    /// Takes a waiting request out of the queue for good.
    pub fn cancel_wait(&self, held: WaitingRequest, at: UnixMicros) {
        let WaitingRequest { ticket, assigned, policy_slot: place, policy, .. } = held;
        let mut state = self.state.lock();
        // Its place is free, so the next request at that replica may go.
        // Under the lock, so that no call can arrive for a request that is leaving.
        let before = state.gate.withdraw(ticket);
        state.call(at, before.replica());
        self.notify_called(state);
        // `notify_called` has released the lock of the facts, so the tuner's lock is never taken under it. The tuner
        // of another build never counted this request.
        let ruling = self.active.load();
        if ruling.policies.get(place).is_some_and(|now| now.id == policy) {
            ruling.withdraw(place, assigned.stamp, at);
        }
    }

    /// Makes `called` receive the number of each request that is called, under the lock that decisions are made
    /// under, so that no call arrives for a request that left; it must not call the router. Only the first listener is
    /// used.
    pub fn on_admission_call(&self, called: impl Fn(u64) + Send + Sync + 'static) {
        // A second listener is ignored: each call must have exactly one receiver.
        let _ = self.admission_listener.set(CallListener(Box::new(called)));
    }

    /// The requests that were called since the last call of this function, if there is no listener.
    #[must_use]
    pub fn take_called(&self) -> Vec<u64> {
        self.state.lock().gate.take_called()
    }

    /// Requests that wait for a replica.
    #[must_use]
    pub fn waiting_requests(&self, replica: ReplicaId) -> u32 {
        self.state.lock().gate.counts(replica).1
    }

    /// Messages of the gate since the last call of this function.
    #[must_use]
    pub fn take_admission_news(&self) -> Vec<(ReplicaId, String)> {
        std::mem::take(&mut *self.messages.lock())
    }

    /// Reports the requests that were called, then releases the lock.
    pub(super) fn notify_called(&self, mut state: MutexGuard<'_, RouterState>) {
        // The guard is taken by value: the listener runs under the lock, which is released on return. Without a
        // listener the numbers stay in the gate until `take_called`.
        if let Some(CallListener(listener)) = self.admission_listener.get() {
            state.gate.take_called().into_iter().for_each(listener);
        }
    }

    /// Calls the next request after one that waited could not be placed.
    pub(super) fn refuse_waiting(
        &self,
        mut state: MutexGuard<'_, RouterState>,
        at: UnixMicros,
        before: Option<WithdrawnTicket>,
        error: DecideError,
    ) -> DecideError {
        state.call_next(at, before);
        self.notify_called(state);
        error
    }
}

impl RouterState {
    /// Adds to the facts the work that waits ahead of the request, and marks replicas unavailable that it cannot go to.
    pub(super) fn read_gate(
        &self,
        rule: &AdmissionRule,
        turn: &AdmissionMode,
        before: Option<&WithdrawnTicket>,
        candidates: &mut Candidates,
    ) {
        self.gate.read(before, candidates);
        // A request that cannot wait must not choose a closed gate.
        if matches!(turn, AdmissionMode::Now) {
            for row in 0..candidates.len() {
                candidates.available[row] &= !self.gate.is_closed(rule, candidates.replica[row]);
            }
        }
        // After its last allowed move a request stays with the replica that called it, while that is available.
        // If that replica is gone, the request may go anywhere again.
        let settled = before.and_then(WithdrawnTicket::settled).filter(|replica| candidates.available[replica.index()]);
        if let Some(settled) = settled {
            for row in 0..candidates.len() {
                candidates.available[row] &= candidates.replica[row] == settled;
            }
        }
    }

    /// Calls the next request at a replica.
    pub(super) fn call(&mut self, at: UnixMicros, replica: ReplicaId) {
        // Usually no request waits, and the backlog costs more to compute than this check.
        if self.gate.is_waited_for(replica) {
            let rtt_ms = self.rtt.current_ms(at, replica).unwrap_or(0.0);
            let backlog_ms = self.backlog.wait_ms(at, replica, rtt_ms);
            self.gate.call(replica, backlog_ms);
        }
    }

    /// Calls the next request where one was taken out of the queue.
    pub(super) fn call_next(&mut self, at: UnixMicros, before: Option<WithdrawnTicket>) {
        if let Some(before) = before {
            self.call(at, before.replica());
        }
    }

    /// Passes an event to the gate.
    pub(super) fn see_gate(&mut self, event: &FleetEvent) -> Option<CountCorrection> {
        let resync = self.gate.apply(event);
        // A report may show that the engine has room.
        if let FleetEvent::Report { replica, at, .. } = event {
            self.call(*at, *replica);
        }
        resync
    }
}

/// A request as the gate of the chosen row sees it.
pub(super) fn wish(request: &RequestView, facts: &Candidates, row: usize) -> AdmissionRequest {
    AdmissionRequest {
        prompt_tokens: request.prompt_tokens,
        uncached_tokens: facts.uncached_tokens(request, row),
        work_ms: work_ms(facts, row),
        backlog_ms: facts.backlog_ms[row],
        gap_ms: gap_ms(facts),
    }
}

fn work_ms(facts: &Candidates, row: usize) -> f64 {
    facts.service_ms_per_token[row] * facts.likely_uncached_tokens[row]
}

/// Cost difference between the second-best and the best replica, ms, by predicted latency; 0 if there is no second.
fn gap_ms(facts: &Candidates) -> f64 {
    let (mut best, mut second) = (f64::INFINITY, f64::INFINITY);
    for row in (0..facts.len()).filter(|row| facts.available[*row]) {
        let work_ms = work_ms(facts, row);
        let harm_ms = STALL_PRICE * f64::from(facts.inflight[row]) * (work_ms + STALL_MS);
        let cost_ms = facts.rtt_ms[row].unwrap_or(0.0) + work_ms + facts.backlog_ms[row] + harm_ms;
        (best, second) = if cost_ms < best { (cost_ms, best) } else { (best, second.min(cost_ms)) };
    }
    if second.is_finite() { second - best } else { 0.0 }
}
