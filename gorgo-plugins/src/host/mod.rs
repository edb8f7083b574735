//! Loads plugins: file → bytes → library → descriptor → instance → a term, a constraint or an objective of a policy.
//!
//! [`Host`] is the loader that the program gives to the router's registry of kinds. Faults of files and options show
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

use gorgo_routing::model::{Candidates, Params, PluginCount, Replica, RequestView};
use gorgo_routing::policy::{LoadedConstraint, LoadedObjective, LoadedTerm, Loader};
use gorgo_routing::tune::Requests;
use parking_lot::Mutex;

use self::constraint::PluginConstraint;
pub use self::descriptor::{About, AskedFacts, Spec};
pub use self::error::PluginError;
use self::instance::{Instance, Judging};
pub use self::kit::{KIT, TEMPLATES, Template};
use self::library::{Image, Library};
use self::objective::{Measuring, PluginObjective};
use self::term::PluginTerm;
pub use self::trial::Trial;
pub use self::watch::Conduct;
use self::watch::{News, Watch};
use crate::abi::{self, CONSTRAINT_SYMBOL, SCORER_SYMBOL, flag};

/// Loads the plugins of one configuration.
#[derive(Debug)]
pub struct Host {
    base: PathBuf,
    trial: Option<Trial>,
    conduct: Conduct,
    news: Arc<News>,
    /// By hash: terms of the same build share a library, in this configuration and in earlier ones.
    libraries: Arc<Mutex<HashMap<Arc<str>, Arc<Library>>>>,
    loaded: Mutex<Vec<Use>>,
}

/// One use of a plugin in the policies.
#[derive(Debug, Clone)]
pub struct Use {
    /// The file.
    pub path: PathBuf,
    /// SHA-256 of the file, hexadecimal.
    pub sha256: Arc<str>,
    /// `term`, `constraint` or `objective`.
    pub family: &'static str,
    /// Description in the plugin's descriptor.
    pub about: Arc<About>,
    called: Called,
}

/// Instance of a plugin that is called.
#[derive(Debug, Clone)]
enum Called {
    Judging(Arc<Judging>),
    Measuring(Arc<Measuring>),
}

impl Use {
    /// Mean time of `calls` calls, µs, which are not counted in [`Use::count`]. Terms and constraints judge these facts,
    /// an objective measures `cohort`.
    #[must_use]
    pub fn micros_per_call(&self, request: &RequestView, facts: &Candidates, cohort: &Requests, calls: u32) -> f64 {
        match &self.called {
            Called::Judging(judging) => judging.micros_per_call(request, facts, calls),
            Called::Measuring(measuring) => measuring.micros_per_call(cohort, calls),
        }
    }

    /// Returns how often it was called, failed and was slow.
    #[must_use]
    pub fn count(&self) -> PluginCount {
        match &self.called {
            Called::Judging(judging) => judging.watch.count(),
            Called::Measuring(measuring) => measuring.count(),
        }
    }
}

impl Host {
    /// Makes a loader of plugins relative to the folder `base`. `trial`: the program that loads each for trial first.
    #[must_use]
    pub fn new(base: &Path, trial: Option<Trial>, conduct: Conduct) -> Self {
        Self {
            base: base.to_owned(),
            trial,
            conduct,
            news: Arc::default(),
            libraries: Arc::default(),
            loaded: Mutex::default(),
        }
    }

    /// Returns a host for the same configuration after a reload: a build that is already loaded is reused, a new one is
    /// loaded beside it, and none is ever unloaded.
    #[must_use]
    pub fn again(&self) -> Self {
        Self {
            base: self.base.clone(),
            trial: self.trial.clone(),
            conduct: self.conduct,
            news: Arc::clone(&self.news),
            libraries: Arc::clone(&self.libraries),
            loaded: Mutex::default(),
        }
    }

    /// Returns the loaded plugins, in the order of the policies.
    #[must_use]
    pub fn loaded(&self) -> Vec<Use> {
        self.loaded.lock().clone()
    }

    fn library(&self, path: &Path, pinned: Option<&str>) -> Result<Arc<Library>, PluginError> {
        let image = Image::read(path, pinned)?;
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
    fn measuring(&self, params: &Params) -> Result<(Use, Arc<Measuring>), PluginError> {
        let path = self.base.join(params.text("library").ok_or(PluginError::NoLibrary)?);
        let library = self.library(&path, params.text("sha256"))?;
        let (about, functions) = library.objective()?;
        let settings = options::settings(&about.options, params.table("options"))?;
        // An objective sees cohorts and never replicas, so its fleet is empty.
        let instance = Instance::create(&about.name, &functions, &[], &settings)?;
        let measuring = Arc::new(Measuring::new(instance, functions.call, self.watch(&about.name, params)));
        let using = Use {
            path,
            sha256: Arc::clone(&library.sha256),
            family: "objective",
            about: Arc::new(about),
            called: Called::Measuring(Arc::clone(&measuring)),
        };
        self.loaded.lock().push(using.clone());
        Ok((using, measuring))
    }

    fn watch(&self, plugin: &str, params: &Params) -> Watch {
        let budget_us = params.number("budget_us").unwrap_or(f64::INFINITY);
        Watch::new(Arc::from(plugin), budget_us, self.conduct, Arc::clone(&self.news))
    }

    /// Loads the term or the constraint that a table configures; `symbol` says which.
    fn used(
        &self,
        params: &Params,
        fleet: &[Replica],
        symbol: &'static str,
    ) -> Result<(Use, Arc<Judging>), PluginError> {
        let path = self.base.join(params.text("library").ok_or(PluginError::NoLibrary)?);
        let library = self.library(&path, params.text("sha256"))?;
        let (about, functions) = library.judge(symbol)?;
        let settings = options::settings(&about.options, params.table("options"))?;
        let instance = Instance::create(&about.name, &functions, fleet, &settings)?;
        let watch = self.watch(&about.name, params);
        // Infinity is an answer of constraints only: a cost must stay finite to be compared.
        let is_term = symbol == SCORER_SYMBOL;
        let judging = Arc::new(Judging::new(instance, functions.call, about.asks.clone(), !is_term, watch));
        let using = Use {
            path,
            sha256: Arc::clone(&library.sha256),
            family: if is_term { "term" } else { "constraint" },
            about: Arc::new(about),
            called: Called::Judging(Arc::clone(&judging)),
        };
        self.loaded.lock().push(using.clone());
        Ok((using, judging))
    }
}

fn indispensable(params: &Params) -> bool {
    params.text("on_fault") == Some("refuse")
}

impl Loader for Host {
    fn term(&self, params: &Params, fleet: &[Replica]) -> Result<LoadedTerm, String> {
        let (Use { about, sha256, .. }, judging) =
            self.used(params, fleet, SCORER_SYMBOL).map_err(|cause| cause.to_string())?;
        Ok(LoadedTerm {
            name: Arc::from(&*about.name),
            unit: about.unit,
            spreads: about.flags & flag::SPREADS != 0,
            sha256,
            signal: Box::new(PluginTerm { judging, indispensable: indispensable(params) }),
        })
    }

    fn constraint(&self, params: &Params, fleet: &[Replica]) -> Result<LoadedConstraint, String> {
        let (Use { about, sha256, .. }, judging) =
            self.used(params, fleet, CONSTRAINT_SYMBOL).map_err(|cause| cause.to_string())?;
        Ok(LoadedConstraint {
            name: Arc::from(&*about.name),
            hard: about.flags & flag::HARD != 0,
            sha256: Some(sha256),
            limit: Box::new(PluginConstraint { judging, indispensable: indispensable(params) }),
        })
    }

    fn objective(&self, params: &Params) -> Result<LoadedObjective, String> {
        let (Use { sha256, .. }, measuring) = self.measuring(params).map_err(|cause| cause.to_string())?;
        Ok(LoadedObjective { sha256, objective: Box::new(PluginObjective(measuring)) })
    }

    fn take_news(&self) -> Vec<String> {
        self.news.take()
    }

    fn counts(&self) -> Vec<PluginCount> {
        // Several uses of one plugin are added up: they would be one series of metrics with the same labels.
        let mut counts: Vec<PluginCount> = Vec::new();
        for count in self.loaded.lock().iter().map(Use::count) {
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
pub fn inspect(path: &Path) -> Result<Vec<(&'static str, About)>, PluginError> {
    let library = Image::read(path, None)?.bind()?;
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
