//! A plugin as a constraint of a policy.

use std::sync::Arc;

use gorgo_routing::constrain::{Constraint, ConstraintScope};
use gorgo_routing::model::RequiredFacts;

use super::instance::JudgeInstance;

/// A loaded constraint.
#[derive(Debug)]
pub(super) struct PluginConstraint {
    pub(super) judging: Arc<JudgeInstance>,
    /// True if it excludes every replica when it has no answer, whether once or because it is quarantined
    /// (`on_fault = "refuse"`).
    pub(super) refuse_on_fault: bool,
}

impl Constraint for PluginConstraint {
    fn needs(&self) -> RequiredFacts {
        self.judging.needs()
    }

    fn violation(&self, scope: &ConstraintScope<'_>, out: &mut [f64]) {
        // Without an answer no replica is excluded, unless the policy prefers to refuse the request.
        let otherwise = if self.refuse_on_fault { f64::INFINITY } else { 0.0 };
        for row in scope.rows {
            out[*row] = otherwise;
        }
        self.judging.judge(scope.request, scope.candidates, |values, known| {
            for row in scope.rows {
                // A plugin may return negative numbers for replicas within the limit; a violation is never negative.
                out[*row] = if known[*row] != 0 && values[*row] > 0.0 { values[*row] } else { 0.0 };
            }
        });
    }
}
