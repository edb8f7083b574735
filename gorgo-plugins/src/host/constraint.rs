//! A plugin as a constraint of a policy.

use std::sync::Arc;

use gorgo_routing::constrain::{Constraint, Scope};
use gorgo_routing::model::Needs;

use super::instance::Judging;

/// A constraint that was loaded.
#[derive(Debug)]
pub(super) struct PluginConstraint {
    pub(super) judging: Arc<Judging>,
    /// Whether it excludes everybody where it gives no answer, be it once or because it was taken out.
    pub(super) indispensable: bool,
}

impl Constraint for PluginConstraint {
    fn needs(&self) -> Needs {
        self.judging.needs()
    }

    fn violation(&self, scope: &Scope<'_>, out: &mut [f64]) {
        // What is not answered excludes nobody, but where the policy would rather refuse.
        let otherwise = if self.indispensable { f64::INFINITY } else { 0.0 };
        for row in scope.rows {
            out[*row] = otherwise;
        }
        self.judging.judge(scope.request, scope.candidates, |values, known| {
            for row in scope.rows {
                // Written so that what is below 0 is within the limit.
                out[*row] = if known[*row] != 0 && values[*row] > 0.0 { values[*row] } else { 0.0 };
            }
        });
    }
}
