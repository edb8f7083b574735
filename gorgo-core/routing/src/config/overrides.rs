//! Override of one value by an environment variable or a flag: the key that it names, and the meaning of its text
//! there.

use serde_json::Value as Json;

use super::KnownNames;
use super::nearest::{folded, nearest};
use super::path::{self, PathStep};
use super::schema_check;
use super::source::parse_value;
use crate::model::{ConfigValue, ParamType};

/// Keys of policy tables that take strings and that no kind declares. Needed only there: elsewhere the schema has the
/// type.
const POLICY_TEXTS: [&str; 5] = ["unit", "cost", "kind", "name", "assignment"];

/// Context of an override: the file's schema and its content so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct OverrideContext<'a> {
    /// Schema of the whole file.
    pub(super) schema: &'a Json,
    /// Values so far.
    pub(super) root: &'a ConfigValue,
    /// Names that belong to other modules.
    pub(super) known: &'a KnownNames<'a>,
}

/// Spelling of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeySpelling {
    /// Letter by letter.
    Exact,
    /// As in the name of a variable: any case, `_` for anything but letters and digits, `__` between levels.
    Folded,
}

/// Key that was found.
#[derive(Debug)]
pub(super) struct ResolvedKey<'a> {
    pub(super) steps: Vec<PathStep>,
    schema: Option<&'a Json>,
    current: Option<&'a ConfigValue>,
}

/// Key that was not found: the nearest known path, if there is one, and otherwise the message.
#[derive(Debug)]
pub(super) struct UnresolvedKey {
    pub(super) nearest: Option<Vec<String>>,
    pub(super) message: String,
}

impl<'a> OverrideContext<'a> {
    /// Resolves the key that `parts` name, level by level.
    pub(super) fn resolve(&self, parts: &[String], spelling: KeySpelling) -> Result<ResolvedKey<'a>, UnresolvedKey> {
        if parts.len() > path::DEEPEST {
            let message = format!("more than {} levels deep", path::DEEPEST);
            return Err(UnresolvedKey { nearest: None, message });
        }
        let mut target = ResolvedKey { steps: Vec::new(), schema: Some(self.schema), current: Some(self.root) };
        let mut done = 0;
        while done < parts.len() {
            done += match target.current {
                Some(ConfigValue::List(list)) => self.step_into_list(list, parts, done, spelling, &mut target),
                _ => self.step_into_table(parts, done, spelling, &mut target),
            }?;
        }
        Ok(target)
    }

    /// Takes one step into an array: by index, or by the name of an element.
    fn step_into_list(
        &self,
        list: &'a [ConfigValue],
        all: &[String],
        done: usize,
        spelling: KeySpelling,
        target: &mut ResolvedKey<'a>,
    ) -> Result<usize, UnresolvedKey> {
        let parts = &all[done..];
        let named =
            |value: &'a ConfigValue| value.get("name").or_else(|| value.get("kind")).and_then(ConfigValue::text);
        // The longest match first: a name may contain `__` itself.
        let found = (1..=parts.len()).rev().find_map(|count| {
            let part = parts[..count].join("__");
            let by_name =
                || list.iter().position(|item| named(item).is_some_and(|name| key_matches(name, &part, spelling)));
            part.parse().ok().or_else(by_name).map(|index| (count, index))
        });
        let path = path::join(&target.steps);
        match found {
            Some((count, index)) if index < list.len() => {
                target.steps.push(PathStep::Index(index));
                target.schema = target.schema.and_then(|schema| schema.get("items"));
                target.current = list.get(index);
                Ok(count)
            }
            // Only the first part is corrected; the rest is kept for the suggestion.
            _ => {
                let names: Vec<_> = list.iter().filter_map(named).collect();
                let slip = parts.first().and_then(|part| nearest(part, names.iter().copied()));
                let corrected = slip.map(|name| {
                    all[..done].iter().cloned().chain([name.to_owned()]).chain(parts.iter().skip(1).cloned()).collect()
                });
                let names = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
                let message = format!("`{path}` has {} elements, from 0{names}", list.len());
                Err(UnresolvedKey { nearest: corrected, message })
            }
        }
    }

    /// Takes one step into a table. As many parts as possible form one key, because a name may contain `__` itself.
    fn step_into_table(
        &self,
        parts: &[String],
        done: usize,
        spelling: KeySpelling,
        target: &mut ResolvedKey<'a>,
    ) -> Result<usize, UnresolvedKey> {
        let names = self.names(target);
        let rest = &parts[done..];
        // Only in variables is `__` a separator, so only there can it be part of a name as well.
        let longest = if spelling == KeySpelling::Folded { rest.len() } else { 1 };
        for count in (1..=longest).rev() {
            let part = rest[..count].join("__");
            let mut found: Vec<_> = names.iter().filter(|name| key_matches(name, &part, spelling)).collect();
            found.dedup();
            match found[..] {
                [] => {}
                [name] => {
                    target.enter(name);
                    return Ok(count);
                }
                [one, other, ..] => {
                    return Err(UnresolvedKey { nearest: None, message: format!("means both `{one}` and `{other}`") });
                }
            }
        }
        let part = &rest[0];
        let within_policies = matches!(target.steps[..], [PathStep::Key(ref top)] if top == "policy");
        let free = target.schema.is_none_or(|schema| schema_check::member(schema, part).is_some());
        // A policy can be created by one value with all its content, but not by one of its keys.
        if part.is_empty() || !free || (within_policies && rest.len() > 1) {
            let slip = nearest(part, names.iter().copied());
            let corrected = slip.map(|name| {
                let mut corrected = parts.to_vec();
                name.clone_into(&mut corrected[done]);
                corrected
            });
            let message = match names[..] {
                [] => format!("`{}` is not a table", path::join(&target.steps)),
                _ => format!("known here: {}", names.join(", ")),
            };
            return Err(UnresolvedKey { nearest: corrected, message });
        }
        // A new key from a variable is written in lower case, like all keys.
        let key = if spelling == KeySpelling::Folded { part.to_ascii_lowercase() } else { part.clone() };
        target.enter(&key);
        Ok(1)
    }

    /// Keys that are possible at `target`, sorted: declared ones, existing ones, and those that kinds add.
    fn names(&self, target: &ResolvedKey<'a>) -> Vec<&'a str> {
        let mut names: Vec<_> = target.schema.into_iter().flat_map(schema_check::names).collect();
        if let Some(ConfigValue::Table(members)) = target.current {
            names.extend(members.iter().map(|(name, _)| name.as_str()));
        }
        let keys: Vec<_> =
            target.steps.iter().map(|step| if let PathStep::Key(key) = step { key } else { "" }).collect();
        match keys[..] {
            ["policy"] => names.extend(self.known.presets.iter().map(|(name, _)| name.as_str())),
            ["policy", _, "constraint"] => {
                names.extend(self.known.kinds.iter().filter(|row| row.family == "constraint").map(|row| row.kind));
            }
            _ => {}
        }
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Value of the text at the key: a string if the key takes strings, otherwise TOML. Text that is not TOML is a
    /// string; the checks decide whether one fits there.
    pub(super) fn parse_value(&self, target: &ResolvedKey<'_>, text: &str) -> Result<ConfigValue, String> {
        let plain = || Ok(ConfigValue::Text(text.to_owned()));
        let in_policy = matches!(target.steps.first(), Some(PathStep::Key(top)) if top == "policy");
        // Schema first, then the present value, then the kinds: within policies the schema knows no types.
        let is_text = match (target.schema.filter(|_| !in_policy), target.current) {
            (Some(schema), _) => schema_check::is_text(schema),
            (None, Some(ConfigValue::Text(_))) => true,
            (None, _) => matches!(target.steps.last(), Some(PathStep::Key(key)) if self.is_policy_text(key)),
        };
        if is_text {
            return plain();
        }
        match parse_value(text) {
            Ok(value) => Ok(value),
            Err(cause) if text.trim_start().starts_with(['[', '{']) => Err(format!("invalid TOML: {cause}")),
            Err(_) => plain(),
        }
    }

    /// Returns true if a key in a policy's table takes a string, as far as the kinds show.
    fn is_policy_text(&self, key: &str) -> bool {
        let mut params = self.known.kinds.iter().flat_map(|row| row.params).filter(|param| param.name == key);
        POLICY_TEXTS.contains(&key) || params.any(|param| matches!(param.ty, ParamType::Text { .. }))
    }
}

impl<'a> ResolvedKey<'a> {
    fn enter(&mut self, key: &str) {
        self.steps.push(PathStep::Key(key.to_owned()));
        // `true` allows anything and contains no information.
        self.schema =
            self.schema.and_then(|schema| schema_check::member(schema, key)).filter(|schema| !schema.is_boolean());
        self.current = self.current.and_then(|value| value.get(key));
    }
}

fn key_matches(name: &str, part: &str, spelling: KeySpelling) -> bool {
    match spelling {
        KeySpelling::Exact => name == part,
        KeySpelling::Folded => folded(name) == folded(part),
    }
}
