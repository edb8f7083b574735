//! Ring 2: kinds, policies, decisions.
//!
//! [`build`] makes [`PolicySet`] of configuration; [`decide`] is the one function that routes; [`repeat_decision`] repeats a
//! stored decision; [`Router`] drives all of it with facts.

mod admission;
mod build;
mod decide;
mod loader;
mod params;
mod presets;
mod record;
mod registry;
mod router;
mod suggest;
mod weight;

use std::sync::Arc;

pub use build::{CheckedPolicies, build};
pub use decide::{DecisionScratch, PickedRow, RepeatedDecision, decide, repeat_decision};
pub use loader::{LoadedConstraint, LoadedObjective, LoadedTerm, PluginLoader};
pub use presets::{PRESETS, PolicyPreset, preset};
pub use registry::KindRegistry;
pub use router::{
    DecideError, DecisionContext, EnterResult, ReadError, RefusedPart, Reservation, RoutedRequest, Router, RouterSetup,
    StagedReload, WaitingRequest,
};
pub use weight::TermWeight;

use crate::constrain::Constraint;
use crate::model::{
    AdmissionRule, Generation, PolicyBuildId, PolicyIndex, PolicyWeights, RequiredFacts, ShareWindow, Unit,
};
use crate::pick::Picker;
use crate::score::{CostFunction, CostTerm};
use crate::tune::TuningPlan;

/// All policies of a process: those of the file, then the presets that it does not replace.
#[derive(Debug, Clone)]
pub struct PolicySet {
    /// By [`PolicyIndex`]. The builds that a process began with have their index as their number.
    pub list: Vec<Arc<Policy>>,
    /// The policy that serves.
    pub default: PolicyIndex,
    /// The windows of routed work that constraints read; a constraint holds its position here.
    pub windows: Vec<ShareWindow>,
    /// Loader of the plugins among the kinds: it has their statistics and their messages.
    pub loader: Option<Arc<dyn PluginLoader>>,
}

impl PolicySet {
    /// The policy at that index.
    #[must_use]
    pub fn get(&self, index: PolicyIndex) -> Option<&Policy> {
        self.list.get(index.index()).map(Arc::as_ref)
    }

    /// Position of the policy of that name.
    #[must_use]
    pub fn index_of(&self, name: &str) -> Option<PolicyIndex> {
        let index = self.list.iter().position(|policy| *policy.name == *name)?;
        u16::try_from(index).ok().map(PolicyIndex)
    }

    /// The policy of that name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Policy> {
        self.list.iter().find(|policy| &*policy.name == name).map(Arc::as_ref)
    }
}

/// Terms + cost + constraints + picker, as built from a table.
#[derive(Debug)]
pub struct Policy {
    /// Number of this build. A policy that was built again while the process ran has a new one.
    pub id: PolicyBuildId,
    /// Name.
    pub name: Arc<str>,
    /// SHA-256 of its table in a canonical form, hexadecimal.
    pub sha256: String,
    /// Table as TOML text, from which it can be built again.
    pub text: String,
    /// Unit of its costs.
    pub unit: PolicyUnit,
    /// Terms, in slot order.
    pub terms: Vec<PolicyTerm>,
    /// Constraints; health is always the first, hard ones come before the others.
    pub constraints: Vec<PolicyConstraint>,
    /// The share of decisions that ignore costs and take any allowed replica, 0 to 1.
    pub exploration: f64,
    /// Policies that are scored on the same facts without acting.
    pub shadows: Vec<PolicyIndex>,
    /// Plan of its tuner; `None`: its weights are not tuned.
    pub tune: Option<TuningPlan>,
    /// The gate at which its requests wait, if it has one.
    pub admission: Option<AdmissionRule>,
    /// The facts that its terms and constraints read.
    pub needs: RequiredFacts,
    cost: Box<dyn CostFunction>,
    picker: Box<dyn Picker>,
    picker_kind: &'static str,
}

impl Policy {
    /// The hashes of the libraries that it uses: terms, constraints, objective.
    pub fn libraries(&self) -> impl Iterator<Item = &Arc<str>> {
        let terms = self.terms.iter().filter_map(|term| term.plugin_sha256.as_ref());
        let constraints = self.constraints.iter().filter_map(|rule| rule.plugin_sha256.as_ref());
        let objective = self.tune.as_ref().and_then(|plan| plan.objective_sha256.as_ref());
        terms.chain(constraints).chain(objective)
    }

    /// The kind of its picker.
    #[must_use]
    pub const fn picker_kind(&self) -> &'static str {
        self.picker_kind
    }

    /// The weights as configured: generation 0.
    #[must_use]
    pub fn weights(&self) -> PolicyWeights {
        PolicyWeights { generation: Generation(0), values: self.terms.iter().map(|term| term.weight.init).collect() }
    }
}

/// Unit of a policy's costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyUnit {
    /// Not stated.
    Unstated,
    /// Mixed units, on purpose.
    Raw,
    /// Milliseconds, checked.
    Millis,
}

/// One term of a policy.
#[derive(Debug)]
pub struct PolicyTerm {
    /// Name, unique in the policy.
    pub name: Arc<str>,
    /// Kind.
    pub kind: &'static str,
    /// The unit of its signal as weighted and stored: `ms` where a rate is applied, else the kind's.
    pub unit: Unit,
    /// Weight as configured.
    pub weight: TermWeight,
    /// Replacement for an unknown signal.
    pub unknown: UnknownFallback,
    /// SHA-256 of the library, hexadecimal, where the term is a plugin.
    pub plugin_sha256: Option<Arc<str>>,
    cost_term: Box<dyn CostTerm>,
}

/// Replacement for an unknown signal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum UnknownFallback {
    /// The most expensive known signal among the available candidates: the largest, or under a negative weight the
    /// smallest. 0 where none is known.
    Worst,
    /// This number, in the unit of the stored signal.
    Value(f64),
}

/// One constraint of a policy.
#[derive(Debug)]
pub struct PolicyConstraint {
    /// Name, as stored in `candidates.excluded_by`.
    pub name: Arc<str>,
    /// The same for a candidate that was let back in because none was left.
    pub relaxed_name: Arc<str>,
    /// True if it is never relaxed.
    pub hard: bool,
    /// SHA-256 of the library, hexadecimal, where the constraint is a plugin.
    pub plugin_sha256: Option<Arc<str>>,
    /// Position of its window in [`PolicySet::windows`]; 0 if it has none.
    pub window: usize,
    constraint: Box<dyn Constraint>,
}

/// Prefix of [`PolicyConstraint::relaxed_name`].
pub const RELAXED: &str = "relaxed:";
