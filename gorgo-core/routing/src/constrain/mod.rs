//! Ring 1: candidates that may not be picked, and how far they are over the limit.
//!
//! A *hard* constraint (health, regions) always excludes. The others yield when no candidate would be left:
//! `policy::decide` then lets back in those that are least over their limits, and the exclusions stay recorded.

mod bounded_load;
mod cache_affinity;
mod capacity_share;
mod concentration;
mod expression;
mod health;
mod imbalance;
mod max_inflight;
mod max_queued_tokens;
mod min_share;
mod regions;
mod window;

use std::fmt::Debug;

use crate::model::{Candidates, ParamSpec, ParamValues, Replica, RequestView, RequiredFacts, ShareWindow};

/// All kinds of constraint. A new one is a file here and a line in this table.
pub const CONSTRAINTS: &[&ConstraintKind] = &[
    &health::KIND,
    &concentration::KIND,
    &max_inflight::KIND,
    &max_queued_tokens::KIND,
    &min_share::KIND,
    &regions::KIND,
    &imbalance::KIND,
    &expression::KIND,
    &bounded_load::KIND,
    &cache_affinity::KIND,
];

/// The kind that every policy has first, configured or not.
pub const HEALTH: &ConstraintKind = &health::KIND;

/// One constraint of a policy. Built once, called once per decision for all candidates together.
pub trait Constraint: Debug + Send + Sync {
    /// The facts that are read; others may be missing from the candidates.
    fn needs(&self) -> RequiredFacts;

    /// The window of routed work that is read, if any.
    fn window(&self) -> Option<ShareWindow> {
        None
    }

    /// Returns true if this one is never relaxed; `None`: as its kind declares.
    fn hard(&self) -> Option<bool> {
        None
    }

    /// Writes how far each of `scope.rows` is beyond the limit, as a ratio above 0, to `out[row]`; 0 where it is
    /// within. Only these rows are written. A hard constraint writes infinity.
    fn violation(&self, scope: &ConstraintScope<'_>, out: &mut [f64]);
}

/// Input of a constraint.
#[derive(Debug, Clone, Copy)]
pub struct ConstraintScope<'a> {
    /// The request.
    pub request: &'a RequestView,
    /// The facts.
    pub candidates: &'a Candidates,
    /// The rows to judge: all for a hard constraint; for the others, those that no hard one excluded. Their order does
    /// not matter.
    pub rows: &'a [usize],
    /// Position of this constraint's window among the candidates' share windows; 0 if it has none.
    pub window: usize,
}

/// A kind of constraint: its row in [`CONSTRAINTS`].
#[derive(Debug, Clone, Copy)]
pub struct ConstraintKind {
    /// Name in configuration files, kebab-case.
    pub kind: &'static str,
    /// One-line description.
    pub summary: &'static str,
    /// True if it is never relaxed.
    pub hard: bool,
    /// Parameters.
    pub params: &'static [ParamSpec],
    /// Makes the constraint for a fleet.
    pub build: fn(&ParamValues, &[Replica]) -> BuiltConstraint,
}

/// A constraint, or what is wrong with its parameters: the text names the parameter and what is allowed.
pub type BuiltConstraint = Result<Box<dyn Constraint>, String>;

#[cfg(test)]
mod tests;
