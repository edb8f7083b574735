//! Decisions and attempts as read from the database, with names instead of a run's numbers.

use std::sync::Arc;

use crate::open::run::TermInfo;
use gorgo_routing::model::{
    ApiPath, CandidateRecord, ConnectionReuse, DecisionId, EngineKind, ErrorClass, Generation, RefusalReason, Replica,
    ReplicaId, RttSource, UnixMicros,
};

/// Stored policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPolicy {
    /// Name of the policy.
    pub name: String,
    /// Digest of the text and of what the terms resolve to.
    pub sha256: String,
    /// Effective TOML text.
    pub text: String,
    /// Terms, in slot order.
    pub terms: Vec<TermInfo>,
}

/// Stored decision, with names instead of the run's numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredDecision {
    /// Id of the decision.
    pub decision: DecisionId,
    /// Run that made it.
    pub run: i64,
    /// Arrival of the request's head.
    pub received: UnixMicros,
    /// API of the request.
    pub path: ApiPath,
    /// Model that was requested, if its name was stored.
    pub model: Option<Arc<str>>,
    /// Hash of the session key.
    pub session_hash: u64,
    /// Policy that decided.
    pub policy: Arc<StoredPolicy>,
    /// Generation of the weights.
    pub generation: Generation,
    /// In a tuning experiment: 0 incumbent, 1 candidate.
    pub arm: Option<u8>,
    /// Trial block.
    pub block: Option<u32>,
    /// True if its outcome counts for the arm's score.
    pub counted: bool,
    /// Weights of that generation, in slot order; empty if their rows are lost.
    pub weights: Arc<[f64]>,
    /// Seed of the choice.
    pub seed: u64,
    /// Chosen replica; `None` on a refusal.
    pub replica: Option<Arc<str>>,
    /// Reason of a refusal.
    pub refusal: Option<RefusalReason>,
    /// Probability of this choice.
    pub propensity: f64,
    /// Replicas that shared the lowest cost.
    pub ties: u32,
    /// Prompt tokens as estimated.
    pub prompt_tokens: u32,
    /// Earlier decision whose prompt shares the longest prefix with this one.
    pub parent: Option<DecisionId>,
    /// Tokens of that shared prefix.
    pub shared_tokens: u32,
    /// Body, bytes.
    pub body_bytes: u64,
    /// Time spent deciding, µs.
    pub decide_us: u32,
    /// Candidates of the first attempt, in the order in which the decision saw them.
    pub candidates: Vec<StoredCandidate>,
    /// Choices of the shadow policies.
    pub shadows: Vec<StoredShadow>,
}

impl StoredDecision {
    /// Returns the index of the chosen candidate.
    #[must_use]
    pub fn row(&self) -> Option<usize> {
        // By name: two candidates of one decision are never the same replica. `None` if the candidate's row is lost.
        let chosen = self.replica.as_ref()?;
        self.candidates.iter().position(|candidate| candidate.replica == *chosen)
    }

    /// Returns the candidates in the form that `policy::again` takes: a replica's id is its index here.
    #[must_use]
    pub fn rows(&self) -> Vec<CandidateRecord> {
        let row = |(candidate, id): (&StoredCandidate, u16)| CandidateRecord {
            replica: ReplicaId(id),
            excluded_by: candidate.excluded_by.clone(),
            cost_milli: candidate.cost_milli,
            rtt_us: candidate.rtt_us,
            rtt_source: candidate.rtt_source,
            cached_tokens: candidate.cached_tokens,
            queued_tokens: candidate.queued_tokens,
            queued_uncached_tokens: candidate.queued_uncached_tokens,
            inflight: candidate.inflight,
            report_age_ms: candidate.report_age_ms,
            signals_milli: candidate.signals_milli.clone(),
            costs_milli: candidate.costs_milli.clone(),
        };
        // Ids of the run are not stored, and repeating a decision only needs them to be distinct and in order.
        self.candidates.iter().zip(0..).map(row).collect()
    }

    /// Returns these candidates as a fleet to build the policy for. A stored decision has only the names of its
    /// replicas; a decision repeated from stored rows does not read the rest.
    #[must_use]
    pub fn fleet(&self) -> Vec<Replica> {
        let replica = |(candidate, id): (&StoredCandidate, u16)| Replica {
            id: ReplicaId(id),
            name: candidate.replica.clone(),
            // Placeholders from here on; see above.
            region: candidate.replica.clone(),
            // The kind without any special behaviour.
            engine: EngineKind::OpenAi,
            kv_capacity_tokens: None,
            decode_batch: None,
        };
        self.candidates.iter().zip(0..).map(replica).collect()
    }
}

/// Stored candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredCandidate {
    /// Name of the replica.
    pub replica: Arc<str>,
    /// Constraint that excluded it.
    pub excluded_by: Option<Arc<str>>,
    /// Total cost, thousandths.
    pub cost_milli: i64,
    /// Round trip used, µs.
    pub rtt_us: Option<i64>,
    /// Source of the round trip.
    pub rtt_source: RttSource,
    /// Tokens believed cached there.
    pub cached_tokens: u32,
    /// Prompt tokens in flight there.
    pub queued_tokens: u64,
    /// Uncached prompt tokens there without a first token yet.
    pub queued_uncached_tokens: u64,
    /// Requests in flight there.
    pub inflight: u32,
    /// Age of the engine's report, ms.
    pub report_age_ms: Option<i64>,
    /// One signal per term slot, thousandths of the term's unit; [`gorgo_routing::model::VOID_MILLI`] of a term without
    /// one.
    pub signals_milli: Vec<i64>,
    /// weight × signal per term slot, thousandths; [`gorgo_routing::model::VOID_MILLI`] likewise.
    pub costs_milli: Vec<i64>,
}

/// Stored choice of a shadow policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredShadow {
    /// Name of the policy.
    pub policy: String,
    /// Replica that it would have chosen.
    pub replica: Arc<str>,
    /// Cost of that replica, thousandths.
    pub cost_milli: i64,
}

/// Stored attempt. Times are µs after the request's head arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAttempt {
    /// Decision of the request.
    pub decision: DecisionId,
    /// Number of the attempt, from 1.
    pub attempt: u16,
    /// Replica of the attempt.
    pub replica: Arc<str>,
    /// New or reused connection; `None` if there was none.
    pub connection: Option<ConnectionReuse>,
    /// Time spent connecting; 0 on a reused connection.
    pub connect_us: Option<i64>,
    /// Time at which the request had been handed to the connection.
    pub sent_us: Option<i64>,
    /// Arrival of the response's head.
    pub first_byte_us: Option<i64>,
    /// End of the attempt.
    pub ended_us: i64,
    /// Status of the response.
    pub status: Option<u16>,
    /// Error class, if the attempt failed.
    pub error: Option<ErrorClass>,
}
