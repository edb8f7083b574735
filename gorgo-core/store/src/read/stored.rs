//! Decisions and attempts as they come back from the database, with names in place of a run's numbers.

use std::sync::Arc;

use crate::open::run::TermInfo;
use gorgo_routing::model::{
    ApiPath, At, CandidateRecord, Connection, DecisionId, EngineKind, ErrorClass, Generation, Refusal, Replica,
    ReplicaId, RttSource,
};

/// A policy as it was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPolicy {
    /// Its name.
    pub name: String,
    /// Digest of its text and of what its terms resolve to.
    pub sha256: String,
    /// Its effective TOML text.
    pub text: String,
    /// Its terms, in slot order.
    pub terms: Vec<TermInfo>,
}

/// A decision as it was stored, with names in place of the run's numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredDecision {
    /// Its id.
    pub decision: DecisionId,
    /// The run that made it.
    pub run: i64,
    /// When the request's head arrived.
    pub received: At,
    /// By which API.
    pub path: ApiPath,
    /// The model asked for, as far as its name was kept.
    pub model: Option<Arc<str>>,
    /// Hash of the session key.
    pub session_hash: u64,
    /// The policy that decided.
    pub policy: Arc<StoredPolicy>,
    /// Which weights.
    pub generation: Generation,
    /// In a tuning experiment: 0 incumbent, 1 candidate.
    pub arm: Option<u8>,
    /// Its block.
    pub block: Option<u32>,
    /// Whether its outcome scores the arm.
    pub counted: bool,
    /// These weights, in slot order; empty where their rows are lost.
    pub weights: Arc<[f64]>,
    /// Seed of the choice.
    pub seed: u64,
    /// Who was chosen; `None` on a refusal.
    pub replica: Option<Arc<str>>,
    /// Why nobody was.
    pub refusal: Option<Refusal>,
    /// Probability of this choice.
    pub propensity: f64,
    /// Replicas that shared the lowest cost.
    pub ties: u32,
    /// Prompt tokens as estimated.
    pub prompt_tokens: u32,
    /// The earlier decision that this prompt shares its longest prefix with.
    pub parent: Option<DecisionId>,
    /// Tokens of that shared prefix.
    pub shared_tokens: u32,
    /// Body, bytes.
    pub body_bytes: u64,
    /// Time spent deciding, µs.
    pub decide_us: u32,
    /// The candidates of the first attempt, in the order in which the decision saw them.
    pub candidates: Vec<StoredCandidate>,
    /// What shadow policies would have chosen.
    pub shadows: Vec<StoredShadow>,
}

impl StoredDecision {
    /// The row of the candidates that was chosen.
    #[must_use]
    pub fn row(&self) -> Option<usize> {
        let chosen = self.replica.as_ref()?;
        self.candidates.iter().position(|candidate| candidate.replica == *chosen)
    }

    /// The candidates as `policy::again` takes them: a replica's number is its row.
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
        self.candidates.iter().zip(0..).map(row).collect()
    }

    /// Those candidates as a fleet to build the policy for. Of a replica only its name is stored here; no decision from stored
    /// rows reads the rest.
    #[must_use]
    pub fn fleet(&self) -> Vec<Replica> {
        let replica = |(candidate, id): (&StoredCandidate, u16)| Replica {
            id: ReplicaId(id),
            name: candidate.replica.clone(),
            region: candidate.replica.clone(),
            engine: EngineKind::OpenAi,
            kv_capacity_tokens: None,
            decode_batch: None,
        };
        self.candidates.iter().zip(0..).map(replica).collect()
    }
}

/// A candidate as it was stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredCandidate {
    /// Who.
    pub replica: Arc<str>,
    /// Name of the constraint that excluded it.
    pub excluded_by: Option<Arc<str>>,
    /// Total cost, thousandths.
    pub cost_milli: i64,
    /// Round trip used, µs.
    pub rtt_us: Option<i64>,
    /// Where it came from.
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
    /// One signal per term slot, thousandths of the term's unit; [`gorgo_routing::model::VOID_MILLI`] of a term that said nothing.
    pub signals_milli: Vec<i64>,
    /// weight × signal per term slot, thousandths; [`gorgo_routing::model::VOID_MILLI`] likewise.
    pub costs_milli: Vec<i64>,
}

/// A shadow policy's choice as it was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredShadow {
    /// The policy's name.
    pub policy: String,
    /// Whom it would have chosen.
    pub replica: Arc<str>,
    /// At what cost, thousandths.
    pub cost_milli: i64,
}

/// An attempt as it was stored. Times are µs after the request's head arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAttempt {
    /// Of which decision.
    pub decision: DecisionId,
    /// 1 for the first.
    pub attempt: u16,
    /// At which replica.
    pub replica: Arc<str>,
    /// New or kept connection; `None` where none was had.
    pub connection: Option<Connection>,
    /// Time spent connecting; 0 on a warm connection.
    pub connect_us: Option<i64>,
    /// When the request had been handed to the connection.
    pub sent_us: Option<i64>,
    /// When the response's head arrived.
    pub first_byte_us: Option<i64>,
    /// When it was over.
    pub ended_us: i64,
    /// Response status.
    pub status: Option<u16>,
    /// What went wrong.
    pub error: Option<ErrorClass>,
}
