//! Settings of a policy's admission gate, and the rows that the store keeps of requests that waited at it.

use super::{DecisionId, ReplicaId};

/// Settings of a policy's admission gate, from `[policy.NAME.admission]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdmissionRule {
    /// Limit on a replica's requests in flight; `None`: the batch that its engine decodes cheaply, where that is known.
    pub max_in_flight: Option<u32>,
    /// Limit on the requests that wait for one replica; further ones are refused.
    pub max_queued: u32,
    /// True: prompts with a long prefill wait while the replica still has a long prefill backlog.
    pub hold_cold: bool,
    /// Prefill time above which a prompt counts as long, ms.
    pub cold_ms: f64,
    /// Predicted backlog above which a replica counts as busy, ms.
    pub backlog_ms: f64,
    /// Ms of cost gap that one ms of waiting is worth when the queue is ordered.
    pub ageing: f64,
}

/// How a wait at the gate ended. A closed list, stored in `holds.ended`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AdmissionEnd {
    /// The request was sent on.
    Dispatched,
    /// The client left.
    ClientGone,
    /// The request was refused: no replica was left for it, or the queues of all that were left are full.
    Refused,
    /// The router shut down.
    Shutdown,
}

impl AdmissionEnd {
    /// All ends, in documentation order.
    pub const ALL: [Self; 4] = [Self::Dispatched, Self::ClientGone, Self::Refused, Self::Shutdown];

    /// The text stored in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dispatched => "dispatched",
            Self::ClientGone => "client-gone",
            Self::Refused => "refused",
            Self::Shutdown => "shutdown",
        }
    }
}

/// A row of `admissions`: an attempt that waited at the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionRecord {
    /// Decision that the attempt belongs to.
    pub decision: DecisionId,
    /// 1 for the first attempt.
    pub attempt: u16,
    /// Replica it waited for; the last one, if the decision was repeated and chose another.
    pub replica: ReplicaId,
    /// Number of repeated decisions that chose another replica.
    pub moves: u16,
    /// Length of the wait, µs.
    pub held_us: i64,
    /// How it ended.
    pub ended: AdmissionEnd,
}
