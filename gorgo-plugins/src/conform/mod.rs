//! The conformance kit: runs a library through what the contract asks of it. One file per check.
//!
//! It runs in a process of its own (`gorgo plugin check` starts one), since a bad plugin may end it.

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

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// As the contract says, and what was seen.
    Right(String),
    /// Not as the contract says.
    Wrong(String),
}

/// The checks of one symbol of a library.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The symbol.
    pub symbol: &'static str,
    /// What the plugin says of itself.
    pub about: About,
    /// Check → what it found.
    pub found: Vec<(&'static str, Verdict)>,
}

impl Report {
    /// Whether all is as the contract says.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.found.iter().all(|(_, verdict)| matches!(verdict, Verdict::Right(_)))
    }
}

/// A check: its name, and how it is done. It tells what was seen, or what is wrong.
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

/// Runs all checks on each symbol of the library at `path`, with these options or, where there are none, with defaults
/// and the least of what must be given. `began` is told each check's name before it runs, so that one that ends the
/// process is known.
///
/// # Errors
/// Why the library cannot be loaded, or would not take the options.
pub fn check(path: &Path, given: Option<&Value>, mut began: impl FnMut(&str)) -> Result<Vec<Report>, PluginError> {
    began("load");
    let library = Image::read(path, None)?.bind()?;
    let symbols = library.symbols();
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
        began(name);
        (*name, check(subject).map_or_else(Verdict::Wrong, Verdict::Right))
    };
    checks.iter().map(run).collect()
}

/// The settings to check with.
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
