//! Consistent hashing with bounded loads: no replica may have more than `factor` × its even part of all requests in
//! flight, the new one counted.
//!
//! Reads `inflight`. With a `hash` term the key's home takes the request, and where that is full the next in the key's
//! order. Sources: Mirrokni, Thorup and Zadimoghaddam, 2016; SMG `prefix_hash`, factor 1.25.

use super::{Constraint, ConstraintKind, ConstraintScope};
use crate::model::{ParamSpec, ParamType, RequiredFacts};

pub(super) const KIND: ConstraintKind = ConstraintKind {
    kind: "bounded-load",
    summary: "at most `factor` times the even part of all requests in flight",
    hard: false,
    params: &[ParamSpec {
        name: "factor",
        ty: ParamType::Number { default: Some(1.25), min: 1.0, max: 1e6 },
        unit: "× (requests + 1) ÷ replicas",
        help: "a replica is full above this",
    }],
    build: |params, _| Ok(Box::new(BoundedLoad { factor: params.number("factor").unwrap_or(1.25) })),
};

#[derive(Debug)]
struct BoundedLoad {
    factor: f64,
}

impl Constraint for BoundedLoad {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::LOAD
    }

    #[expect(clippy::cast_precision_loss, reason = "requests and replicas stay far below 2^53")]
    fn violation(&self, scope: &ConstraintScope<'_>, out: &mut [f64]) {
        let inflight = &scope.candidates.inflight;
        let all: u64 = scope.rows.iter().map(|row| u64::from(inflight[*row])).sum();
        // + 1 counts the request that is being placed, which also keeps the limit of an idle fleet above 0.
        let limit = self.factor * (all as f64 + 1.0) / scope.rows.len().max(1) as f64;
        for row in scope.rows {
            out[*row] = (f64::from(inflight[*row]) / limit - 1.0).max(0.0);
        }
    }
}
