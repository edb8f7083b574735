//! The conformance kit: checks a library against the contract. One file per check.
//!
//! The checks run in a separate process (`gorgo plugin check` starts one), since a bad plugin may end it.

mod bad_options;
mod descriptor;
mod error_room;
mod extreme;
mod facts;
mod no_replica;
mod objective;
mod one_replica;
mod permuted;
mod repeated;
mod sizes;
mod subject;
mod ties;
mod time;

use std::path::Path;

use gorgo_routing::model::Value;

pub use self::facts::{cohort, fleet, invented, request};
use self::subject::{Measured, Subject};
use crate::abi::OBJECTIVE_SYMBOL;
use crate::host::library::Image;
use crate::host::{About, PluginError, options};

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The plugin conforms to the contract; the text says what was observed.
    Right(String),
    /// The plugin violates the contract; the text says how.
    Wrong(String),
}

/// The checks of one symbol of a library.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The exported symbol.
    pub symbol: &'static str,
    /// Description in the plugin's descriptor.
    pub about: About,
    /// Results: name of the check → verdict.
    pub found: Vec<(&'static str, Verdict)>,
}

impl Report {
    /// Returns whether all checks passed.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.found.iter().all(|(_, verdict)| matches!(verdict, Verdict::Right(_)))
    }
}

/// A check: its name and its function, which returns what it observed or what is wrong.
type Check<S> = (&'static str, fn(&S) -> Result<String, String>);

/// The checks of scorers and constraints, in order.
const CHECKS: &[Check<Subject>] = &[
    ("descriptor", descriptor::check),
    ("no replica", no_replica::check),
    ("one replica", one_replica::check),
    ("ties", ties::check),
    ("permuted rows", permuted::check),
    ("same input twice", repeated::check),
    ("extreme values", extreme::check),
    ("short and long structs", sizes::check),
    ("bad options", bad_options::check),
    ("no room for an error", error_room::check),
    ("time per call", time::check),
];

/// The checks of objectives.
const OBJECTIVE_CHECKS: &[Check<Measured>] = &[("cohorts", objective::check)];

/// Runs all checks on each symbol of the library at `path`, with these options or, without any, with the defaults and the
/// smallest valid values of required options. `began` receives each check's name before it runs, so that a check that
/// ends the process is known.
///
/// # Errors
/// Says why the library cannot be loaded, or why it refuses the options.
pub fn check(path: &Path, given: Option<&Value>, mut began: impl FnMut(&str)) -> Result<Vec<Report>, PluginError> {
    began("load");
    let library = Image::read(path, None)?.bind()?;
    let symbols = library.symbols();
    // `inspect` returns the error of a library that exports nothing.
    if symbols.is_empty() {
        crate::host::inspect(path)?;
    }
    let mut reports = Vec::new();
    for symbol in symbols {
        let report = if symbol == OBJECTIVE_SYMBOL {
            let (about, functions) = library.objective()?;
            let settings = settings(&about, given)?;
            let subject = Measured::new(about, functions, &settings)?;
            Report { symbol, found: all(OBJECTIVE_CHECKS, &subject, &mut began), about: subject.about }
        } else {
            let (about, functions) = library.judge(symbol)?;
            let settings = settings(&about, given)?;
            let subject = Subject::new(symbol, about, functions, settings)?;
            Report { symbol, found: all(CHECKS, &subject, &mut began), about: subject.about }
        };
        reports.push(report);
    }
    Ok(reports)
}

fn all<S>(checks: &[Check<S>], subject: &S, began: &mut impl FnMut(&str)) -> Vec<(&'static str, Verdict)> {
    let run = |(name, check): &Check<S>| {
        // Before the check: if it ends the process, its name is the last line of the output.
        began(name);
        (*name, check(subject).map_or_else(Verdict::Wrong, Verdict::Right))
    };
    checks.iter().map(run).collect()
}

/// Returns the settings to check with.
fn settings(about: &About, given: Option<&Value>) -> Result<Vec<options::Set>, PluginError> {
    let least: Vec<(String, Value)> = about
        .options
        .iter()
        .filter(|spec| spec.required())
        .map(|spec| {
            let value = match spec.kind {
                crate::abi::kind::NUMBER => Value::Float(spec.min),
                crate::abi::kind::NUMBERS => Value::Table(Vec::new()),
                crate::abi::kind::TEXTS => Value::List(Vec::new()),
                crate::abi::kind::BOOL => Value::Bool(false),
                _ => Value::Text(String::new()),
            };
            (spec.name.clone(), value)
        })
        .collect();
    options::settings(&about.options, Some(given.unwrap_or(&Value::Table(least))))
}
