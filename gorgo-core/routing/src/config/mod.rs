//! Files + environment + flags → [`Config`].
//!
//! [`read`] takes the file, [`load`] its text: `source` parses it and keeps key → line, `layers` merges file,
//! environment and flags through figment, `shape` checks keys, types and ranges against the schema of the `sections`,
//! `check` whether they are consistent. All faults are found at once; [`render`] shows them, [`effective`] shows the
//! effective configuration.

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
pub use origin::{ConfigOrigins, ValueOrigin};
pub use report::{ReportStyle, render, summary};
pub use schema::schema;
pub use sections::{
    AdminConfig, Config, FailoverConfig, HedgeConfig, HttpVersion, IndexConfig, LogConfig, LogFormat, ProbeConfig,
    ReplicaConfig, RetentionConfig, ScrapeConfig, ServerConfig, SimulatedEngineConfig, StoreConfig,
};
pub use source::{ConfigSource, parse_toml};

use crate::model::{ConfigFaults, ConfigValue, EngineKind, KindDoc, Replica, ReplicaId};

/// Names that belong to other modules and that a configuration may use.
#[derive(Debug, Clone, Copy, Default)]
pub struct KnownNames<'a> {
    /// Built-in policies: name and table. A variable or a flag for a key of one of them changes a copy of it.
    pub presets: &'a [(String, ConfigValue)],
    /// Profiles of simulated engines; empty: not checked.
    pub profiles: &'a [&'a str],
    /// Kinds; they determine which parameters are strings, and how names with `-` are spelled.
    pub kinds: &'a [KindDoc],
}

/// Override of one key by a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigOverride {
    /// Flag as reports name it: `--set server.listen`, `--listen`.
    pub flag: String,
    /// Path of the key.
    pub path: String,
    /// Text of the value: a string if the key takes one, otherwise TOML.
    pub value: String,
}

impl ConfigOverride {
    /// Reads the argument of `--set`: `path=value`.
    ///
    /// # Errors
    /// The argument has no `=`.
    pub fn parse(argument: &str) -> Result<Self, String> {
        let (path, value) = argument.split_once('=').ok_or("expected PATH=VALUE, such as server.listen=0.0.0.0:80")?;
        let (path, value) = (path.trim().to_owned(), value.trim().to_owned());
        Ok(Self { flag: format!("--set {path}"), path, value })
    }
}

/// Inputs of a configuration besides the file.
#[derive(Debug, Clone, Copy)]
pub struct ConfigInputs<'a> {
    /// Complete environment of the process.
    pub environment: &'a [(OsString, OsString)],
    /// Overrides by flags, in their order: the last one wins.
    pub overrides: &'a [ConfigOverride],
    /// Names that belong to other modules.
    pub known: KnownNames<'a>,
}

/// Result of loading.
#[derive(Debug)]
pub struct LoadedConfig {
    /// Configuration; present only without faults.
    pub config: Option<Config>,
    /// Inputs of policies; also present if other parts have faults, so that faults in policies are reported with them.
    pub policy_inputs: PolicyInputs,
    /// Faults and warnings.
    pub faults: ConfigFaults,
    /// File, and origin of each value.
    pub origins: ConfigOrigins,
}

/// Parts of a configuration from which policies are built, as far as they can be read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PolicyInputs {
    /// Name of the policy that serves.
    pub default_policy: String,
    /// `[policy.NAME]` tables in file order.
    pub policies: Vec<(String, ConfigValue)>,
    /// Enabled replicas; ids are positions.
    pub fleet: Vec<Replica>,
}

impl PolicyInputs {
    fn from_root(root: &ConfigValue) -> Self {
        // Defaults replace everything that cannot be read: `shape` has reported it, and policies can still be checked.
        let list = if let Some(ConfigValue::List(list)) = root.get("replica") { &list[..] } else { &[] };
        // Ids count enabled replicas only, so that columns and bitmaps have no gaps.
        let enabled = list.iter().filter(|replica| replica.get("enabled") != Some(&ConfigValue::Bool(false)));
        let fleet = enabled.zip(0_u16..).map(|(replica, id)| {
            let text = |key: &str| replica.get(key).and_then(ConfigValue::text);
            let name = text("name").unwrap_or_default();
            let whole = |key: &str| if let Some(ConfigValue::Integer(whole)) = replica.get(key) { *whole } else { 0 };
            Replica {
                id: ReplicaId(id),
                name: name.into(),
                region: text("region").unwrap_or(name).into(),
                engine: text("engine").and_then(EngineKind::parse).unwrap_or(EngineKind::OpenAi),
                kv_capacity_tokens: u64::try_from(whole("kv_capacity_tokens")).ok().filter(|tokens| *tokens > 0),
                decode_batch: u32::try_from(whole("decode_batch")).ok().filter(|batch| *batch > 0),
            }
        });
        let policies =
            if let Some(ConfigValue::Table(tables)) = root.get("policy") { tables.clone() } else { Vec::new() };
        Self {
            default_policy: root.get("default_policy").and_then(ConfigValue::text).unwrap_or_default().to_owned(),
            policies,
            fleet: fleet.collect(),
        }
    }
}
