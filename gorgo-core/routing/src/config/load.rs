//! Steps from a file to a configuration.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use super::layers::Layers;
use super::origin::{Origin, Origins, UNKNOWN_KEY};
use super::path::{self, Step};
use super::sections::{Config, Document};
use super::setting::{Ground, Missed, Spelling};
use super::source::{Parsed, Source};
use super::{Draft, Inputs, Known, Loaded, check, environment, schema, shape};
use crate::model::{Faults, Value};

/// Reads a configuration file. A file that cannot be read is a fault like any other.
#[must_use]
pub fn read(path: &Path, inputs: Inputs<'_>) -> Loaded {
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
            let mut faults = Faults::default();
            faults.fault("", message);
            unread(Source::parse(&name, "").source, faults)
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
pub fn load(name: &str, text: &str, base: &Path, inputs: Inputs<'_>) -> Loaded {
    let Parsed { source, root, mut faults, readable } = Source::parse(name, text);
    if !readable {
        return unread(source, faults);
    }
    let mut layers = match Layers::defaults(&Document::default()) {
        Ok(layers) => layers,
        Err(cause) => {
            faults.fault("", format!("the defaults cannot be read: {cause}"));
            return unread(source, faults);
        }
    };
    // Ascending precedence: defaults, file, environment, flags.
    layers.file(&root);
    let schema = schema::document();
    // Found in the file before variables are read: an API key's variable may begin with `GORGO_` as well.
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
    shape::check(&schema, &schema, &root, "", &mut misshapen);
    // Values that could not even be parsed are reported already.
    misshapen.list.retain(|fault| faults.list.iter().all(|before| before.path != fault.path));
    faults.extend(misshapen);
    check::check(&root, inputs.environment, &inputs.known, &mut faults);
    let draft = Draft::of(&root);
    // Deserialization stops at its first fault, so it only runs on values that passed every check.
    let config = if faults.any() { None } else { config(&layers, &draft, base, &mut faults) };
    Loaded { config, draft, faults, origins: Origins::new(source, nodes) }
}

/// Result for a file without values.
fn unread(source: Source, faults: Faults) -> Loaded {
    Loaded { config: None, draft: Draft::default(), faults, origins: Origins::new(source, HashMap::new()) }
}

/// Override to apply, from a variable or a flag.
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
        // Resolved against all layers so far, because an earlier override may have created the table.
        let (mut root, _) = layers.merged(source);
        let mut result = Ground { schema, root: &root, known }.resolve(self.parts, self.spelling);
        // A key of a preset that the file does not have: the preset's table is inserted below the override first.
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

/// Variables from which the file's replicas take their keys.
fn api_key_variables(root: &Value) -> Vec<&str> {
    match root.get("replica") {
        Some(Value::List(list)) => {
            list.iter().filter_map(|replica| replica.get("api_key_env").and_then(Value::text)).collect()
        }
        _ => Vec::new(),
    }
}

/// Sections out of figment. After `shape` this only fails if the two disagree, which is then reported.
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
