//! A configuration file → a checked configuration and its policies. `check` prints exactly the configuration that
//! `serve` starts with, because both get it here.

use std::ffi::OsString;
use std::path::Path;

use gorgo_lab::sim::EngineProfile;
use gorgo_observe::log;
use gorgo_routing::config::{self, Config, ConfigInputs, ConfigOrigins, ConfigOverride, KnownNames};
use gorgo_routing::model::{ConfigFault, ConfigFaults, ConfigValue, KindDoc, Severity};
use gorgo_routing::policy::{KindRegistry, PRESETS, PolicySet, build, preset};

/// Result of loading a file.
#[derive(Debug)]
pub struct ConfigLoadResult {
    /// Configuration and policies; `None` if there is any fault that is not a warning.
    pub ready: Option<(Config, PolicySet)>,
    /// All findings.
    pub faults: ConfigFaults,
    /// The file, and the origin of each value.
    pub origins: ConfigOrigins,
}

impl ConfigLoadResult {
    /// The warnings alone.
    pub fn warnings(&self) -> impl Iterator<Item = &ConfigFault> {
        self.faults.list.iter().filter(|fault| fault.severity == Severity::Warning)
    }
}

/// Reads, merges and checks `path`, and builds all its policies.
#[must_use]
pub fn load(
    path: &Path,
    environment: &[(OsString, OsString)],
    settings: &[ConfigOverride],
    registry: &KindRegistry,
) -> ConfigLoadResult {
    let presets: Vec<(String, ConfigValue)> = PRESETS
        .iter()
        .filter_map(|known| preset(known.name).ok().map(|table| (known.name.to_owned(), table)))
        .collect();
    let profiles: Vec<&str> = EngineProfile::names().collect();
    let kinds: Vec<KindDoc> = registry.kind_docs().collect();
    let known = KnownNames { presets: &presets, profiles: &profiles, kinds: &kinds };
    let loaded = config::read(path, ConfigInputs { environment, overrides: settings, known });
    let mut faults = loaded.faults;
    let draft = loaded.policy_inputs;
    // A file that cannot be read at all yields no draft; building would only add faults about missing policies.
    let policies = if draft.fleet.is_empty() && faults.has_faults() {
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
        faults.push_fault("log.filter", cause);
    }
    let ready = if faults.has_faults() { None } else { loaded.config.zip(policies) };
    ConfigLoadResult { ready, faults, origins: loaded.origins }
}
