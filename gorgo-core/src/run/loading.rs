//! A configuration file → a checked configuration and its policies. `check` prints exactly the configuration that
//! `serve` starts with, because both get it here.

use std::ffi::OsString;
use std::path::Path;

use gorgo_lab::sim::Profile;
use gorgo_observe::log;
use gorgo_routing::config::{self, Config, Inputs, Known, Origins, Setting};
use gorgo_routing::model::{Fault, Faults, KindDoc, Severity, Value};
use gorgo_routing::policy::{PRESETS, Policies, Registry, build, preset};

/// Result of loading a file.
#[derive(Debug)]
pub struct Loading {
    /// Configuration and policies; `None` if there is any fault that is not a warning.
    pub ready: Option<(Config, Policies)>,
    /// All findings.
    pub faults: Faults,
    /// The file, and the origin of each value.
    pub origins: Origins,
}

impl Loading {
    /// The warnings alone.
    pub fn warnings(&self) -> impl Iterator<Item = &Fault> {
        self.faults.list.iter().filter(|fault| fault.severity == Severity::Warning)
    }
}

/// Reads, merges and checks `path`, and builds all its policies.
#[must_use]
pub fn load(path: &Path, environment: &[(OsString, OsString)], settings: &[Setting], registry: &Registry) -> Loading {
    let presets: Vec<(String, Value)> = PRESETS
        .iter()
        .filter_map(|known| preset(known.name).ok().map(|table| (known.name.to_owned(), table)))
        .collect();
    let profiles: Vec<&str> = Profile::names().collect();
    let kinds: Vec<KindDoc> = registry.rows().collect();
    let known = Known { presets: &presets, profiles: &profiles, kinds: &kinds };
    let loaded = config::read(path, Inputs { environment, settings, known });
    let mut faults = loaded.faults;
    let draft = loaded.draft;
    // A file that cannot be read at all yields no draft; building would only add faults about missing policies.
    let policies = if draft.fleet.is_empty() && faults.any() {
        None
    } else {
        let checked = build(registry, &draft.policies, &draft.default_policy, &draft.fleet);
        // `config::read` and `build` both check it, since each can be used without the other: report it once.
        let told = faults.list.iter().any(|fault| fault.path == "default_policy");
        let news = checked.faults.list.into_iter().filter(|fault| !(told && fault.path == "default_policy"));
        faults.list.extend(news);
        checked.policies
    };
    // Checked here because the configuration crate does not depend on the logging one.
    if let Some(config) = &loaded.config
        && let Err(cause) = log::check_filter(&config.log.filter)
    {
        faults.fault("log.filter", cause);
    }
    let ready = if faults.any() { None } else { loaded.config.zip(policies) };
    Loading { ready, faults, origins: loaded.origins }
}
