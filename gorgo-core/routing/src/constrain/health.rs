//! Only replicas that can be used: healthy, enabled, serving the model. Always in force, never relaxed.

use super::{Constraint, ConstraintKind, ConstraintScope};
use crate::model::RequiredFacts;

pub(super) const KIND: ConstraintKind = ConstraintKind {
    kind: "health",
    summary: "only replicas that are up and serve the model; always in force",
    hard: true,
    params: &[],
    build: |_, _| Ok(Box::new(HealthConstraint)),
};

#[derive(Debug)]
struct HealthConstraint;

impl Constraint for HealthConstraint {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::NONE
    }

    fn violation(&self, scope: &ConstraintScope<'_>, out: &mut [f64]) {
        for row in scope.rows {
            out[*row] = if scope.candidates.available[*row] { 0.0 } else { f64::INFINITY };
        }
    }
}
