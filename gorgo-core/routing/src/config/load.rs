//! The steps from a file to a configuration.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use super::layers::Layers;
use super::origin::{Origin, Origins, UNKNOWN_KEY};
use super::overrides::{Ground, Missed, Spelling};
use super::path::{self, Step};
use super::sections::{Config, Document};
use super::source::{Parsed, Source};
use super::{Draft, Inputs, Known, Loaded, consistency_check, environment, schema, schema_check};
use crate::model::{Faults, Value};

/// Reads a configuration file. One that cannot be read is a fault like any other.
#[must_use]
pub fn read(path: &Path, inputs: Inputs<'_>) -> Loaded {
    let name = path.display().to_string();
    let base = path.parent().unwrap_or(Path::new(""));
    let text = match fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes).map_err(|cause| {
            let line = 1 + memchr::memchr_iter(b'\n', &cause.as_bytes()[..cause.utf8_error().valid_up_to()]).count();
            format!("is not UTF-8, from line {line} on")
        }),
        Err(cause) => Err(unreadable(path, &cause)),
    };
    match text {
        Ok(text) => load(&name, &text, base, inputs),
        Err(message) => {
            let mut faults = Faults::default();
            faults.fault("", message);
            unread(Source::parse(&name, "").source, faults)
        }
    }
}

/// Where it was looked for is not plain from a relative path, once the process is a service.
fn unreadable(path: &Path, cause: &std::io::Error) -> String {
    let place = std::path::absolute(path).ok().filter(|place| place != path);
    let looked = place.map_or_else(String::new, |place| format!(" (looked for {})", place.display()));
    format!("this configuration file cannot be read: {cause}{looked}; put it there, or start with another --config")
}

/// Makes a configuration of the text of a file. `name` is what reports call the file, `base` the folder that relative
/// paths in it are relative to.
#[must_use]
pub fn load(name: &str, text: &str, base: &Path, inputs: Inputs<'_>) -> Loaded {
    let Parsed { source, root, mut faults, readable } = Source::parse(name, text);
    if !readable {
        return unread(source, faults);
    }
    let mut layers = match Layers::defaults(&Document::default()) {
        Ok(layers) => layers,
        Err(cause) => {
            faults.fault("", format!("defaults cannot be read: {cause}"));
            return unread(source, faults);
        }
    };
    layers.file(&root);
    let schema = schema::document();
    let keys = api_key_variables(&root);
    for variable in environment::read(inputs.environment, &keys, &mut faults) {
        let origin = Origin::Environment(variable.name.clone());
        let set = Set { origin, parts: &variable.parts, spelling: Spelling::Folded, value: &variable.value };
        set.apply(&mut layers, &source, &schema, &inputs.known, &mut faults);
    }
    for setting in inputs.settings {
        let parts: Vec<_> = match path::parse(&setting.path) {
            Ok(steps) => steps.into_iter().map(part_of).collect(),
            Err(message) => {
                faults.fault(&setting.flag, message);
                continue;
            }
        };
        let origin = Origin::Flag(setting.flag.clone());
        let set = Set { origin, parts: &parts, spelling: Spelling::Exact, value: &setting.value };
        set.apply(&mut layers, &source, &schema, &inputs.known, &mut faults);
    }
    let (root, nodes) = layers.merged(&source);
    let mut misshapen = Faults::default();
    schema_check::check(&schema, &schema, &root, "", &mut misshapen);
    // What could not even be read as a value is reported already.
    misshapen.list.retain(|fault| faults.list.iter().all(|before| before.path != fault.path));
    faults.extend(misshapen);
    consistency_check::check(&root, inputs.environment, &inputs.known, &mut faults);
    let draft = Draft::of(&root);
    let config = if faults.any() { None } else { config(&layers, &draft, base, &mut faults) };
    Loaded { config, draft, faults, origins: Origins::new(source, nodes) }
}

/// What comes of a file without values.
fn unread(source: Source, faults: Faults) -> Loaded {
    Loaded { config: None, draft: Draft::default(), faults, origins: Origins::new(source, HashMap::new()) }
}

/// A value to set, from wherever.
struct Set<'a> {
    origin: Origin,
    parts: &'a [String],
    spelling: Spelling,
    value: &'a str,
}

impl Set<'_> {
    fn apply(
        &self,
        layers: &mut Layers,
        source: &Source,
        schema: &serde_json::Value,
        known: &Known<'_>,
        faults: &mut Faults,
    ) {
        let by = self.origin.to_string();
        let (mut root, _) = layers.merged(source);
        let mut result = Ground { schema, root: &root, known }.resolve(self.parts, self.spelling);
        // A key of a preset that the file does not have: the preset's table goes below it.
        if let Ok(target) = &result
            && let [Step::Key(top), Step::Key(name), _, ..] = &target.steps[..]
            && top == "policy"
            && root.get(top).and_then(|policies| policies.get(name)).is_none()
            && let Some((_, table)) = known.presets.iter().find(|(preset, _)| preset == name)
            && layers.set(&Origin::Preset, &target.steps[..2], table).is_ok()
        {
            (root, _) = layers.merged(source);
            result = Ground { schema, root: &root, known }.resolve(self.parts, self.spelling);
        }
        let ground = Ground { schema, root: &root, known };
        let done = match &result {
            Ok(target) => {
                ground.typed(target, self.value).and_then(|value| layers.set(&self.origin, &target.steps, &value))
            }
            Err(missed) => Err(self.missed(missed)),
        };
        if let Err(message) = done {
            faults.fault(by, message);
        }
    }

    fn missed(&self, missed: &Missed) -> String {
        match (&missed.nearest, self.spelling) {
            (Some(parts), Spelling::Folded) => {
                format!("{}; did you mean {}?", UNKNOWN_KEY, environment::name_of(parts))
            }
            (Some(parts), Spelling::Exact) => {
                format!("{}; did you mean `{}`?", UNKNOWN_KEY, parts.join("."))
            }
            (None, _) => format!("{}; {}", UNKNOWN_KEY, missed.message),
        }
    }
}

fn part_of(step: Step) -> String {
    match step {
        Step::Key(key) => key,
        Step::Index(index) => index.to_string(),
    }
}

/// The variables that the file's replicas take their keys from.
fn api_key_variables(root: &Value) -> Vec<&str> {
    match root.get("replica") {
        Some(Value::List(list)) => {
            list.iter().filter_map(|replica| replica.get("api_key_env").and_then(Value::text)).collect()
        }
        _ => Vec::new(),
    }
}

/// The sections out of figment; after `shape` this fails only where the two disagree, and then says so.
fn config(layers: &Layers, draft: &Draft, base: &Path, faults: &mut Faults) -> Option<Config> {
    let document: Document = match layers.extract() {
        Ok(document) => document,
        Err(cause) => {
            faults.fault(cause.path.join("."), cause.kind.to_string());
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
