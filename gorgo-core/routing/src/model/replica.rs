//! Replicas: the engine endpoints a decision chooses among.

use std::fmt;
use std::sync::Arc;

use super::EngineKind;

/// Index of a replica in the fleet, 0-based and stable for the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u16);

impl ReplicaId {
    /// The id as an index into per-replica vectors.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Position of a policy among the active ones; a reload keeps it, so it names whichever build is active there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyIndex(pub u16);

impl PolicyIndex {
    /// The position as an index into per-policy vectors.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Number of one build of a policy in this process; a reload that changes the policy gives it a new one. Rows name builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyBuildId(pub u16);

impl PolicyBuildId {
    /// A number that no build has; rows that carry it name no policy.
    pub const UNKNOWN: Self = Self(u16::MAX);

    /// The number as an index into vectors that hold every build since the start.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A replica as configured, as far as it matters to decisions.
#[derive(Debug, Clone, PartialEq)]
pub struct Replica {
    /// Index in the fleet.
    pub id: ReplicaId,
    /// Unique name.
    pub name: Arc<str>,
    /// Region.
    pub region: Arc<str>,
    /// Engine.
    pub engine: EngineKind,
    /// KV cache capacity in tokens, when configured or learned; bounds the prefix index of the replica.
    pub kv_capacity_tokens: Option<u64>,
    /// Largest batch that the engine decodes cheaply, if configured: the largest with a captured graph.
    pub decode_batch: Option<u32>,
}
