//! Generators for the samples of all tables: numbers that the test run knows, and values that the database can store.

pub(crate) use proptest::collection::vec;
pub(crate) use proptest::option;
pub(crate) use proptest::prelude::*;
pub(crate) use proptest::sample::{select, subsequence};

use gorgo_routing::model::{DecisionId, PolicyBuildId, ReplicaId, UnixMicros};

/// Counts that the database can store: 63 bits.
pub(crate) fn count() -> impl Strategy<Value = u64> {
    0..=i64::MAX.cast_unsigned()
}

/// Times that the database can store.
pub(crate) fn at() -> impl Strategy<Value = UnixMicros> {
    count().prop_map(UnixMicros)
}

pub(crate) fn decision_id() -> impl Strategy<Value = DecisionId> {
    (0..i64::MAX).prop_map(DecisionId)
}

/// One of the three replicas of the test run.
pub(crate) fn replica() -> impl Strategy<Value = ReplicaId> {
    (0..3_u16).prop_map(ReplicaId)
}

/// One of the two policies of the test run.
pub(crate) fn policy() -> impl Strategy<Value = PolicyBuildId> {
    (0..2_u16).prop_map(PolicyBuildId)
}
