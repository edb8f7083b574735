//! One value that an environment variable or a flag sets: which key it means, and what its text is there.

use serde_json::Value as Json;

use super::Known;
use super::nearest::{folded, nearest};
use super::path::{self, Step};
use super::schema_check;
use super::source::value_of;
use crate::model::{ParamType, Value};

/// Keys of policy tables whose values are strings and that no kind declares. Only there must this be known: elsewhere
/// the schema tells.
const POLICY_TEXTS: [&str; 5] = ["unit", "cost", "kind", "name", "assignment"];

/// What a value is set in: all that is known of the file's shape and content so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ground<'a> {
    /// Schema of the whole file.
    pub(super) schema: &'a Json,
    /// The values so far.
    pub(super) root: &'a Value,
    /// Names that only the caller knows.
    pub(super) known: &'a Known<'a>,
}

/// How a path is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// Letter for letter.
    Exact,
    /// As in a variable's name: any case, `_` for what is no letter or digit, `__` between levels.
    Folded,
}

/// A key that was found.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) steps: Vec<Step>,
    schema: Option<&'a Json>,
    now: Option<&'a Value>,
}

/// A key that was not found: the known path nearest to it, if there is one, and what to say otherwise.
#[derive(Debug)]
pub(super) struct Missed {
    pub(super) nearest: Option<Vec<String>>,
    pub(super) message: String,
}

impl<'a> Ground<'a> {
    /// Finds the key that `parts` name, level by level.
    pub(super) fn resolve(&self, parts: &[String], spelling: Spelling) -> Result<Target<'a>, Missed> {
        if parts.len() > path::DEEPEST {
            let message = format!("more than {} levels deep", path::DEEPEST);
            return Err(Missed { nearest: None, message });
        }
        let mut target = Target { steps: Vec::new(), schema: Some(self.schema), now: Some(self.root) };
        let mut done = 0;
        while done < parts.len() {
            done += match target.now {
                Some(Value::List(list)) => self.step_into_list(list, parts, done, spelling, &mut target),
                _ => self.step_into_table(parts, done, spelling, &mut target),
            }?;
        }
        Ok(target)
    }

    /// One step into an array: by index, or by the name of an element.
    fn step_into_list(
        &self,
        list: &'a [Value],
        all: &[String],
        done: usize,
        spelling: Spelling,
        target: &mut Target<'a>,
    ) -> Result<usize, Missed> {
        let parts = &all[done..];
        let named = |value: &'a Value| value.get("name").or_else(|| value.get("kind")).and_then(Value::text);
        let found = (1..=parts.len()).rev().find_map(|count| {
            let part = parts[..count].join("__");
            let by_name = || list.iter().position(|item| named(item).is_some_and(|name| same(name, &part, spelling)));
            part.parse().ok().or_else(by_name).map(|index| (count, index))
        });
        let path = path::of(&target.steps);
        match found {
            Some((count, index)) if index < list.len() => {
                target.steps.push(Step::Index(index));
                target.schema = target.schema.and_then(|schema| schema.get("items"));
                target.now = list.get(index);
                Ok(count)
            }
            _ => {
                let names: Vec<_> = list.iter().filter_map(named).collect();
                let slip = parts.first().and_then(|part| nearest(part, names.iter().copied()));
                let corrected = slip.map(|name| {
                    all[..done].iter().cloned().chain([name.to_owned()]).chain(parts.iter().skip(1).cloned()).collect()
                });
                let names = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
                let message = format!("`{path}` has {} elements, from 0{names}", list.len());
                Err(Missed { nearest: corrected, message })
            }
        }
    }

    /// One step into a table. As many parts as possible are one key: a name may hold `__` itself.
    fn step_into_table(
        &self,
        parts: &[String],
        done: usize,
        spelling: Spelling,
        target: &mut Target<'a>,
    ) -> Result<usize, Missed> {
        let names = self.names(target);
        let rest = &parts[done..];
        let longest = if spelling == Spelling::Folded { rest.len() } else { 1 };
        for count in (1..=longest).rev() {
            let part = rest[..count].join("__");
            let mut found: Vec<_> = names.iter().filter(|name| same(name, &part, spelling)).collect();
            found.dedup();
            match found[..] {
                [] => {}
                [name] => {
                    target.enter(name);
                    return Ok(count);
                }
                [one, other, ..] => {
                    return Err(Missed { nearest: None, message: format!("means both `{one}` and `{other}`") });
                }
            }
        }
        let part = &rest[0];
        let within_policies = matches!(target.steps[..], [Step::Key(ref top)] if top == "policy");
        let free = target.schema.is_none_or(|schema| schema_check::member(schema, part).is_some());
        // A policy can be made by one value that says all of it, but not by one of its keys.
        if part.is_empty() || !free || (within_policies && rest.len() > 1) {
            let slip = nearest(part, names.iter().copied());
            let corrected = slip.map(|name| {
                let mut corrected = parts.to_vec();
                name.clone_into(&mut corrected[done]);
                corrected
            });
            let message = match names[..] {
                [] => format!("`{}` is no table", path::of(&target.steps)),
                _ => format!("known here: {}", names.join(", ")),
            };
            return Err(Missed { nearest: corrected, message });
        }
        let key = if spelling == Spelling::Folded { part.to_ascii_lowercase() } else { part.clone() };
        target.enter(&key);
        Ok(1)
    }

    /// The keys that may stand where `target` is, sorted: declared ones, those there, and those that kinds bring.
    fn names(&self, target: &Target<'a>) -> Vec<&'a str> {
        let mut names: Vec<_> = target.schema.into_iter().flat_map(schema_check::names).collect();
        if let Some(Value::Table(members)) = target.now {
            names.extend(members.iter().map(|(name, _)| name.as_str()));
        }
        let keys: Vec<_> = target.steps.iter().map(|step| if let Step::Key(key) = step { key } else { "" }).collect();
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

    /// What the text is at the key: a string where the key takes strings, else TOML. A text that is no TOML is a
    /// string; whether one fits there is for the checks to say.
    pub(super) fn typed(&self, target: &Target<'_>, text: &str) -> Result<Value, String> {
        let plain = || Ok(Value::Text(text.to_owned()));
        let in_policy = matches!(target.steps.first(), Some(Step::Key(top)) if top == "policy");
        let is_text = match (target.schema.filter(|_| !in_policy), target.now) {
            (Some(schema), _) => schema_check::is_text(schema),
            (None, Some(Value::Text(_))) => true,
            (None, _) => matches!(target.steps.last(), Some(Step::Key(key)) if self.is_policy_text(key)),
        };
        if is_text {
            return plain();
        }
        match value_of(text) {
            Ok(value) => Ok(value),
            Err(cause) if text.trim_start().starts_with(['[', '{']) => Err(format!("no TOML: {cause}")),
            Err(_) => plain(),
        }
    }

    /// Whether a key in a policy's table takes a string, as far as the kinds tell.
    fn is_policy_text(&self, key: &str) -> bool {
        let mut params = self.known.kinds.iter().flat_map(|row| row.params).filter(|param| param.name == key);
        POLICY_TEXTS.contains(&key) || params.any(|param| matches!(param.ty, ParamType::Text { .. }))
    }
}

impl<'a> Target<'a> {
    fn enter(&mut self, key: &str) {
        self.steps.push(Step::Key(key.to_owned()));
        // `true` allows anything, and so says nothing.
        self.schema =
            self.schema.and_then(|schema| schema_check::member(schema, key)).filter(|schema| !schema.is_boolean());
        self.now = self.now.and_then(|value| value.get(key));
    }
}

fn same(name: &str, part: &str, spelling: Spelling) -> bool {
    match spelling {
        Spelling::Exact => name == part,
        Spelling::Folded => folded(name) == folded(part),
    }
}
