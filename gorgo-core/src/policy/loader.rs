//! The kind `plugin`: terms and constraints that are not compiled in. Who loads them is handed to the registry; nothing
//! here knows how.

use std::fmt::Debug;
use std::sync::Arc;

use crate::constrain::{Constraint, ConstraintKind};
use crate::model::{Param, ParamType, Params, PluginCount, Replica, Unit};
use crate::score::{CostTerm, TermKind};

/// Makes terms and constraints of libraries. Called while policies are built, at `check` and at start.
pub trait Loader: Debug + Send + Sync {
    /// The term that a table with `kind = "plugin"` asks for.
    ///
    /// # Errors
    /// What is wrong with the file or with its options, for the reader of the configuration.
    fn term(&self, params: &Params, fleet: &[Replica]) -> Result<LoadedTerm, String>;

    /// The constraint that a table `constraint.plugin` asks for.
    ///
    /// # Errors
    /// As for a term.
    fn constraint(&self, params: &Params, fleet: &[Replica]) -> Result<LoadedConstraint, String>;

    /// What happened to plugins since the last call and an operator should know. Never called while a decision is made.
    fn take_news(&self) -> Vec<String>;

    /// The counts of each plugin that was loaded, since its start.
    fn counts(&self) -> Vec<PluginCount>;
}

/// A term that was loaded.
#[derive(Debug)]
pub struct LoadedTerm {
    /// The plugin's name: the term's where the policy gives it none.
    pub name: Arc<str>,
    /// The unit of its signal, as the plugin declares it.
    pub unit: Unit,
    /// Whether its signal rises with the work a replica was given, as the plugin declares it.
    pub spreads: bool,
    /// SHA-256 of the library, hexadecimal.
    pub sha256: Arc<str>,
    /// The term.
    pub signal: Box<dyn CostTerm>,
}

/// A constraint that was loaded.
#[derive(Debug)]
pub struct LoadedConstraint {
    /// The plugin's name, which stands for the constraint in the history.
    pub name: Arc<str>,
    /// Whether it is never relaxed, as the plugin declares it.
    pub hard: bool,
    /// The constraint.
    pub limit: Box<dyn Constraint>,
}

/// The unit of a kind whose plugin says what it is.
pub(super) const DECLARED: &str = "the plugin's";

/// Keys of every plugin.
const PARAMS: &[Param] = &[
    Param {
        name: "library",
        ty: ParamType::Text { default: None, choices: &[] },
        unit: "",
        help: "the plugin's file, relative to the configuration file; required",
    },
    Param {
        name: "sha256",
        ty: ParamType::Text { default: None, choices: &[] },
        unit: "",
        help: "refuses any other file than the one of this hash",
    },
    Param {
        name: "on_fault",
        ty: ParamType::Text { default: Some("drop-term"), choices: &["drop-term", "refuse"] },
        unit: "",
        help: "when the plugin is quarantined: decide without it, or refuse requests with 503",
    },
    Param {
        name: "budget_us",
        ty: ParamType::Number { default: Some(200.0), min: 1.0, max: 1e6 },
        unit: "µs of thread time a call",
        help: "over it in 5 of 100 calls, the plugin is quarantined",
    },
    Param { name: "options", ty: ParamType::Table, unit: "", help: "what the plugin itself declares" },
];

/// The row of plugin terms. [`Loader::term`] stands for its `build`.
pub(super) static PLUGIN_TERM: TermKind = TermKind {
    kind: "plugin",
    unit: None,
    summary: "a signal from a library that is loaded at start",
    spreads: false,
    params: PARAMS,
    build: |_, _| Err("this program loads no plugins".to_owned()),
};

/// The row of plugin constraints. [`Loader::constraint`] stands for its `build`.
pub(super) static PLUGIN_CONSTRAINT: ConstraintKind = ConstraintKind {
    kind: "plugin",
    summary: "a limit from a library that is loaded at start",
    hard: false,
    params: PARAMS,
    build: |_, _| Err("this program loads no plugins".to_owned()),
};
