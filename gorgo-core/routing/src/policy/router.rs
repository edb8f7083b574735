//! The router itself, without sockets: facts, policies, and the one step that selects and reserves.
//!
//! ```text
//! read:    body → head, canonical prompt → chain            no lock
//! decide:  index walk → ┃ fill facts, score, constrain, pick, reserve ┃ → insert into the index, write the row
//!                       ┗━━━━━━━━━━━━━━ one lock ━━━━━━━━━━━━━━━━━━━━━┛
//! finish:  ┃ release, learn ┃ → confirm or retract in the index
//! ```
//!
//! Selecting and reserving under the same lock is what lets the requests of a burst see each other. `edge` drives this
//! on the wall clock, `sim` on a virtual one; nothing here reads a clock, and the same calls give the same decisions.

mod active_policies;
mod admission;
mod request;
mod residency;
mod restart;
mod round_trips;
mod router_state;
mod tuning;
mod workspace;

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use self::active_policies::ActivePolicies;
pub use self::active_policies::StagedReload;
use self::admission::{AdmissionMode, gated, wish};
pub use self::admission::{EnterResult, WaitingRequest};
pub use self::restart::RefusedPart;
use self::router_state::{Dispatch, EndedRequest, ReservedWork, RouterState};
use self::workspace::WorkspacePool;
use super::PolicySet;
use super::decide::{PickedRow, evaluate, to_decision};
use super::record::candidate_rows;
use crate::config::{IndexConfig, ProbeConfig, ScrapeConfig};
use crate::feature::admission::{AdmissionPermit, AdmissionResult, WorkAhead};
use crate::feature::fleet::{ModelAvailability, ReplicaState};
use crate::feature::prefix::{self, PrefixIndex};
use crate::feature::residency::CacheResidency;
use crate::feature::tokens::TokenRates;
use crate::model::{
    Decision, DecisionId, DecisionRecord, FleetEvent, ParsedRequest, PolicyBuildId, PolicyIndex, PolicyWeights,
    RateRecord, RefusalReason, Replica, ReplicaId, RequestOutcome, RoundTripEstimator, UnixMicros,
};
use crate::tune::AssignedWeights;

/// Parts that a router is made of.
#[derive(Debug)]
pub struct RouterSetup {
    /// The fleet; ids are positions.
    pub fleet: Vec<Replica>,
    /// Per replica the configured models; empty: learned from the models that it reports.
    pub models: Vec<Vec<Arc<str>>>,
    /// Secret of the database: stored hashes are keyed with it.
    pub secret: u64,
    /// Settings of the prefix index.
    pub index: IndexConfig,
    /// Settings of the round-trip facts.
    pub probe: ProbeConfig,
    /// Settings of the engine reports.
    pub scrape: ScrapeConfig,
}

/// Circumstances of one decision.
#[derive(Debug, Clone, Copy)]
pub struct DecisionContext<'a> {
    /// Position of the policy that decides.
    pub policy: PolicyIndex,
    /// Number of the decision.
    pub id: DecisionId,
    /// The only randomness.
    pub seed: u64,
    /// Time of the decision.
    pub at: UnixMicros,
    /// Replicas that this request already tried.
    pub exclude: &'a [ReplicaId],
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The client's fault: 400 with this text, which never quotes the prompt.
    #[error("{0}")]
    Malformed(String),
}

/// Reason why no replica was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecideError {
    /// No replica serves the model: 404.
    UnknownModel,
    /// Replicas serve the model, but none is available: 503.
    NoReplica,
    /// The queue for the chosen replica is full: 429.
    GateFull {
        /// Seconds until the requests that wait now will have gone, at the rate of recent departures.
        retry_secs: u64,
    },
}

impl From<DecideError> for RefusalReason {
    fn from(error: DecideError) -> Self {
        match error {
            DecideError::UnknownModel => Self::UnknownModel,
            DecideError::NoReplica => Self::NoReplica,
            DecideError::GateFull { .. } => Self::GateFull,
        }
    }
}

/// Work reserved at a replica. Released exactly once: by [`Router::finish`], which consumes it.
#[derive(Debug)]
#[must_use = "a reservation that is dropped without `finish` would count as load forever"]
pub struct Reservation {
    replica: ReplicaId,
    reserved: ReservedWork,
    prefix: Option<prefix::PrefixTicket>,
    /// Permit, if the policy has a gate.
    pass: Option<AdmissionPermit>,
}

impl Reservation {
    /// Replica at which the work is reserved.
    #[must_use]
    pub const fn replica(&self) -> ReplicaId {
        self.replica
    }
}

/// A routed request.
#[derive(Debug)]
pub struct RoutedRequest {
    /// The decision, as computed.
    pub decision: Decision,
    /// The row for the store, complete except for `decide_us`, which the caller measures.
    pub record: Box<DecisionRecord>,
    /// The load that was reserved in the same step.
    pub reservation: Reservation,
    /// TTFT predicted for the chosen replica, ms, if its rates are known.
    pub predicted_ttft_ms: Option<f64>,
    /// Tokens believed cached at the chosen replica.
    pub predicted_cached_tokens: u32,
}

/// Facts + policies. Shared by all connections.
#[derive(Debug)]
pub struct Router {
    fleet: Vec<Replica>,
    secret: u64,
    block_bytes: usize,
    /// Policies, weights and tuners in force; a decision uses one set of them from its beginning to its end.
    active: ArcSwap<ActivePolicies>,
    index: PrefixIndex,
    /// Cache contents that engines report; no decision takes this lock.
    residency: Mutex<CacheResidency>,
    tokens: TokenRates,
    state: Mutex<RouterState>,
    workspaces: WorkspacePool,
    /// Receives the numbers of requests that the gate calls; without one they are kept for [`Router::take_called`].
    admission_listener: OnceLock<admission::CallListener>,
    /// Messages of the gate for operators.
    messages: Mutex<Vec<(ReplicaId, String)>>,
    connections: OnceLock<Arc<dyn RoundTripEstimator>>,
}

impl Router {
    /// A router over this fleet with these policies, which were built for the same fleet. Nothing is known yet.
    #[must_use]
    pub fn new(setup: RouterSetup, policies: PolicySet) -> Self {
        let RouterSetup { fleet, models, secret, index, probe, scrape } = setup;
        let router = Self {
            secret,
            block_bytes: usize::try_from(index.block_bytes).unwrap_or(usize::MAX).max(16),
            index: PrefixIndex::new(fleet.len(), index.max_bytes),
            residency: Mutex::new(CacheResidency::new(fleet.len(), secret)),
            tokens: TokenRates::new(),
            connections: OnceLock::new(),
            state: Mutex::new(RouterState::new(&fleet, &models, &policies, &probe, &scrape)),
            workspaces: WorkspacePool::new(&fleet, policies.windows.len()),
            admission_listener: OnceLock::new(),
            messages: Mutex::default(),
            active: ArcSwap::from_pointee(ActivePolicies::new(policies, &fleet)),
            fleet,
        };
        // A configured capacity is known before any report, so the index is bounded from the start.
        for replica in &router.fleet {
            if let Some(tokens) = replica.kv_capacity_tokens {
                #[expect(clippy::cast_precision_loss, reason = "KV caches stay far below 2^53 tokens")]
                router.bound_index(replica.id, tokens as f64, None);
            }
        }
        router
    }

    /// The policies that can decide now.
    #[must_use]
    pub fn policies(&self) -> Arc<PolicySet> {
        Arc::clone(&self.active.load().policies)
    }

    /// The fleet; ids are positions.
    #[must_use]
    pub fn fleet(&self) -> &[Replica] {
        &self.fleet
    }

    /// Selects and reserves in one step, without waiting: replicas whose gate is closed are passed over.
    /// [`Router::admit`] is the function that may answer that the request has to wait.
    ///
    /// # Errors
    /// The reason why no replica could be chosen; nothing is reserved then. A policy that does not exist has no
    /// replica.
    pub fn decide(&self, prompt: &ParsedRequest, context: &DecisionContext<'_>) -> Result<RoutedRequest, DecideError> {
        match self.enter_as(AdmissionMode::Now, prompt, context)? {
            EnterResult::Routed(routed) => Ok(*routed),
            // A cold prompt: there is room, but a long prefill backlog. A request that cannot wait is not placed.
            EnterResult::Waiting(held) => {
                self.cancel_wait(held, context.at);
                Err(DecideError::NoReplica)
            }
        }
    }

    /// Decides for a request that comes for the first time, or again after an attempt that failed.
    fn enter_as(
        &self,
        turn: AdmissionMode,
        prompt: &ParsedRequest,
        context: &DecisionContext<'_>,
    ) -> Result<EnterResult, DecideError> {
        let DecisionContext { policy, at, .. } = *context;
        // One set of policies for the whole decision, even if a reload replaces it meanwhile.
        let ruling = self.active.load();
        if ruling.policies.get(policy).is_none() {
            return Err(DecideError::NoReplica);
        }
        let assigned = ruling.assign_weights(prompt, context);
        let stamp = assigned.stamp;
        let entered = self.decide_with(&ruling, prompt, context, assigned, turn);
        // The tuner counted the request to an arm; without a decision it has to be taken out again.
        if entered.is_err() {
            ruling.withdraw(policy, stamp, at);
        }
        entered
    }

    fn decide_with(
        &self,
        ruling: &ActivePolicies,
        prompt: &ParsedRequest,
        context: &DecisionContext<'_>,
        assigned: AssignedWeights,
        mut turn: AdmissionMode,
    ) -> Result<EnterResult, DecideError> {
        let DecisionContext { policy: place, id, seed, at, exclude } = *context;
        let policy = ruling.policies.get(place).ok_or(DecideError::NoReplica)?;
        let weights = &*assigned.weights;
        let rule = gated(policy, prompt.path);
        let mut work = self.workspaces.take();
        // The index has its own locks and the walk may be long, so it is done before the lock of the facts is taken.
        let shared = self.index.lookup(&prompt.chain, &mut work.blocks);
        let mut request = self.request_view(prompt);
        let reach = self.block_token_scale(prompt, request.prompt_tokens);
        work.begin(reach);

        // The data plane has its own locks: asked here, never under the router's.
        self.needed_round_trips(ruling, policy, &request, at, &mut work.trips);

        let mut state = self.state.lock();
        // Whatever the result, the slot that was reserved for the request goes to the next one if the request does not
        // use it.
        let (before, first_turn) = turn.begin(&mut state);
        match state.fill(prompt.model.as_deref(), &request, at, &mut work.candidates) {
            ModelAvailability::Available => {}
            ModelAvailability::NoneAvailable => {
                return Err(self.refuse_waiting(state, at, before, DecideError::NoReplica));
            }
            ModelAvailability::UnknownModel => {
                return Err(self.refuse_waiting(state, at, before, DecideError::UnknownModel));
            }
        }
        work.candidates.network_trips.copy_from_slice(&work.trips);
        // After `fill`, which sets the availability of every row anew.
        for tried in exclude {
            work.candidates.available[tried.index()] = false;
        }
        if let Some(rule) = &rule {
            state.read_gate(rule, &turn, before.as_ref(), &mut work.candidates);
        }
        // A repeated decision keeps its turn, so that waiting does not shift the round-robin order.
        request.decision_number = first_turn.unwrap_or_else(|| state.decision_count(place));
        let Some(choice) = evaluate(policy, weights, &request, &work.candidates, seed, &mut work.scratch) else {
            return Err(self.refuse_waiting(state, at, before, DecideError::NoReplica));
        };
        // The turn is taken only now, because a request that was not placed must not use one up.
        if first_turn.is_none() {
            state.count_decision(place);
        }
        // The facts include requests that wait at the gate; the engine does not see these, so they are taken off later.
        let mut ahead = WorkAhead::default();
        let pass = if let Some(rule) = &rule {
            ahead = state.gate.ahead(work.candidates.replica[choice.row], before.as_ref());
            let wish = wish(&request, &work.candidates, choice.row);
            // Its old place counts only if the old replica can still be chosen.
            let again = before.map(|before| (before, work.candidates.available[before.replica().index()]));
            match state.gate.admit(rule, at, work.candidates.replica[choice.row], &wish, again) {
                AdmissionResult::Pass(pass) => {
                    state.call_next(at, before);
                    Some(pass)
                }
                AdmissionResult::Full => {
                    let retry_secs = state.gate.patience_secs(work.candidates.replica[choice.row], at);
                    return Err(self.refuse_waiting(state, at, before, DecideError::GateFull { retry_secs }));
                }
                AdmissionResult::Wait(ticket) => {
                    state.call_next(at, before);
                    self.notify_called(state);
                    self.workspaces.put(work);
                    let turn = request.decision_number;
                    return Ok(EnterResult::Waiting(WaitingRequest {
                        ticket,
                        assigned,
                        turn,
                        policy_slot: place,
                        policy: policy.id,
                    }));
                }
            }
        } else {
            None
        };
        let dispatch = Dispatch { row: choice.row, at, streams: prompt.stream, ahead };
        // Reserved under the same lock that the choice was made under: the next decision already sees this load.
        let reserved = state.reserve(&dispatch, &request, &work.candidates);
        // Shadows take their turns here, under the lock; they are evaluated after it is released.
        work.shadow_turns.clear();
        for shadow in &policy.shadows {
            work.shadow_turns.push(state.decision_count(*shadow));
            state.count_decision(*shadow);
        }
        self.notify_called(state);

        // From here on the snapshot belongs to this request alone; no other decision waits for it.
        let replica = self.fleet[choice.row].id;
        let prefix = self.index.insert(&prompt.chain, replica, id, at);
        let decision = to_decision(policy, weights, &work.candidates, seed, choice, &work.scratch);
        // Written after the lock is released: the row needs allocations that other decisions should not wait for.
        let mut record = Box::new(DecisionRecord {
            decision: id,
            received: at,
            path: prompt.path,
            model: prompt.model.clone(),
            session_hash: prompt.session_hash,
            policy: policy.id,
            generation: weights.generation,
            arm: assigned.stamp.map(|stamp| stamp.arm),
            block: assigned.stamp.and_then(|stamp| stamp.block),
            counted: assigned.stamp.is_some_and(|stamp| stamp.counted),
            seed,
            replica: Some(replica),
            refusal: None,
            propensity: choice.propensity,
            ties: choice.ties,
            prompt_tokens: request.prompt_tokens,
            parent: shared.parent,
            shared_tokens: reach.tokens(shared.blocks),
            body_bytes: prompt.body_bytes,
            decide_us: 0,
            candidates: candidate_rows(policy, &work.candidates, &decision, exclude),
            shadows: Vec::new(),
        });
        record.shadows = ruling.shadows(policy, &request, seed, &mut work);
        let predicted_cached_tokens = work.candidates.cached_tokens[choice.row];
        self.workspaces.put(work);
        Ok(EnterResult::Routed(Box::new(RoutedRequest {
            decision,
            record,
            predicted_ttft_ms: reserved.predicted_ttft_ms,
            reservation: Reservation { replica, reserved, prefix, pass },
            predicted_cached_tokens,
        })))
    }

    /// The request produced its first content: its prefill is done.
    pub fn first_token(&self, reservation: &mut Reservation, at: UnixMicros) {
        let mut state = self.state.lock();
        state.first_token(&mut reservation.reserved, at);
        // Its replica has less to prefill: a cold prompt may be next.
        state.call(at, reservation.replica);
        self.notify_called(state);
    }

    /// The request ended, well or not: releases the load, confirms or trims the index, and teaches the rates.
    pub fn finish(&self, reservation: Reservation, prompt: &ParsedRequest, ending: &RequestOutcome, at: UnixMicros) {
        let Reservation { replica, reserved, prefix, pass } = reservation;
        // A prompt that was computed is in the engine's cache even if its answer was aborted.
        let read_by_engine = reserved.load.prefilled() || ending.completed || ending.ttft_ms.is_some();
        // Read now, because `confirm` and `retract` consume the ticket.
        let age = |is: fn(&prefix::PrefixTicket) -> bool| prefix.as_ref().is_some_and(is);
        let ended = EndedRequest {
            ending,
            at,
            long_unused: age(prefix::PrefixTicket::long_unused),
            near_eviction: age(prefix::PrefixTicket::near_eviction),
        };
        let mut state = self.state.lock();
        let step = state.finish(replica, reserved, &ended);
        // The next request at the gate is called under the lock; the index below has its own locks.
        if let Some(pass) = pass {
            state.gate.release(pass);
            state.call(at, replica);
        }
        self.notify_called(state);
        if let Some(ticket) = prefix {
            if ending.completed {
                let blocks = self.confirmed_blocks(prompt, ending, ticket.held_blocks());
                self.index.confirm(&prompt.chain, ticket, blocks);
            // An aborted prompt that the engine never read is in no cache.
            } else if !read_by_engine {
                self.index.retract(&prompt.chain, ticket);
            }
        }
        if let Some(step) = step {
            self.index.scale_capacity(replica, step);
        }
        // Token ids are exact, and their canonical bytes are not text, so they teach nothing about tokens per byte.
        if let (true, None, Some(counted)) = (ending.completed, prompt.exact_tokens, ending.usage.prompt_tokens) {
            let model = prompt.model.as_deref().unwrap_or_default();
            self.tokens.learn(model, prompt.prompt_bytes, prompt.media_bytes, counted);
        }
    }

    /// Leading blocks that the engine reports as cached; `held`, the assumed number, if it reports none. Also with
    /// pictures, whose tokens cannot be derived from the bytes.
    fn confirmed_blocks(&self, prompt: &ParsedRequest, ending: &RequestOutcome, held: u32) -> u32 {
        let (Some(counted), Some(cached)) = (ending.usage.prompt_tokens, ending.usage.cached_tokens) else {
            return held;
        };
        // Also avoids a division by zero.
        if counted == 0 || prompt.media_bytes > 0 {
            return held;
        }
        // Tokens to bytes by the engine's own count, in 128 bits so that the product cannot overflow.
        let bytes = u128::from(prompt.prompt_bytes) * u128::from(cached) / u128::from(counted);
        u32::try_from(bytes / self.block_bytes as u128).unwrap_or(u32::MAX)
    }

    /// Takes in an observation of a replica. Returns the replica whose engine turns out to have restarted, which
    /// empties its part of the index; a replica that is merely down keeps it, since most come back unchanged.
    pub fn apply(&self, event: &FleetEvent) -> Option<ReplicaId> {
        let mut state = self.state.lock();
        let restarted = state.apply(event);
        let capacity = match event {
            FleetEvent::Report { replica, .. } | FleetEvent::Probe { replica, .. } => {
                state.capacity(*replica).map(|(tokens, model)| (*replica, tokens, model))
            }
            _ => None,
        };
        let resync = state.see_gate(event);
        self.notify_called(state);
        // `notify_called` has released the lock of the facts; messages have a lock of their own.
        if let Some(resync) = resync {
            self.messages.lock().push((resync.replica, admission::resync_message(&resync)));
        }
        // The index has its own locks; it is updated after the lock of the facts is released.
        if let Some(replica) = restarted {
            self.index.purge(replica);
        }
        if let Some((replica, tokens, model)) = capacity {
            self.bound_index(replica, tokens, model.as_deref());
        }
        restarted
    }

    /// Bounds a replica's part of the index by its KV capacity.
    fn bound_index(&self, replica: ReplicaId, capacity_tokens: f64, model: Option<&str>) {
        #[expect(clippy::cast_precision_loss, reason = "blocks are small")]
        let block_tokens = self.tokens.tokens_per_byte(model.unwrap_or_default()) * self.block_bytes as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates; never negative")]
        // Guards against a rate near 0, which would make the number of blocks unbounded.
        let blocks = (capacity_tokens / block_tokens.max(1e-3)) as u64;
        self.index.set_capacity(replica, blocks.max(1));
    }

    /// Installs new weights for a policy; the next decision uses them. Returns `false`, without a change, unless they
    /// are one finite number per term of a policy that exists.
    pub fn set_weights(&self, policy: PolicyIndex, weights: Arc<PolicyWeights>) -> bool {
        let ruling = self.active.load();
        // Weights of another number of terms, or not finite ones, would make every cost meaningless.
        let fits = ruling.policies.get(policy).is_some_and(|policy| policy.terms.len() == weights.values.len())
            && weights.values.iter().all(|weight| weight.is_finite());
        if fits {
            ruling.weights[policy.index()].store(weights);
        }
        fits
    }

    /// The active build of a policy. Rows of requests that were not routed name it.
    #[must_use]
    pub fn active_build(&self, policy: PolicyIndex) -> PolicyBuildId {
        self.active.load().policies.get(policy).map_or(PolicyBuildId::UNKNOWN, |policy| policy.id)
    }

    /// The weights that a policy decides with now; `None` for an unknown policy.
    #[must_use]
    pub fn weights(&self, policy: PolicyIndex) -> Option<Arc<PolicyWeights>> {
        self.active.load().weights.get(policy.index()).map(|weights| weights.load_full())
    }

    /// Requests in flight, queued prompt tokens and queued uncached tokens of a replica, for the gauges.
    #[must_use]
    pub fn load_totals(&self, replica: ReplicaId) -> (u32, u64, u64) {
        self.state.lock().load.totals(replica)
    }

    /// State of a replica: whether it can be used.
    #[must_use]
    pub fn replica_state(&self, replica: ReplicaId) -> ReplicaState {
        self.state.lock().fleet.state(replica)
    }

    /// Takes a replica out for new requests, or lets it back; requests that run there continue, and those that wait for
    /// it at the gate are decided again. Returns true if this is a change. A replica that is not in the fleet never
    /// changes.
    pub fn set_draining(&self, replica: ReplicaId, draining: bool) -> bool {
        if replica.index() >= self.fleet.len() {
            return false;
        }
        let mut state = self.state.lock();
        let news = state.fleet.set_draining(replica, draining);
        // To the gate a draining replica is as good as down: its queue is sent elsewhere.
        if news && draining {
            state.see_gate(&FleetEvent::Down { replica });
        }
        self.notify_called(state);
        news
    }

    /// Returns true if an operator took the replica out.
    #[must_use]
    pub fn is_draining(&self, replica: ReplicaId) -> bool {
        self.state.lock().fleet.is_draining(replica)
    }

    /// The models of a replica; empty: not known yet.
    #[must_use]
    pub fn models(&self, replica: ReplicaId) -> Vec<Arc<str>> {
        self.state.lock().fleet.models(replica).to_vec()
    }

    /// The learned rates, for the store.
    #[must_use]
    pub fn rates(&self, at: UnixMicros) -> Vec<RateRecord> {
        self.state.lock().rates.snapshot(at)
    }
}

#[cfg(test)]
mod tests;
