//! Steps from a file to a configuration.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use super::layers::ConfigLayers;
use super::origin::{ConfigOrigins, UNKNOWN_KEY, ValueOrigin};
use super::overrides::{KeySpelling, OverrideContext, UnresolvedKey};
use super::path::{self, PathStep};
use super::sections::{Config, ConfigDocument};
use super::source::{ConfigSource, ParsedSource};
use super::{
    ConfigInputs, KnownNames, LoadedConfig, PolicyInputs, consistency_check, environment, schema, schema_check,
};
use crate::model::{ConfigFaults, ConfigValue};

/// Reads a configuration file. A file that cannot be read is a fault like any other.
#[must_use]
pub fn read(path: &Path, inputs: ConfigInputs<'_>) -> LoadedConfig {
    let name = path.display().to_string();
    let base = path.parent().unwrap_or(Path::new(""));
    let text = match fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes).map_err(|cause| {
            let line = 1 + memchr::memchr_iter(b'\n', &cause.as_bytes()[..cause.utf8_error().valid_up_to()]).count();
            format!("is not UTF-8, starting at line {line} on")
        }),
        Err(cause) => Err(unreadable(path, &cause)),
    };
    match text {
        Ok(text) => load(&name, &text, base, inputs),
        Err(message) => {
            let mut faults = ConfigFaults::default();
            faults.push_fault("", message);
            without_values(ConfigSource::parse(&name, "").source, faults)
        }
    }
}

/// Message for a file that cannot be read. Shows the absolute path: from a relative one it is not clear where a service
/// looked.
fn unreadable(path: &Path, cause: &std::io::Error) -> String {
    let place = std::path::absolute(path).ok().filter(|place| place != path);
    let looked = place.map_or_else(String::new, |place| format!(" (looked for {})", place.display()));
    format!("this configuration file cannot be read: {cause}{looked}; create it, or pass another path with --config")
}

/// Builds a configuration from the text of a file. `name` is used in reports, `base` is the folder to which paths in
/// the file are relative.
#[must_use]
pub fn load(name: &str, text: &str, base: &Path, inputs: ConfigInputs<'_>) -> LoadedConfig {
    let ParsedSource { source, root, mut faults, has_values: readable } = ConfigSource::parse(name, text);
    if !readable {
        return without_values(source, faults);
    }
    let mut layers = match ConfigLayers::defaults(&ConfigDocument::default()) {
        Ok(layers) => layers,
        Err(cause) => {
            faults.push_fault("", format!("the defaults cannot be read: {cause}"));
            return without_values(source, faults);
        }
    };
    // Ascending precedence: defaults, file, environment, flags.
    layers.file(&root);
    let schema = schema::document();
    // Found in the file before variables are read: an API key's variable may begin with `GORGO_` as well.
    let keys = api_key_variables(&root);
    for variable in environment::read(inputs.environment, &keys, &mut faults) {
        let origin = ValueOrigin::Environment(variable.name.clone());
        let set =
            PendingOverride { origin, parts: &variable.parts, spelling: KeySpelling::Folded, value: &variable.value };
        set.apply(&mut layers, &source, &schema, &inputs.known, &mut faults);
    }
    for setting in inputs.overrides {
        let parts: Vec<_> = match path::parse(&setting.path) {
            Ok(steps) => steps.into_iter().map(step_text).collect(),
            Err(message) => {
                faults.push_fault(&setting.flag, message);
                continue;
            }
        };
        let origin = ValueOrigin::Flag(setting.flag.clone());
        let set = PendingOverride { origin, parts: &parts, spelling: KeySpelling::Exact, value: &setting.value };
        set.apply(&mut layers, &source, &schema, &inputs.known, &mut faults);
    }
    let (root, nodes) = layers.merged(&source);
    let mut misshapen = ConfigFaults::default();
    schema_check::check_against_schema(&schema, &schema, &root, "", &mut misshapen);
    // Values that could not even be parsed are reported already.
    misshapen.list.retain(|fault| faults.list.iter().all(|before| before.path != fault.path));
    faults.extend(misshapen);
    consistency_check::check_consistency(&root, inputs.environment, &inputs.known, &mut faults);
    let draft = PolicyInputs::from_root(&root);
    // Deserialization stops at its first fault, so it only runs on values that passed every check.
    let config = if faults.has_faults() { None } else { config(&layers, &draft, base, &mut faults) };
    LoadedConfig { config, policy_inputs: draft, faults, origins: ConfigOrigins::new(source, nodes) }
}

/// Result for a file without values.
fn without_values(source: ConfigSource, faults: ConfigFaults) -> LoadedConfig {
    LoadedConfig {
        config: None,
        policy_inputs: PolicyInputs::default(),
        faults,
        origins: ConfigOrigins::new(source, HashMap::new()),
    }
}

/// Override to apply, from a variable or a flag.
struct PendingOverride<'a> {
    origin: ValueOrigin,
    parts: &'a [String],
    spelling: KeySpelling,
    value: &'a str,
}

impl PendingOverride<'_> {
    fn apply(
        &self,
        layers: &mut ConfigLayers,
        source: &ConfigSource,
        schema: &serde_json::Value,
        known: &KnownNames<'_>,
        faults: &mut ConfigFaults,
    ) {
        let by = self.origin.to_string();
        // Resolved against all layers so far, because an earlier override may have created the table.
        let (mut root, _) = layers.merged(source);
        let mut result = OverrideContext { schema, root: &root, known }.resolve(self.parts, self.spelling);
        // A key of a preset that the file does not have: the preset's table is inserted below the override first.
        if let Ok(target) = &result
            && let [PathStep::Key(top), PathStep::Key(name), _, ..] = &target.steps[..]
            && top == "policy"
            && root.get(top).and_then(|policies| policies.get(name)).is_none()
            && let Some((_, table)) = known.presets.iter().find(|(preset, _)| preset == name)
            && layers.set(&ValueOrigin::Preset, &target.steps[..2], table).is_ok()
        {
            (root, _) = layers.merged(source);
            result = OverrideContext { schema, root: &root, known }.resolve(self.parts, self.spelling);
        }
        let ground = OverrideContext { schema, root: &root, known };
        let done = match &result {
            Ok(target) => {
                ground.parse_value(target, self.value).and_then(|value| layers.set(&self.origin, &target.steps, &value))
            }
            Err(missed) => Err(self.unresolved_message(missed)),
        };
        if let Err(message) = done {
            faults.push_fault(by, message);
        }
    }

    fn unresolved_message(&self, missed: &UnresolvedKey) -> String {
        match (&missed.nearest, self.spelling) {
            (Some(parts), KeySpelling::Folded) => {
                format!("{}; did you mean {}?", UNKNOWN_KEY, environment::name_of(parts))
            }
            (Some(parts), KeySpelling::Exact) => {
                format!("{}; did you mean `{}`?", UNKNOWN_KEY, parts.join("."))
            }
            (None, _) => format!("{}; {}", UNKNOWN_KEY, missed.message),
        }
    }
}

fn step_text(step: PathStep) -> String {
    match step {
        PathStep::Key(key) => key,
        PathStep::Index(index) => index.to_string(),
    }
}

/// Variables from which the file's replicas take their keys.
fn api_key_variables(root: &ConfigValue) -> Vec<&str> {
    match root.get("replica") {
        Some(ConfigValue::List(list)) => {
            list.iter().filter_map(|replica| replica.get("api_key_env").and_then(ConfigValue::text)).collect()
        }
        _ => Vec::new(),
    }
}

/// Sections out of figment. After `shape` this only fails if the two disagree, which is then reported.
fn config(layers: &ConfigLayers, draft: &PolicyInputs, base: &Path, faults: &mut ConfigFaults) -> Option<Config> {
    let document: ConfigDocument = match layers.extract() {
        Ok(document) => document,
        Err(cause) => {
            faults.push_fault(cause.path.join("."), cause.kind.to_string());
            return None;
        }
    };
    Some(Config {
        server: document.server,
        admin: document.admin,
        log: document.log,
        store: document.store,
        index: document.index,
        probe: document.probe,
        scrape: document.scrape,
        failover: document.failover,
        replicas: document.replica,
        default_policy: document.default_policy,
        policies: draft.policies.clone(),
        base: base.to_owned(),
    })
}
