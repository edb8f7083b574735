//! The router itself, without wires: facts, policies, and the one step that selects and reserves.
//!
//! Hashing a prompt and walking the index happen outside any lock; score, constrain, pick and reserve happen under
//! one, so that a burst sees itself. `edge` drives it on the wall clock, `sim` on a virtual one.

use std::sync::Arc;

use crate::config::{Index, Probe, Scrape};
use crate::model::{
    At, CandidateRecord, Decision, DecisionId, DecisionRecord, Ending, Event, PolicyId, Prompt, Refusal, Replica,
    ReplicaId, Weights,
};

/// What a router is made of.
#[derive(Debug)]
pub struct RouterSetup {
    /// The fleet; ids are positions.
    pub fleet: Vec<Replica>,
    /// Secret of the database: hashes that are stored are keyed with it.
    pub secret: u64,
    /// Settings of the prefix index.
    pub index: Index,
    /// Settings of the round-trip facts.
    pub probe: Probe,
    /// Settings of the engine reports.
    pub scrape: Scrape,
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
}

impl From<DecideError> for Refusal {
    fn from(error: DecideError) -> Self {
        match error {
            DecideError::UnknownModel => Self::UnknownModel,
            DecideError::NoReplica => Self::NoReplica,
        }
    }
}

/// Work reserved at a replica. Released exactly once: by [`Router::finish`], which consumes it.
#[derive(Debug)]
#[must_use = "a reservation that is dropped without `finish` would count as load for ever"]
pub struct Reservation {
    replica: ReplicaId,
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
pub struct Router {}

impl Router {
    /// Reads a request body once and makes what routing needs of it. `session` is the session header's value, `key` the
    /// client's API key; only hashes of them are kept. Takes no lock.
    ///
    /// # Errors
    /// [`ReadError::Malformed`] where the body is not what the path needs.
    pub fn read(
        &self,
        path: &str,
        body: &[u8],
        session: Option<&[u8]>,
        key: Option<&[u8]>,
    ) -> Result<Prompt, ReadError> {
        let _ = (self, path, body, session, key);
        todo!()
    }

    /// Selects and reserves in one step. `exclude`: replicas that this request already tried.
    ///
    /// # Errors
    /// Who could not be chosen, and why; nothing is reserved then.
    pub fn decide(
        &self,
        prompt: &Prompt,
        policy: PolicyId,
        id: DecisionId,
        seed: u64,
        at: At,
        exclude: &[ReplicaId],
    ) -> Result<Routed, DecideError> {
        let _ = (self, prompt, policy, id, seed, at, exclude);
        todo!()
    }

    /// The request produced its first content: its prefill is done.
    pub fn first_token(&self, reservation: &mut Reservation, at: At) {
        let _ = (self, reservation, at);
        todo!()
    }

    /// The request ended, well or not; the load is released, the index confirmed or trimmed, the rates taught.
    pub fn finish(&self, reservation: Reservation, prompt: &Prompt, ending: &Ending, at: At) {
        let _ = (self, reservation, prompt, ending, at);
        todo!()
    }

    /// Takes in what was seen of a replica.
    pub fn apply(&self, event: &Event) {
        let _ = (self, event);
        todo!()
    }

    /// Installs new weights for a policy; the next decision uses them.
    pub fn install(&self, policy: PolicyId, weights: Arc<Weights>) {
        let _ = (self, policy, weights);
        todo!()
    }

    /// Requests in flight, queued prompt tokens and queued uncached tokens of a replica, for the gauges.
    #[must_use]
    pub fn load(&self, replica: ReplicaId) -> (u32, u64, u64) {
        let _ = (self, replica);
        todo!()
    }
}
#[expect(unused, reason = "signature sketch")]
type Unused = CandidateRecord;
