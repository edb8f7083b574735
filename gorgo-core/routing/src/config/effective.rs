//! Effective configuration, every value with its origin: TOML that can be read back, with comments beside it.

use toml::Value as Toml;

use super::origin::ConfigOrigins;
use super::sections::{Config, ConfigDocument};
use super::{path, secrets};
use crate::model::ConfigValue;

/// Widest assignment whose comment is aligned with the common column.
const WIDEST: usize = 48;

/// One line: an assignment with its origin, or a header or blank line without one.
struct EffectiveLine {
    text: String,
    origin: Option<String>,
}

/// All values of `config`, defaults included, each with its origin. Contains no secrets: keys are in the environment,
/// and anything that nevertheless looks like one is masked.
#[must_use]
pub fn effective(config: &Config, origins: &ConfigOrigins) -> String {
    let document = config.document();
    let mut page = EffectiveToml { origins, lines: Vec::new() };
    if let Ok(Toml::Table(sections)) = Toml::try_from(&document) {
        // TOML ends the top-level table at the first header, so plain keys must come first.
        let (tables, plain): (Vec<_>, Vec<_>) =
            sections.into_iter().partition(|(_, value)| matches!(value, Toml::Table(_)) || is_tables(value));
        for (key, value) in plain {
            page.assign(&key, &from_toml(&value), &key);
        }
        for (key, value) in tables.into_iter().filter(|(key, _)| key != "policy") {
            page.section(&from_toml(&value), &key);
        }
    }
    for (name, policy) in &config.policies {
        page.section(policy, &path::child("policy", name));
    }
    // Masked as text, like the file itself, so that one set of rules covers both.
    secrets::masked(&page.text())
}

struct EffectiveToml<'a> {
    origins: &'a ConfigOrigins,
    lines: Vec<EffectiveLine>,
}

impl EffectiveToml<'_> {
    /// Writes a table under a header, or an array of tables under one each. Nested values are written with dotted keys,
    /// so that every value has a line; arrays of tables come last, since they need headers.
    fn section(&mut self, value: &ConfigValue, path: &str) {
        match value {
            ConfigValue::Table(members) => {
                self.push_line(format!("\n[{path}]"));
                self.members(members, path, path);
            }
            ConfigValue::List(list) => self.list(list, path, path),
            _ => {}
        }
    }

    /// Writes an array of tables. `written` is the path as headers spell it, without indices.
    fn list(&mut self, list: &[ConfigValue], path: &str, written: &str) {
        for (index, item) in list.iter().enumerate() {
            if let ConfigValue::Table(members) = item {
                self.push_line(format!("\n[[{written}]]"));
                self.members(members, &path::element(path, index), written);
            }
        }
    }

    fn members(&mut self, members: &[(String, ConfigValue)], path: &str, written: &str) {
        let mut later = Vec::new();
        self.assign_dotted(members, path, "", &mut later);
        for (key, list) in later {
            self.list(list, &format!("{path}.{key}"), &format!("{written}.{key}"));
        }
    }

    /// Writes the members of a table; `key` is the dotted key of the table within its header's table.
    fn assign_dotted<'v>(
        &mut self,
        members: &'v [(String, ConfigValue)],
        path: &str,
        key: &str,
        later: &mut Vec<(String, &'v [ConfigValue])>,
    ) {
        for (name, value) in members {
            let (path, key) = (path::child(path, name), path::child(key, name));
            match value {
                // An empty table has no members that could represent it, so it is written as a value.
                ConfigValue::Table(inner) if !inner.is_empty() => self.assign_dotted(inner, &path, &key, later),
                ConfigValue::List(list)
                    if !list.is_empty() && list.iter().all(|item| matches!(item, ConfigValue::Table(_))) =>
                {
                    later.push((key, list));
                }
                _ => self.assign(&key, value, &path),
            }
        }
    }

    fn assign(&mut self, key: &str, value: &ConfigValue, path: &str) {
        let text = format!("{key} = {}", to_toml(value));
        self.lines.push(EffectiveLine { text, origin: Some(self.origins.describe(path)) });
    }

    fn push_line(&mut self, text: String) {
        self.lines.push(EffectiveLine { text, origin: None });
    }

    fn text(&self) -> String {
        // Very long assignments would push all comments far to the right, so they do not count.
        let widths = self.lines.iter().filter(|line| line.origin.is_some()).map(|line| line.text.chars().count());
        let column = widths.filter(|width| *width <= WIDEST).max().unwrap_or(0);
        self.lines.iter().fold(String::new(), |mut page, line| {
            page.push_str(&line.text);
            if let Some(origin) = &line.origin {
                let gap = column.saturating_sub(line.text.chars().count()) + 2;
                page.push_str(&" ".repeat(gap));
                page.push_str("# ");
                page.push_str(origin);
            }
            page.push('\n');
            page
        })
    }
}

impl Config {
    /// Fixed sections in the form that the file has.
    fn document(&self) -> ConfigDocument {
        ConfigDocument {
            default_policy: self.default_policy.clone(),
            server: self.server.clone(),
            admin: self.admin.clone(),
            log: self.log.clone(),
            store: self.store.clone(),
            index: self.index,
            probe: self.probe,
            scrape: self.scrape,
            failover: self.failover,
            replica: self.replicas.clone(),
            policy: std::collections::BTreeMap::new(),
        }
    }
}

fn is_tables(value: &Toml) -> bool {
    matches!(value, Toml::Array(list) if list.iter().all(Toml::is_table))
}

fn from_toml(value: &Toml) -> ConfigValue {
    match value {
        Toml::String(text) => ConfigValue::Text(text.clone()),
        Toml::Integer(whole) => ConfigValue::Integer(*whole),
        Toml::Float(number) => ConfigValue::Float(*number),
        Toml::Boolean(truth) => ConfigValue::Bool(*truth),
        Toml::Datetime(date) => ConfigValue::Text(date.to_string()),
        Toml::Array(list) => ConfigValue::List(list.iter().map(from_toml).collect()),
        Toml::Table(members) => {
            ConfigValue::Table(members.iter().map(|(key, value)| (key.clone(), from_toml(value))).collect())
        }
    }
}

/// Text of a file in which `table` is at `path`: it can be read again with [`parse_toml`](super::parse_toml).
#[must_use]
pub fn table_text(path: &[&str], table: &ConfigValue) -> String {
    let nested =
        path.iter().rev().fold(table.clone(), |inner, key| ConfigValue::Table(vec![((*key).to_owned(), inner)]));
    match to_toml(&nested) {
        Toml::Table(file) => file.to_string(),
        other => other.to_string(),
    }
}

/// Same value with TOML's types.
fn to_toml(value: &ConfigValue) -> Toml {
    match value {
        ConfigValue::Text(text) => Toml::String(text.clone()),
        ConfigValue::Integer(whole) => Toml::Integer(*whole),
        ConfigValue::Float(number) => Toml::Float(*number),
        ConfigValue::Bool(truth) => Toml::Boolean(*truth),
        ConfigValue::List(list) => Toml::Array(list.iter().map(to_toml).collect()),
        ConfigValue::Table(members) => {
            Toml::Table(members.iter().map(|(key, value)| (key.clone(), to_toml(value))).collect())
        }
    }
}
