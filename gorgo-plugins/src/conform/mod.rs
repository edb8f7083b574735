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

use gorgo_routing::model::ConfigValue;

pub use self::facts::{candidates, cohort, fleet, request};
use self::subject::{JudgeSubject, ObjectiveSubject};
use crate::abi::OBJECTIVE_SYMBOL;
use crate::host::library::LibraryImage;
use crate::host::{PluginError, PluginInfo, options};

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckVerdict {
    /// The plugin conforms to the contract; the text says what was observed.
    Passed(String),
    /// The plugin violates the contract; the text says how.
    Failed(String),
}

/// The checks of one symbol of a library.
#[derive(Debug, Clone, PartialEq)]
pub struct SymbolReport {
    /// The exported symbol.
    pub symbol: &'static str,
    /// Description in the plugin's descriptor.
    pub plugin: PluginInfo,
    /// Results: name of the check → verdict.
    pub results: Vec<(&'static str, CheckVerdict)>,
}

impl SymbolReport {
    /// Returns whether all checks passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.results.iter().all(|(_, verdict)| matches!(verdict, CheckVerdict::Passed(_)))
    }
}

/// A check: its name and its function, which returns what it observed or what is wrong.
type ConformanceCheck<S> = (&'static str, fn(&S) -> Result<String, String>);

/// The checks of scorers and constraints, in order.
const CHECKS: &[ConformanceCheck<JudgeSubject>] = &[
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
const OBJECTIVE_CHECKS: &[ConformanceCheck<ObjectiveSubject>] = &[("cohorts", objective::check)];

/// Runs all checks on each symbol of the library at `path`, with these options or, without any, with the defaults and the
/// smallest valid values of required options. `began` receives each check's name before it runs, so that a check that
/// ends the process is known.
///
/// # Errors
/// Says why the library cannot be loaded, or why it refuses the options.
pub fn check(
    path: &Path,
    given: Option<&ConfigValue>,
    mut began: impl FnMut(&str),
) -> Result<Vec<SymbolReport>, PluginError> {
    began("load");
    let library = LibraryImage::read(path, None)?.bind()?;
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
            let subject = ObjectiveSubject::new(about, functions, &settings)?;
            SymbolReport { symbol, results: all(OBJECTIVE_CHECKS, &subject, &mut began), plugin: subject.about }
        } else {
            let (about, functions) = library.judge(symbol)?;
            let settings = settings(&about, given)?;
            let subject = JudgeSubject::new(symbol, about, functions, settings)?;
            SymbolReport { symbol, results: all(CHECKS, &subject, &mut began), plugin: subject.about }
        };
        reports.push(report);
    }
    Ok(reports)
}

fn all<S>(
    checks: &[ConformanceCheck<S>],
    subject: &S,
    began: &mut impl FnMut(&str),
) -> Vec<(&'static str, CheckVerdict)> {
    let run = |(name, check): &ConformanceCheck<S>| {
        // Before the check: if it ends the process, its name is the last line of the output.
        began(name);
        (*name, check(subject).map_or_else(CheckVerdict::Failed, CheckVerdict::Passed))
    };
    checks.iter().map(run).collect()
}

/// Returns the settings to check with.
fn settings(about: &PluginInfo, given: Option<&ConfigValue>) -> Result<Vec<options::OptionSetting>, PluginError> {
    let least: Vec<(String, ConfigValue)> = about
        .options
        .iter()
        .filter(|spec| spec.required())
        .map(|spec| {
            let value = match spec.kind {
                crate::abi::kind::NUMBER => ConfigValue::Float(spec.min),
                crate::abi::kind::NUMBERS => ConfigValue::Table(Vec::new()),
                crate::abi::kind::TEXTS => ConfigValue::List(Vec::new()),
                crate::abi::kind::BOOL => ConfigValue::Bool(false),
                _ => ConfigValue::Text(String::new()),
            };
            (spec.name.clone(), value)
        })
        .collect();
    options::settings(&about.options, Some(given.unwrap_or(&ConfigValue::Table(least))))
}
