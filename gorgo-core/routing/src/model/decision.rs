//! A decision: the chosen replica, the other candidates, their costs, and why some were excluded.

use std::fmt;

use super::{PolicyBuildId, ReplicaId};

/// A decision's identity: milliseconds since the epoch × 2^20 + a counter; 63 bits, unique per database and rising.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionId(pub i64);

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Number of a proposal of an optimizer, counted from 0 (the weights as configured).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation(pub u64);

/// Why a replica could not be picked: the constraint, by its position in the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Exclusion {
    /// Row in the candidates.
    pub row: usize,
    /// Index of the constraint in the policy; its name is what the database stores.
    pub constraint_index: usize,
    /// Distance beyond the limit, as a ratio above 0; if no candidate is left, those least beyond are let back in.
    /// Infinite: never let back in (an unhealthy replica).
    pub violation: f64,
}

/// Why a request was not routed at all. A closed list, stored in `decisions.refusal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// The body is not what the path needs: 400.
    MalformedBody,
    /// The body is over `server.max_body_bytes`: 413.
    BodyTooLarge,
    /// All request bodies together are over `server.max_buffered_bytes`: 503.
    Overloaded,
    /// No replica serves the model: 404.
    UnknownModel,
    /// No replica is available: 503.
    NoReplica,
    /// The router is draining: 503.
    Draining,
    /// The client left before its request was read.
    ClientGone,
    /// The queue at the gate of the chosen replica is full: 429.
    GateFull,
}

impl RefusalReason {
    /// All refusals, in documentation order.
    pub const ALL: [Self; 8] = [
        Self::MalformedBody,
        Self::BodyTooLarge,
        Self::Overloaded,
        Self::UnknownModel,
        Self::NoReplica,
        Self::Draining,
        Self::ClientGone,
        Self::GateFull,
    ];

    /// The text stored in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MalformedBody => "malformed-body",
            Self::BodyTooLarge => "body-too-large",
            Self::Overloaded => "overloaded",
            Self::UnknownModel => "unknown-model",
            Self::NoReplica => "no-replica",
            Self::Draining => "draining",
            Self::ClientGone => "client-gone",
            Self::GateFull => "queue-full",
        }
    }
}

/// A decision with enough detail to repeat it offline. Rows are in candidate order; `signals` and `costs` are
/// row-major, `rows × terms`.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Chosen replica.
    pub replica: ReplicaId,
    /// Row of that replica in the candidates.
    pub row: usize,
    /// The policy that decided.
    pub policy: PolicyBuildId,
    /// Generation of the weights it was made with.
    pub generation: Generation,
    /// The only randomness used. Below 2^53, so that every SQL tool and JSON reader shows it exactly.
    pub seed: u64,
    /// The probability with which this replica was chosen.
    pub propensity: f64,
    /// Number of replicas that shared the lowest cost (within the picker's margin).
    pub ties: u32,
    /// The signals, each in its term's unit, rounded to thousandths.
    pub signals: Vec<f64>,
    /// weight × signal.
    pub costs: Vec<f64>,
    /// Per row: the total cost.
    pub totals: Vec<f64>,
    /// Slots of the terms that gave no signal at all; their signals and costs are 0.
    pub void_terms: Vec<usize>,
    /// Candidates that could not be picked, each with its constraint.
    pub excluded: Vec<Exclusion>,
}
