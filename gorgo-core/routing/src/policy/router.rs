//! The router itself, without wires: facts, policies, and the one step that selects and reserves.
//!
//! ```text
//! read:    body → head, canonical prompt → chain            no lock
//! decide:  index walk → ┃ fill facts, score, constrain, pick, reserve ┃ → insert into the index, write the row
//!                       ┗━━━━━━━━━━━━━━ one lock ━━━━━━━━━━━━━━━━━━━━━┛
//! finish:  ┃ release, learn ┃ → confirm or retract in the index
//! ```
//!
//! Selecting and reserving under the same lock is what makes a burst see itself. `edge` drives this on the wall clock,
//! `sim` on a virtual one; nothing here reads a clock, and the same calls give the same decisions.

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

use self::active_policies::Ruling;
pub use self::active_policies::Succession;
pub use self::admission::{Entered, Held};
use self::admission::{Turn, gated, wish};
pub use self::restart::Refused;
use self::router_state::{Dispatch, Ended, Reserved, State};
use self::workspace::Workspaces;
use super::Policies;
use super::decide::{Choice, evaluate, written};
use super::record::candidate_rows;
use crate::config::{Index, Probe, Scrape};
use crate::feature::admission::{Admission, Ahead, Pass};
use crate::feature::fleet::{ReplicaState, Serves};
use crate::feature::prefix::{self, PrefixIndex};
use crate::feature::residency::Residency;
use crate::feature::tokens::TokenRates;
use crate::model::{
    At, Connections, Decision, DecisionId, DecisionRecord, Ending, Event, PolicyBuildId, PolicyIndex, Prompt,
    RateRecord, Refusal, Replica, ReplicaId, Weights,
};
use crate::tune::Assigned;

/// What a router is made of.
#[derive(Debug)]
pub struct RouterSetup {
    /// The fleet; ids are positions.
    pub fleet: Vec<Replica>,
    /// Per replica the models configured for it; none: learned from what it says.
    pub models: Vec<Vec<Arc<str>>>,
    /// Secret of the database: hashes that are stored are keyed with it.
    pub secret: u64,
    /// Settings of the prefix index.
    pub index: Index,
    /// Settings of the round-trip facts.
    pub probe: Probe,
    /// Settings of the engine reports.
    pub scrape: Scrape,
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
    pub at: At,
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

/// Why nobody was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecideError {
    /// No replica serves the model: 404.
    UnknownModel,
    /// Replicas serve it, none is available: 503.
    NoReplica,
    /// As many wait for the chosen one as may: 429.
    GateFull {
        /// When those who wait now will have gone, s, by how fast they went lately.
        retry_secs: u64,
    },
}

impl From<DecideError> for Refusal {
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
#[must_use = "a reservation that is dropped without `finish` would count as load for ever"]
pub struct Reservation {
    replica: ReplicaId,
    reserved: Reserved,
    prefix: Option<prefix::Ticket>,
    /// Where the policy has a gate.
    pass: Option<Pass>,
}

impl Reservation {
    /// Where.
    #[must_use]
    pub const fn replica(&self) -> ReplicaId {
        self.replica
    }
}

/// A routed request.
#[derive(Debug)]
pub struct Routed {
    /// The decision, as computed.
    pub decision: Decision,
    /// The row for the store, complete but for `decide_us`, which the caller measures.
    pub record: Box<DecisionRecord>,
    /// The load that was reserved in the same step.
    pub reservation: Reservation,
    /// TTFT predicted for the chosen replica, ms, where its rates are known.
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
    /// What decides; a decision is made with one from its beginning to its end.
    ruling: ArcSwap<Ruling>,
    index: PrefixIndex,
    /// What engines say they hold; no decision takes this lock.
    residency: Mutex<Residency>,
    tokens: TokenRates,
    state: Mutex<State>,
    workspaces: Workspaces,
    /// Who is told of those whom the gate calls; where nobody is, they are kept for [`Router::take_called`].
    listener: OnceLock<admission::Listener>,
    /// What the gate has to tell people.
    news: Mutex<Vec<(ReplicaId, String)>>,
    connections: OnceLock<Arc<dyn Connections>>,
}

impl Router {
    /// A router over this fleet with these policies, which were built for the same fleet. Nothing is known yet.
    #[must_use]
    pub fn new(setup: RouterSetup, policies: Policies) -> Self {
        let RouterSetup { fleet, models, secret, index, probe, scrape } = setup;
        let router = Self {
            secret,
            block_bytes: usize::try_from(index.block_bytes).unwrap_or(usize::MAX).max(16),
            index: PrefixIndex::new(fleet.len(), index.max_bytes),
            residency: Mutex::new(Residency::new(fleet.len(), secret)),
            tokens: TokenRates::new(),
            connections: OnceLock::new(),
            state: Mutex::new(State::new(&fleet, &models, &policies, &probe, &scrape)),
            workspaces: Workspaces::new(&fleet, policies.windows.len()),
            listener: OnceLock::new(),
            news: Mutex::default(),
            ruling: ArcSwap::from_pointee(Ruling::new(policies, &fleet)),
            fleet,
        };
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
    pub fn policies(&self) -> Arc<Policies> {
        Arc::clone(&self.ruling.load().policies)
    }

    /// The fleet; ids are positions.
    #[must_use]
    pub fn fleet(&self) -> &[Replica] {
        &self.fleet
    }

    /// Selects and reserves in one step, and waits for nobody: replicas whose gate is closed are passed over. [`Router::enter`] is
    /// the one that may say that it is to wait.
    ///
    /// # Errors
    /// Who could not be chosen, and why; nothing is reserved then. A policy that does not exist has no replica.
    pub fn decide(&self, prompt: &Prompt, context: &DecisionContext<'_>) -> Result<Routed, DecideError> {
        match self.enter_as(Turn::Now, prompt, context)? {
            Entered::Routed(routed) => Ok(*routed),
            // A cold prompt, there is room but much to prefill: who will not wait goes nowhere.
            Entered::Held(held) => {
                self.leave(held, context.at);
                Err(DecideError::NoReplica)
            }
        }
    }

    /// A request that comes for the first time, or again after an attempt that failed.
    fn enter_as(&self, turn: Turn, prompt: &Prompt, context: &DecisionContext<'_>) -> Result<Entered, DecideError> {
        let DecisionContext { policy, at, .. } = *context;
        let ruling = self.ruling.load();
        if ruling.policies.get(policy).is_none() {
            return Err(DecideError::NoReplica);
        }
        let assigned = ruling.assigned(prompt, context);
        let stamp = assigned.stamp;
        let entered = self.decide_with(&ruling, prompt, context, assigned, turn);
        if entered.is_err() {
            ruling.withdrawn(policy, stamp, at);
        }
        entered
    }

    fn decide_with(
        &self,
        ruling: &Ruling,
        prompt: &Prompt,
        context: &DecisionContext<'_>,
        assigned: Assigned,
        mut turn: Turn,
    ) -> Result<Entered, DecideError> {
        let DecisionContext { policy: place, id, seed, at, exclude } = *context;
        let policy = ruling.policies.get(place).ok_or(DecideError::NoReplica)?;
        let weights = &*assigned.weights;
        let rule = gated(policy, prompt.path);
        let mut work = self.workspaces.take();
        let shared = self.index.lookup(&prompt.chain, &mut work.blocks);
        let mut request = self.view(prompt);
        let reach = self.reach(prompt, request.prompt_tokens);
        work.begin(reach);

        self.trips(ruling, policy, &request, at, &mut work.trips);

        let mut state = self.state.lock();
        // Whatever comes of it, the place that was set aside for it is the next one's if it does not take it.
        let (before, first_turn) = turn.begin(&mut state);
        match state.fill(prompt.model.as_deref(), &request, at, &mut work.candidates) {
            Serves::Somebody => {}
            Serves::NoneAvailable => return Err(self.unplaced(state, at, before, DecideError::NoReplica)),
            Serves::UnknownModel => return Err(self.unplaced(state, at, before, DecideError::UnknownModel)),
        }
        work.candidates.network_trips.copy_from_slice(&work.trips);
        for tried in exclude {
            work.candidates.available[tried.index()] = false;
        }
        if let Some(rule) = &rule {
            state.read_gate(rule, &turn, before.as_ref(), &mut work.candidates);
        }
        request.turn = first_turn.unwrap_or_else(|| state.turn(place));
        let Some(choice) = evaluate(policy, weights, &request, &work.candidates, seed, &mut work.scratch) else {
            return Err(self.unplaced(state, at, before, DecideError::NoReplica));
        };
        if first_turn.is_none() {
            state.next_turn(place);
        }
        let mut ahead = Ahead::default();
        let pass = if let Some(rule) = &rule {
            ahead = state.gate.ahead(work.candidates.replica[choice.row], before.as_ref());
            let wish = wish(&request, &work.candidates, choice.row);
            let again = before.map(|before| (before, work.candidates.available[before.replica().index()]));
            match state.gate.admit(rule, at, work.candidates.replica[choice.row], &wish, again) {
                Admission::Pass(pass) => {
                    state.call_next(at, before);
                    Some(pass)
                }
                Admission::Full => {
                    let retry_secs = state.gate.patience_secs(work.candidates.replica[choice.row], at);
                    return Err(self.unplaced(state, at, before, DecideError::GateFull { retry_secs }));
                }
                Admission::Wait(ticket) => {
                    state.call_next(at, before);
                    self.tell_called(state);
                    self.workspaces.put(work);
                    let turn = request.turn;
                    return Ok(Entered::Held(Held { ticket, assigned, turn, place, policy: policy.id }));
                }
            }
        } else {
            None
        };
        let dispatch = Dispatch { row: choice.row, at, streams: prompt.stream, ahead };
        let reserved = state.reserve(&dispatch, &request, &work.candidates);
        work.shadow_turns.clear();
        for shadow in &policy.shadows {
            work.shadow_turns.push(state.turn(*shadow));
            state.next_turn(*shadow);
        }
        self.tell_called(state);

        // From here on the snapshot is this request's own; nobody waits for it.
        let replica = self.fleet[choice.row].id;
        let prefix = self.index.insert(&prompt.chain, replica, id, at);
        let decision = written(policy, weights, &work.candidates, seed, choice, &work.scratch);
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
        Ok(Entered::Routed(Box::new(Routed {
            decision,
            record,
            predicted_ttft_ms: reserved.predicted_ttft_ms,
            reservation: Reservation { replica, reserved, prefix, pass },
            predicted_cached_tokens,
        })))
    }

    /// The request produced its first content: its prefill is done.
    pub fn first_token(&self, reservation: &mut Reservation, at: At) {
        let mut state = self.state.lock();
        state.first_token(&mut reservation.reserved, at);
        // Its replica has less to prefill: a cold prompt may be next.
        state.call(at, reservation.replica);
        self.tell_called(state);
    }

    /// The request ended, well or not; the load is released, the index confirmed or trimmed, the rates taught.
    pub fn finish(&self, reservation: Reservation, prompt: &Prompt, ending: &Ending, at: At) {
        let Reservation { replica, reserved, prefix, pass } = reservation;
        let read_by_engine = reserved.load.prefilled() || ending.completed || ending.ttft_ms.is_some();
        let age = |is: fn(&prefix::Ticket) -> bool| prefix.as_ref().is_some_and(is);
        let ended = Ended { ending, at, old: age(prefix::Ticket::old), near_tail: age(prefix::Ticket::near_tail) };
        let mut state = self.state.lock();
        let step = state.finish(replica, reserved, &ended);
        if let Some(pass) = pass {
            state.gate.release(pass);
            state.call(at, replica);
        }
        self.tell_called(state);
        if let Some(ticket) = prefix {
            if ending.completed {
                let blocks = self.confirmed_blocks(prompt, ending, ticket.held());
                self.index.confirm(&prompt.chain, ticket, blocks);
            } else if !read_by_engine {
                self.index.retract(&prompt.chain, ticket);
            }
        }
        if let Some(step) = step {
            self.index.scale_capacity(replica, step);
        }
        // Token ids are exact, and their canonical bytes are no text.
        if let (true, None, Some(counted)) = (ending.completed, prompt.exact_tokens, ending.usage.prompt_tokens) {
            let model = prompt.model.as_deref().unwrap_or_default();
            self.tokens.learn(model, prompt.prompt_bytes, prompt.picture_bytes, counted);
        }
    }

    /// Leading blocks that the engine says it had; `held`, what was believed, where it does not say. With pictures too,
    /// whose tokens the bytes say nothing about.
    fn confirmed_blocks(&self, prompt: &Prompt, ending: &Ending, held: u32) -> u32 {
        let (Some(counted), Some(cached)) = (ending.usage.prompt_tokens, ending.usage.cached_tokens) else {
            return held;
        };
        if counted == 0 || prompt.picture_bytes > 0 {
            return held;
        }
        let bytes = u128::from(prompt.prompt_bytes) * u128::from(cached) / u128::from(counted);
        u32::try_from(bytes / self.block_bytes as u128).unwrap_or(u32::MAX)
    }

    /// Takes in what was seen of a replica. Answers with the replica whose engine turns out to have restarted, which
    /// empties its part of the index; one that is merely down keeps it, since most come back as they were.
    pub fn apply(&self, event: &Event) -> Option<ReplicaId> {
        let mut state = self.state.lock();
        let restarted = state.apply(event);
        let capacity = match event {
            Event::Report { replica, .. } | Event::Probe { replica, .. } => {
                state.capacity(*replica).map(|(tokens, model)| (*replica, tokens, model))
            }
            _ => None,
        };
        let resync = state.see_gate(event);
        self.tell_called(state);
        if let Some(resync) = resync {
            self.news.lock().push((resync.replica, admission::told(&resync)));
        }
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
        let blocks = (capacity_tokens / block_tokens.max(1e-3)) as u64;
        self.index.set_capacity(replica, blocks.max(1));
    }

    /// Installs new weights for a policy; the next decision uses them. `false`, and nothing changes, where they are not
    /// one finite number per term of a policy that exists.
    pub fn install(&self, policy: PolicyIndex, weights: Arc<Weights>) -> bool {
        let ruling = self.ruling.load();
        let fits = ruling.policies.get(policy).is_some_and(|policy| policy.terms.len() == weights.values.len())
            && weights.values.iter().all(|weight| weight.is_finite());
        if fits {
            ruling.weights[policy.index()].store(weights);
        }
        fits
    }

    /// The build of a policy that decides now. Rows of requests that were not routed name it.
    #[must_use]
    pub fn active_build(&self, policy: PolicyIndex) -> PolicyBuildId {
        self.ruling.load().policies.get(policy).map_or(PolicyBuildId::UNKNOWN, |policy| policy.id)
    }

    /// The weights that a policy decides with now; `None` for an unknown policy.
    #[must_use]
    pub fn weights(&self, policy: PolicyIndex) -> Option<Arc<Weights>> {
        self.ruling.load().weights.get(policy.index()).map(|weights| weights.load_full())
    }

    /// Requests in flight, queued prompt tokens and queued uncached tokens of a replica, for the gauges.
    #[must_use]
    pub fn load(&self, replica: ReplicaId) -> (u32, u64, u64) {
        self.state.lock().load.totals(replica)
    }

    /// Whether a replica can be used.
    #[must_use]
    pub fn replica_state(&self, replica: ReplicaId) -> ReplicaState {
        self.state.lock().fleet.state(replica)
    }

    /// Takes a replica out for new requests, or lets it back; those that run there go on, and those that wait for it at the
    /// gate are decided anew. Whether that is news. A replica that is not in the fleet never is.
    pub fn set_draining(&self, replica: ReplicaId, draining: bool) -> bool {
        if replica.index() >= self.fleet.len() {
            return false;
        }
        let mut state = self.state.lock();
        let news = state.fleet.set_draining(replica, draining);
        if news && draining {
            state.see_gate(&Event::Down { replica });
        }
        self.tell_called(state);
        news
    }

    /// Whether an operator took the replica out.
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
    pub fn rates(&self, at: At) -> Vec<RateRecord> {
        self.state.lock().rates.snapshot(at)
    }
}

#[cfg(test)]
mod tests;
