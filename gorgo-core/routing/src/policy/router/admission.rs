//! Requests that wait at the gate: a request enters, and is routed or held; a held one is called, and enters again.
//!
//! The gate itself is `feature::admission`; here it is joined with the facts, under the lock that decisions are made under.

use std::fmt;

use parking_lot::MutexGuard;

use super::router_state::State;
use super::{DecideError, DecisionContext, Routed, Router};
use crate::feature::admission::{Resync, Ticket, Wish, Withdrawn};
use crate::model::{
    AdmissionRule, ApiPath, At, Candidates, Event, PolicyBuildId, PolicyIndex, Prompt, ReplicaId, RequestView,
};
use crate::policy::Policy;
use crate::tune::Assigned;

/// Fixed GPU time by which a prefill stalls those who decode, ms; and the price of a ms of theirs. For the cost gap that
/// orders those who wait, whatever policy chooses. Source: design study, "Late binding": φ and μ.
const STALL_MS: f64 = 60.0;
const STALL_PRICE: f64 = 0.5;

/// What became of a request that entered.
#[derive(Debug)]
pub enum Entered {
    /// It was routed.
    Routed(Box<Routed>),
    /// It waits.
    Held(Held),
}

/// A request that waits at the gate. Given to [`Router::enter_again`] or [`Router::leave`].
#[derive(Debug)]
#[must_use = "a place in a queue that is dropped blocks those behind it"]
pub struct Held {
    pub(super) ticket: Ticket,
    pub(super) assigned: Assigned,
    /// The turn of its first decision: deciding anew takes no further turn.
    pub(super) turn: u64,
    /// Its policy's place in the list.
    pub(super) place: PolicyIndex,
    /// The policy itself: another may stand at its place by the time it is called.
    pub(super) policy: PolicyBuildId,
}

impl Held {
    /// What it is called by; kept when it is held again.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.ticket.number()
    }

    /// For whom it waits.
    #[must_use]
    pub const fn replica(&self) -> ReplicaId {
        self.ticket.replica()
    }

    /// When it is to enter again, called or not.
    #[must_use]
    pub const fn look(&self) -> At {
        self.ticket.look()
    }

    /// How often it was decided anew for another replica.
    #[must_use]
    pub const fn moves(&self) -> u16 {
        self.ticket.moves()
    }
}

/// Whether and since when a request waits.
#[derive(Debug)]
pub(super) enum Turn {
    /// It will not wait.
    Now,
    /// It comes for the first time.
    First,
    /// It waited, and takes this turn of the policy.
    Again(Option<Ticket>, u64),
}

impl Turn {
    /// Takes it out of the queue it stands in. With it comes its turn, where it has one already.
    pub(super) fn begin(&mut self, state: &mut State) -> (Option<Withdrawn>, Option<u64>) {
        match self {
            Self::Now | Self::First => (None, None),
            Self::Again(ticket, turn) => (ticket.take().map(|ticket| state.gate.withdraw(ticket)), Some(*turn)),
        }
    }
}

/// The gate that a request of this kind waits at: what generates nothing passes.
pub(super) fn gated(policy: &Policy, path: ApiPath) -> Option<AdmissionRule> {
    policy.admission.filter(|_| !matches!(path, ApiPath::Embeddings | ApiPath::Other))
}

/// A count that was set right, for people.
pub(super) fn told(resync: &Resync) -> String {
    let Resync { written_off, engine_has, .. } = resync;
    format!(
        "the gate counted {written_off} requests that the engine has not had for 10 s (it says {engine_has}); they were \
         written off"
    )
}

/// Who is told of those whom the gate calls.
pub(super) struct Listener(Box<dyn Fn(u64) + Send + Sync>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

impl Router {
    /// Selects and reserves in one step, as [`Router::decide`], or says that the request is to wait.
    ///
    /// # Errors
    /// Who could not be chosen, and why; also that as many wait for the chosen one as may.
    pub fn enter(&self, prompt: &Prompt, context: &DecisionContext<'_>) -> Result<Entered, DecideError> {
        self.enter_as(Turn::First, prompt, context)
    }

    /// A request that waited was called, or its time to look again has come: it is decided anew, by the policy at the
    /// index that it was held by; the context's policy is not asked.
    ///
    /// # Errors
    /// As [`Router::enter`]; it waits no longer then.
    pub fn enter_again(
        &self,
        held: Held,
        prompt: &Prompt,
        context: &DecisionContext<'_>,
    ) -> Result<Entered, DecideError> {
        let Held { ticket, mut assigned, turn, place, policy } = held;
        let context = DecisionContext { policy: place, ..*context };
        let ruling = self.ruling.load();
        if ruling.policies.get(place).is_none_or(|now| now.id != policy) {
            // Another took over while it waited: its weights say nothing to this one, nor to the tuner that was.
            assigned = ruling.assigned(prompt, &context);
        }
        let stamp = assigned.stamp;
        let turn = Turn::Again(Some(ticket), turn);
        let entered = self.decide_with(&ruling, prompt, &context, assigned, turn);
        if entered.is_err() {
            ruling.withdrawn(place, stamp, context.at);
        }
        entered
    }

    /// A request that waited waits no longer, and goes nowhere.
    pub fn leave(&self, held: Held, at: At) {
        let Held { ticket, assigned, place, policy, .. } = held;
        let mut state = self.state.lock();
        let before = state.gate.withdraw(ticket);
        state.call(at, before.replica());
        self.tell_called(state);
        let ruling = self.ruling.load();
        if ruling.policies.get(place).is_some_and(|now| now.id == policy) {
            ruling.withdrawn(place, assigned.stamp, at);
        }
    }

    /// From now on `called` is told the number of each request that is called, under the lock that decisions are made
    /// under, so that no call comes for one that left; it must not come back to the router. Only the first caller is
    /// heard.
    pub fn on_call(&self, called: impl Fn(u64) + Send + Sync + 'static) {
        let _ = self.listener.set(Listener(Box::new(called)));
    }

    /// Those who were called since this was asked last, where nobody listens.
    #[must_use]
    pub fn take_called(&self) -> Vec<u64> {
        self.state.lock().gate.take_called()
    }

    /// Requests that wait for a replica.
    #[must_use]
    pub fn held(&self, replica: ReplicaId) -> u32 {
        self.state.lock().gate.counts(replica).1
    }

    /// What the gate has to tell people since this was asked last.
    #[must_use]
    pub fn take_admission_news(&self) -> Vec<(ReplicaId, String)> {
        std::mem::take(&mut *self.news.lock())
    }

    /// Tells those who were called, then lets go of the lock.
    pub(super) fn tell_called(&self, mut state: MutexGuard<'_, State>) {
        if let Some(Listener(listener)) = self.listener.get() {
            state.gate.take_called().into_iter().for_each(listener);
        }
    }

    /// A request that waited goes nowhere: its place is the next one's.
    pub(super) fn unplaced(
        &self,
        mut state: MutexGuard<'_, State>,
        at: At,
        before: Option<Withdrawn>,
        error: DecideError,
    ) -> DecideError {
        state.call_next(at, before);
        self.tell_called(state);
        error
    }
}

impl State {
    /// Adds to the facts what waits ahead of the request, and takes out replicas that it cannot go to.
    pub(super) fn read_gate(
        &self,
        rule: &AdmissionRule,
        turn: &Turn,
        before: Option<&Withdrawn>,
        candidates: &mut Candidates,
    ) {
        self.gate.read(before, candidates);
        if matches!(turn, Turn::Now) {
            for row in 0..candidates.len() {
                candidates.available[row] &= !self.gate.is_closed(rule, candidates.replica[row]);
            }
        }
        let settled = before.and_then(Withdrawn::settled).filter(|replica| candidates.available[replica.index()]);
        if let Some(settled) = settled {
            for row in 0..candidates.len() {
                candidates.available[row] &= candidates.replica[row] == settled;
            }
        }
    }

    /// Calls who is next at a replica.
    pub(super) fn call(&mut self, at: At, replica: ReplicaId) {
        if self.gate.is_waited_for(replica) {
            let rtt_ms = self.rtt.current_ms(at, replica).unwrap_or(0.0);
            let backlog_ms = self.backlog.wait_ms(at, replica, rtt_ms);
            self.gate.call(replica, backlog_ms);
        }
    }

    /// Calls who is next where a request was taken out of the queue.
    pub(super) fn call_next(&mut self, at: At, before: Option<Withdrawn>) {
        if let Some(before) = before {
            self.call(at, before.replica());
        }
    }

    /// Shows an event to the gate.
    pub(super) fn see_gate(&mut self, event: &Event) -> Option<Resync> {
        let resync = self.gate.apply(event);
        if let Event::Report { replica, at, .. } = event {
            self.call(*at, *replica);
        }
        resync
    }
}

/// A request as the gate of the chosen row sees it.
pub(super) fn wish(request: &RequestView, facts: &Candidates, row: usize) -> Wish {
    Wish {
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

/// By how much the second-best replica is dearer than the best, ms, by predicted latency; 0 where there is no second.
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
