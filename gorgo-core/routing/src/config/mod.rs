//! Files + environment + flags → [`Config`].
//!
//! [`read`] takes the file, [`load`] its text: `source` parses it and keeps key → line, `layers` merges file,
//! environment and flags through figment, `shape` checks keys, types and ranges against the schema of the `sections`,
//! `check` what they mean together. All faults are found at once; [`render`] shows them, [`effective`] shows what holds.

mod consistency_check;
mod effective;
mod endpoint;
mod environment;
mod layers;
mod load;
mod nearest;
mod origin;
mod overrides;
mod path;
mod report;
mod schema;
mod schema_check;
mod secrets;
mod sections;
mod source;
#[cfg(test)]
mod tests;

use std::ffi::OsString;

pub use effective::{effective, table_text};
pub use endpoint::EngineUrl;
pub use environment::NOT_CONFIGURATION;
pub use load::{load, read};
pub use nearest::nearest;
pub use origin::{Origin, Origins};
pub use report::{Look, render, summary};
pub use schema::schema;
pub use sections::{
    Admin, Config, Failover, Hedge, HttpVersion, Index, Log, LogFormat, Probe, ReplicaSection, Retention, Scrape,
    Server, Simulated, Store,
};
pub use source::{Source, parse_toml};

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
            let whole = |key: &str| if let Some(Value::Integer(whole)) = replica.get(key) { *whole } else { 0 };
            Replica {
                id: ReplicaId(id),
                name: name.into(),
                region: text("region").unwrap_or(name).into(),
                engine: text("engine").and_then(EngineKind::parse).unwrap_or(EngineKind::OpenAi),
                kv_capacity_tokens: u64::try_from(whole("kv_capacity_tokens")).ok().filter(|tokens| *tokens > 0),
                decode_batch: u32::try_from(whole("decode_batch")).ok().filter(|batch| *batch > 0),
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
