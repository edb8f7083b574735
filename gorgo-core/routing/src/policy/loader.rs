//! The kind `plugin`: terms, constraints and objectives that are not compiled in. The loader is passed to the registry;
//! this module does not know how it works.

use std::fmt::Debug;
use std::sync::Arc;

use crate::constrain::{Constraint, ConstraintKind};
use crate::model::{ParamSpec, ParamType, ParamValues, PluginCounts, Replica, Unit};
use crate::score::{CostTerm, TermKind};
use crate::tune::{Objective, ObjectiveKind};

/// Makes terms, constraints and objectives from libraries. Called while policies are built, at `check` and at start.
pub trait PluginLoader: Debug + Send + Sync {
    /// The term that a table with `kind = "plugin"` describes.
    ///
    /// # Errors
    /// The mistake in the file or in its options, for the reader of the configuration.
    fn term(&self, params: &ParamValues, fleet: &[Replica]) -> Result<LoadedTerm, String>;

    /// The constraint that a table `constraint.plugin` describes.
    ///
    /// # Errors
    /// As for a term.
    fn constraint(&self, params: &ParamValues, fleet: &[Replica]) -> Result<LoadedConstraint, String>;

    /// The objective that a table `tune.objective` with `kind = "plugin"` describes.
    ///
    /// # Errors
    /// As for a term.
    fn objective(&self, params: &ParamValues) -> Result<LoadedObjective, String>;

    /// Messages about plugins since the last call, for operators. Never called while a decision is made.
    fn take_messages(&self) -> Vec<String>;

    /// The counts of each plugin that was loaded, since its start.
    fn counts(&self) -> Vec<PluginCounts>;
}

/// A term that was loaded.
#[derive(Debug)]
pub struct LoadedTerm {
    /// The plugin's name: the term's name if the policy states none.
    pub name: Arc<str>,
    /// The unit of its signal, as the plugin declares it.
    pub unit: Unit,
    /// True if its signal rises with the work a replica was given, as the plugin declares it.
    pub spreads: bool,
    /// SHA-256 of the library, hexadecimal.
    pub sha256: Arc<str>,
    /// The term.
    pub term: Box<dyn CostTerm>,
}

/// A constraint that was loaded.
#[derive(Debug)]
pub struct LoadedConstraint {
    /// The plugin's name, which is the constraint's name in the history.
    pub name: Arc<str>,
    /// True if it is never relaxed, as the plugin declares it.
    pub hard: bool,
    /// SHA-256 of the library, hexadecimal; `None` for a constraint that is built in.
    pub sha256: Option<Arc<str>>,
    /// The constraint.
    pub constraint: Box<dyn Constraint>,
}

/// An objective that was loaded.
#[derive(Debug)]
pub struct LoadedObjective {
    /// SHA-256 of the library, hexadecimal.
    pub sha256: Arc<str>,
    /// The objective.
    pub objective: Box<dyn Objective>,
}

/// Unit of a kind whose plugin declares the unit.
pub(super) const DECLARED: &str = "the plugin's";

const LIBRARY: ParamSpec = ParamSpec {
    name: "library",
    ty: ParamType::Text { default: None, choices: &[] },
    unit: "",
    help: "the plugin's file, relative to the configuration file; required",
};

const SHA256: ParamSpec = ParamSpec {
    name: "sha256",
    ty: ParamType::Text { default: None, choices: &[] },
    unit: "",
    help: "SHA-256 of the file; a file with another hash is refused",
};

const OPTIONS: ParamSpec =
    ParamSpec { name: "options", ty: ParamType::Table, unit: "", help: "options that the plugin declares" };

const fn budget_us(default: f64, help: &'static str) -> ParamSpec {
    let ty = ParamType::Number { default: Some(default), min: 1.0, max: 1e6 };
    ParamSpec { name: "budget_us", ty, unit: "µs of thread time a call", help }
}

/// Keys of plugins that take part in decisions.
const PARAMS: &[ParamSpec] = &[
    LIBRARY,
    SHA256,
    ParamSpec {
        name: "on_fault",
        ty: ParamType::Text { default: Some("drop-term"), choices: &["drop-term", "refuse"] },
        unit: "",
        help: "when the plugin is quarantined: decide without it, or refuse requests with 503",
    },
    budget_us(200.0, "over it in 5 of 100 calls, the plugin is quarantined"),
    OPTIONS,
];

/// Keys of plugins that score arms: a few calls per block of requests, not one per request.
const OBJECTIVE_PARAMS: &[ParamSpec] = &[
    LIBRARY,
    SHA256,
    budget_us(5000.0, "over it in 5 of 100 calls, the plugin is quarantined and tuning stops"),
    OPTIONS,
];

/// The row of plugin terms. [`PluginLoader::term`] replaces its `build`.
pub(super) static PLUGIN_TERM: TermKind = TermKind {
    kind: "plugin",
    unit: None,
    summary: "a signal from a library that is loaded at start",
    spreads: false,
    params: PARAMS,
    build: |_, _| Err("this program loads no plugins".to_owned()),
};

/// The row of plugin constraints. [`PluginLoader::constraint`] replaces its `build`.
pub(super) static PLUGIN_CONSTRAINT: ConstraintKind = ConstraintKind {
    kind: "plugin",
    summary: "a limit from a library that is loaded at start",
    hard: false,
    params: PARAMS,
    build: |_, _| Err("this program loads no plugins".to_owned()),
};

/// The row of plugin objectives. [`PluginLoader::objective`] replaces its `build`.
pub(super) static PLUGIN_OBJECTIVE: ObjectiveKind = ObjectiveKind {
    kind: "plugin",
    unit: DECLARED,
    summary: "a number that a library makes of an arm's requests",
    params: OBJECTIVE_PARAMS,
    build: |_| Err("this program loads no plugins".to_owned()),
};
