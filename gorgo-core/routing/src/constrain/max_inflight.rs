//! Limits the requests in flight per replica.
//!
//! Reads `inflight` (`feature::load`) and the engine's running requests, whichever is more, so that requests of other
//! routers count too.

use super::{Constraint, ConstraintKind, ConstraintScope};
use crate::model::{ParamSpec, ParamType, ParamValues, RequiredFacts};

pub(super) const KIND: ConstraintKind = ConstraintKind {
    kind: "max-inflight",
    summary: "at most `max_requests` requests in flight per replica",
    hard: false,
    params: &[ParamSpec {
        name: "max_requests",
        ty: ParamType::Integer { default: None, min: 1, max: 1_000_000 },
        unit: "requests",
        help: "a replica with this many is full; required",
    }],
    build: |params, _| Ok(Box::new(MaxInflight::new(params)?)),
};

#[derive(Debug)]
struct MaxInflight {
    limit: f64,
}

impl MaxInflight {
    fn new(params: &ParamValues) -> Result<Self, String> {
        match params.number("max_requests") {
            Some(limit) => Ok(Self { limit }),
            None => Err("`max_requests` is missing".to_owned()),
        }
    }
}

impl Constraint for MaxInflight {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::LOAD.union(RequiredFacts::REPORT)
    }

    fn violation(&self, scope: &ConstraintScope<'_>, out: &mut [f64]) {
        for row in scope.rows {
            let own = f64::from(scope.candidates.inflight[*row]);
            let requests = own.max(scope.candidates.running_now(*row).unwrap_or(0.0));
            // With one more it would be over the limit: (requests + 1) / limit − 1.
            out[*row] = ((requests + 1.0) / self.limit - 1.0).max(0.0);
        }
    }
}
