//! Settings of a policy's admission gate, and the rows that the store keeps of requests that waited at it.

use super::{DecisionId, ReplicaId};

/// Settings of a policy's admission gate, from `[policy.NAME.admission]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdmissionRule {
    /// Most requests of a replica in flight; `None`: what its engine decodes cheaply, where that is known.
    pub max_in_flight: Option<u32>,
    /// Most requests that wait for one replica; more are shed.
    pub max_queued: u32,
    /// Whether prompts with much to prefill wait while the replica still has much to prefill.
    pub hold_cold: bool,
    /// Much for a prompt: more prefill than this, ms.
    pub cold_ms: f64,
    /// Much for a replica: a predicted backlog above this, ms.
    pub backlog_ms: f64,
    /// What a ms of waiting counts against a ms of cost gap, in the order of those who wait.
    pub ageing: f64,
}

/// How a wait at the gate ended. A closed list, stored in `holds.ended`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldEnd {
    /// It was sent on.
    Dispatched,
    /// Its client left.
    ClientGone,
    /// It was refused: nobody was left to send it to, or the queues of those who were are full.
    Refused,
    /// The router shut down.
    Shutdown,
}

impl HoldEnd {
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
pub struct HoldRecord {
    /// Of which decision.
    pub decision: DecisionId,
    /// 1 for the first attempt.
    pub attempt: u16,
    /// For whom it waited; the last one, where it was decided anew for another.
    pub replica: ReplicaId,
    /// How often it was decided anew for another replica.
    pub moves: u16,
    /// How long, µs.
    pub held_us: i64,
    /// How it ended.
    pub ended: HoldEnd,
}
