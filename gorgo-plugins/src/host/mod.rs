//! Loads plugins: file → bytes → library → descriptor → instance → a term, a constraint or an objective of a policy.
//!
//! [`PluginHost`] is the loader that the program gives to the router's registry of kinds. Faults of files and options show
//! while policies are built; failures of later calls are counted by `watch`, reported as an event, and never end a
//! request by themselves.

pub(crate) mod clock;
pub(crate) mod columns;
mod constraint;
pub(crate) mod descriptor;
mod error;
pub(crate) mod instance;
mod kit;
pub(crate) mod library;
mod objective;
pub(crate) mod options;
mod term;
mod trial;
pub(crate) mod watch;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gorgo_routing::model::{Candidates, ParamValues, PluginCounts, Replica, RequestView};
use gorgo_routing::policy::{LoadedConstraint, LoadedObjective, LoadedTerm, PluginLoader};
use gorgo_routing::tune::RequestColumns;
use parking_lot::Mutex;

use self::constraint::PluginConstraint;
pub use self::descriptor::{AskedFacts, DeclaredOption, PluginInfo};
pub use self::error::PluginError;
use self::instance::{JudgeInstance, PluginInstance};
pub use self::kit::{KIT, PluginTemplate, TEMPLATES};
use self::library::{LibraryImage, PluginLibrary};
use self::objective::{ObjectiveInstance, PluginObjective};
use self::term::PluginTerm;
pub use self::trial::TrialLoader;
pub use self::watch::QuarantineMode;
use self::watch::{OperatorMessages, PluginWatch};
use crate::abi::{self, CONSTRAINT_SYMBOL, SCORER_SYMBOL, flag};

/// Loads the plugins of one configuration.
#[derive(Debug)]
pub struct PluginHost {
    base: PathBuf,
    trial: Option<TrialLoader>,
    quarantine_mode: QuarantineMode,
    messages: Arc<OperatorMessages>,
    /// By hash: terms of the same build share a library, in this configuration and in earlier ones.
    libraries: Arc<Mutex<HashMap<Arc<str>, Arc<PluginLibrary>>>>,
    loaded: Mutex<Vec<PluginUse>>,
}

/// One use of a plugin in the policies.
#[derive(Debug, Clone)]
pub struct PluginUse {
    /// The file.
    pub path: PathBuf,
    /// SHA-256 of the file, hexadecimal.
    pub sha256: Arc<str>,
    /// `term`, `constraint` or `objective`.
    pub family: &'static str,
    /// Description in the plugin's descriptor.
    pub about: Arc<PluginInfo>,
    called: PluginCall,
}

/// Instance of a plugin that is called.
#[derive(Debug, Clone)]
enum PluginCall {
    Judging(Arc<JudgeInstance>),
    Measuring(Arc<ObjectiveInstance>),
}

impl PluginUse {
    /// Mean time of `calls` calls, µs, which are not counted in [`PluginUse::count`]. Terms and constraints judge these facts,
    /// an objective measures `cohort`.
    #[must_use]
    pub fn micros_per_call(
        &self,
        request: &RequestView,
        facts: &Candidates,
        cohort: &RequestColumns,
        calls: u32,
    ) -> f64 {
        match &self.called {
            PluginCall::Judging(judging) => judging.micros_per_call(request, facts, calls),
            PluginCall::Measuring(measuring) => measuring.micros_per_call(cohort, calls),
        }
    }

    /// Returns how often it was called, failed and was slow.
    #[must_use]
    pub fn count(&self) -> PluginCounts {
        match &self.called {
            PluginCall::Judging(judging) => judging.watch.count(),
            PluginCall::Measuring(measuring) => measuring.count(),
        }
    }
}

impl PluginHost {
    /// Makes a loader of plugins relative to the folder `base`. `trial`: the program that loads each for trial first.
    #[must_use]
    pub fn new(base: &Path, trial: Option<TrialLoader>, conduct: QuarantineMode) -> Self {
        Self {
            base: base.to_owned(),
            trial,
            quarantine_mode: conduct,
            messages: Arc::default(),
            libraries: Arc::default(),
            loaded: Mutex::default(),
        }
    }

    /// Returns a host for the same configuration after a reload: a build that is already loaded is reused, a new one is
    /// loaded beside it, and none is ever unloaded.
    #[must_use]
    pub fn for_reload(&self) -> Self {
        Self {
            base: self.base.clone(),
            trial: self.trial.clone(),
            quarantine_mode: self.quarantine_mode,
            messages: Arc::clone(&self.messages),
            libraries: Arc::clone(&self.libraries),
            loaded: Mutex::default(),
        }
    }

    /// Returns the loaded plugins, in the order of the policies.
    #[must_use]
    pub fn loaded(&self) -> Vec<PluginUse> {
        self.loaded.lock().clone()
    }

    fn library(&self, path: &Path, pinned: Option<&str>) -> Result<Arc<PluginLibrary>, PluginError> {
        let image = LibraryImage::read(path, pinned)?;
        // Held until the library is in the map, so that no build is loaded twice.
        let mut libraries = self.libraries.lock();
        // By content: a file that was overwritten with the same build is not loaded again.
        if let Some(library) = libraries.get(&image.sha256) {
            return Ok(Arc::clone(library));
        }
        // Before `bind`, which runs the library's initialisers in this process.
        if let Some(trial) = &self.trial {
            trial.run(path)?;
        }
        let library = Arc::new(image.bind()?);
        libraries.insert(Arc::clone(&library.sha256), Arc::clone(&library));
        Ok(library)
    }

    /// Loads the objective that a table configures.
    fn load_objective(&self, params: &ParamValues) -> Result<(PluginUse, Arc<ObjectiveInstance>), PluginError> {
        let path = self.base.join(params.text("library").ok_or(PluginError::NoLibrary)?);
        let library = self.library(&path, params.text("sha256"))?;
        let (about, functions) = library.objective()?;
        let settings = options::settings(&about.options, params.table("options"))?;
        // An objective sees cohorts and never replicas, so its fleet is empty.
        let instance = PluginInstance::create(&about.name, &functions, &[], &settings)?;
        let measuring = Arc::new(ObjectiveInstance::new(instance, functions.call, self.watch(&about.name, params)));
        let using = PluginUse {
            path,
            sha256: Arc::clone(&library.sha256),
            family: "objective",
            about: Arc::new(about),
            called: PluginCall::Measuring(Arc::clone(&measuring)),
        };
        self.loaded.lock().push(using.clone());
        Ok((using, measuring))
    }

    fn watch(&self, plugin: &str, params: &ParamValues) -> PluginWatch {
        let budget_us = params.number("budget_us").unwrap_or(f64::INFINITY);
        PluginWatch::new(Arc::from(plugin), budget_us, self.quarantine_mode, Arc::clone(&self.messages))
    }

    /// Loads the term or the constraint that a table configures; `symbol` says which.
    fn load_judge(
        &self,
        params: &ParamValues,
        fleet: &[Replica],
        symbol: &'static str,
    ) -> Result<(PluginUse, Arc<JudgeInstance>), PluginError> {
        let path = self.base.join(params.text("library").ok_or(PluginError::NoLibrary)?);
        let library = self.library(&path, params.text("sha256"))?;
        let (about, functions) = library.judge(symbol)?;
        let settings = options::settings(&about.options, params.table("options"))?;
        let instance = PluginInstance::create(&about.name, &functions, fleet, &settings)?;
        let watch = self.watch(&about.name, params);
        // Infinity is an answer of constraints only: a cost must stay finite to be compared.
        let is_term = symbol == SCORER_SYMBOL;
        let judging = Arc::new(JudgeInstance::new(instance, functions.call, about.asks.clone(), !is_term, watch));
        let using = PluginUse {
            path,
            sha256: Arc::clone(&library.sha256),
            family: if is_term { "term" } else { "constraint" },
            about: Arc::new(about),
            called: PluginCall::Judging(Arc::clone(&judging)),
        };
        self.loaded.lock().push(using.clone());
        Ok((using, judging))
    }
}

fn refuses_on_fault(params: &ParamValues) -> bool {
    params.text("on_fault") == Some("refuse")
}

impl PluginLoader for PluginHost {
    fn term(&self, params: &ParamValues, fleet: &[Replica]) -> Result<LoadedTerm, String> {
        let (PluginUse { about, sha256, .. }, judging) =
            self.load_judge(params, fleet, SCORER_SYMBOL).map_err(|cause| cause.to_string())?;
        Ok(LoadedTerm {
            name: Arc::from(&*about.name),
            unit: about.unit,
            spreads: about.flags & flag::SPREADS != 0,
            sha256,
            term: Box::new(PluginTerm { judging, refuse_on_fault: refuses_on_fault(params) }),
        })
    }

    fn constraint(&self, params: &ParamValues, fleet: &[Replica]) -> Result<LoadedConstraint, String> {
        let (PluginUse { about, sha256, .. }, judging) =
            self.load_judge(params, fleet, CONSTRAINT_SYMBOL).map_err(|cause| cause.to_string())?;
        Ok(LoadedConstraint {
            name: Arc::from(&*about.name),
            hard: about.flags & flag::HARD != 0,
            sha256: Some(sha256),
            constraint: Box::new(PluginConstraint { judging, refuse_on_fault: refuses_on_fault(params) }),
        })
    }

    fn objective(&self, params: &ParamValues) -> Result<LoadedObjective, String> {
        let (PluginUse { sha256, .. }, measuring) = self.load_objective(params).map_err(|cause| cause.to_string())?;
        Ok(LoadedObjective { sha256, objective: Box::new(PluginObjective(measuring)) })
    }

    fn take_messages(&self) -> Vec<String> {
        self.messages.take()
    }

    fn counts(&self) -> Vec<PluginCounts> {
        // Several uses of one plugin are added up: they would be one series of metrics with the same labels.
        let mut counts: Vec<PluginCounts> = Vec::new();
        for count in self.loaded.lock().iter().map(PluginUse::count) {
            match counts.iter_mut().find(|known| known.plugin == count.plugin) {
                None => counts.push(count),
                Some(known) => {
                    known.calls += count.calls;
                    known.failures += count.failures;
                    known.over_budget += count.over_budget;
                    known.seconds += count.seconds;
                    known.quarantined |= count.quarantined;
                }
            }
        }
        counts
    }
}

/// Loads a library the way a trial does: binds it and reads all that it exports.
///
/// # Errors
/// Says why it cannot be used.
pub fn inspect(path: &Path) -> Result<Vec<(&'static str, PluginInfo)>, PluginError> {
    let library = LibraryImage::read(path, None)?.bind()?;
    let mut found = Vec::new();
    for symbol in library.symbols() {
        let about = if symbol == abi::OBJECTIVE_SYMBOL { library.objective()?.0 } else { library.judge(symbol)?.0 };
        found.push((symbol, about));
    }
    if found.is_empty() {
        return Err(PluginError::Symbol { path: path.to_owned(), symbol: SCORER_SYMBOL, has: Vec::new() });
    }
    Ok(found)
}
