//! Files + environment + flags → [`Config`].
//!
//! [`read`] takes the file, [`load`] its text: `source` parses it and keeps key → line, `layers` merges file,
//! environment and flags through figment, `shape` checks keys, types and ranges against the schema of the `sections`,
//! `check` what they mean together. All faults are found at once; [`render`] shows them, [`effective`] shows what holds.

mod check;
mod effective;
mod endpoint;
mod environment;
mod layers;
mod nearest;
mod origin;
mod path;
mod report;
mod schema;
mod secrets;
mod sections;
mod setting;
mod shape;
mod source;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

pub use effective::effective;
pub use endpoint::Endpoint;
pub use environment::NOT_CONFIGURATION;
pub use nearest::nearest;
pub use origin::{Origin, Origins};
pub use report::{Look, render, summary};
pub use schema::schema;
pub use sections::{
    Admin, Config, Failover, Hedge, HttpVersion, Index, Log, LogFormat, Probe, ReplicaSection, Retention, Scrape,
    Server, Simulated, Store,
};
pub use source::{Source, parse_toml};

use self::layers::Layers;
use self::path::Step;
use self::sections::Document;
use self::setting::{Ground, Missed, Spelling};
use crate::model::{EngineKind, Faults, KindDoc, Replica, ReplicaId, Value};

/// Names that other modules own and that a configuration may use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'a> {
    /// Built-in policies: name and table. A variable or a flag for a key of one of them changes a copy of it.
    pub presets: &'a [(String, Value)],
    /// Profiles of simulated engines; empty: not checked.
    pub profiles: &'a [&'a str],
    /// Kinds; they tell which parameters are strings, and how names with `-` are spelled.
    pub kinds: &'a [KindDoc],
}

/// A value that a flag sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The flag as reports name it: `--set server.listen`, `--listen`.
    pub flag: String,
    /// The key's path.
    pub path: String,
    /// A string where the key takes one, else TOML text.
    pub value: String,
}

impl Setting {
    /// Reads the argument of `--set`: `path=value`.
    ///
    /// # Errors
    /// Where there is no `=`.
    pub fn parse(argument: &str) -> Result<Self, String> {
        let (path, value) = argument.split_once('=').ok_or("expected PATH=VALUE, such as server.listen=0.0.0.0:80")?;
        let (path, value) = (path.trim().to_owned(), value.trim().to_owned());
        Ok(Self { flag: format!("--set {path}"), path, value })
    }
}

/// What a configuration is made of.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The environment, all of it.
    pub environment: &'a [(OsString, OsString)],
    /// What flags set, in their order: the last one wins.
    pub settings: &'a [Setting],
    /// Names of other modules.
    pub known: Known<'a>,
}

/// What came of it.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration; only where there is no fault.
    pub config: Option<Config>,
    /// What policies are built of; also there where the rest has faults, so that theirs are reported together with them.
    pub draft: Draft,
    /// Faults and warnings.
    pub faults: Faults,
    /// The file, and who set what.
    pub origins: Origins,
}

/// The parts of a configuration that policies are built of, as far as they can be read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Draft {
    /// The policy that serves.
    pub default_policy: String,
    /// `[policy.NAME]` tables in file order.
    pub policies: Vec<(String, Value)>,
    /// The enabled replicas; ids are positions.
    pub fleet: Vec<Replica>,
}

impl Draft {
    fn of(root: &Value) -> Self {
        let list = if let Some(Value::List(list)) = root.get("replica") { &list[..] } else { &[] };
        let enabled = list.iter().filter(|replica| replica.get("enabled") != Some(&Value::Bool(false)));
        let fleet = enabled.zip(0_u16..).map(|(replica, id)| {
            let text = |key: &str| replica.get(key).and_then(Value::text);
            let name = text("name").unwrap_or_default();
            let capacity =
                if let Some(Value::Integer(tokens)) = replica.get("kv_capacity_tokens") { *tokens } else { 0 };
            Replica {
                id: ReplicaId(id),
                name: name.into(),
                region: text("region").unwrap_or(name).into(),
                engine: text("engine").and_then(EngineKind::parse).unwrap_or(EngineKind::OpenAi),
                kv_capacity_tokens: u64::try_from(capacity).ok().filter(|tokens| *tokens > 0),
            }
        });
        let policies = if let Some(Value::Table(tables)) = root.get("policy") { tables.clone() } else { Vec::new() };
        Self {
            default_policy: root.get("default_policy").and_then(Value::text).unwrap_or_default().to_owned(),
            policies,
            fleet: fleet.collect(),
        }
    }
}

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
        Err(cause) => Err(format!("cannot be read: {cause}; name another with --config")),
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

/// Makes a configuration of the text of a file. `name` is what reports call the file, `base` the folder that relative
/// paths in it are relative to.
#[must_use]
pub fn load(name: &str, text: &str, base: &Path, inputs: Inputs<'_>) -> Loaded {
    let source::Parsed { source, root, mut faults, readable } = Source::parse(name, text);
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
    shape::check(&schema, &schema, &root, "", &mut misshapen);
    // What could not even be read as a value is reported already.
    misshapen.list.retain(|fault| faults.list.iter().all(|before| before.path != fault.path));
    faults.extend(misshapen);
    check::check(&root, inputs.environment, &inputs.known, &mut faults);
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
                format!("{}; did you mean {}?", origin::UNKNOWN_KEY, environment::name_of(parts))
            }
            (Some(parts), Spelling::Exact) => {
                format!("{}; did you mean `{}`?", origin::UNKNOWN_KEY, parts.join("."))
            }
            (None, _) => format!("{}; {}", origin::UNKNOWN_KEY, missed.message),
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
