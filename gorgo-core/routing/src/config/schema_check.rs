//! Shape of values as the sections declare it: known keys, types, ranges, closed lists. Based on the JSON schema of the
//! sections, the same that editors get, so that each rule exists once: at its field.

use serde_json::Value as Json;

use super::nearest::nearest;
use super::origin::UNKNOWN_KEY;
use super::path;
use crate::model::{ConfigFaults, ConfigValue};

/// Checks `value`, located at `path`, against `schema`; `root` is the schema of the whole file.
pub(super) fn check_against_schema(
    schema: &Json,
    root: &Json,
    value: &ConfigValue,
    path: &str,
    faults: &mut ConfigFaults,
) {
    // First, because closed lists of schemars have no `type` if their variants are documented.
    if let Some(choices) = choices(schema) {
        match value {
            ConfigValue::Text(text) if choices.contains(&text.as_str()) => {}
            ConfigValue::Text(text) => {
                let name = path.rsplit('.').next().unwrap_or(path);
                faults.push_fault(path, format!("unknown {name} \"{text}\"; {}", suggestion(text, &choices)));
            }
            other => {
                let known = choices.join("\", \"");
                faults.push_fault(path, format!("expected a string, found {}; known: \"{known}\"", other.type_name()));
            }
        }
        return;
    }
    let Some(ty) = type_of(schema) else { return };
    match (ty, value) {
        ("boolean", ConfigValue::Bool(_)) | ("string", ConfigValue::Text(_)) => {}
        ("integer", ConfigValue::Integer(whole)) => {
            let bound = |key: &str| schema.get(key).and_then(Json::as_i64);
            match (bound("minimum"), bound("maximum")) {
                (Some(min), _) if *whole < min => faults.push_fault(path, format!("{whole} is below {min}")),
                (_, Some(max)) if *whole > max => faults.push_fault(path, format!("{whole} is above {max}")),
                _ => {}
            }
        }
        ("number", ConfigValue::Integer(_) | ConfigValue::Float(_)) => {
            let bound = |key: &str| schema.get(key).and_then(Json::as_f64);
            let (min, max) = (bound("minimum").unwrap_or(f64::MIN), bound("maximum").unwrap_or(f64::MAX));
            if let Err(message) = in_range(value.number().unwrap_or(f64::NAN), min, max) {
                faults.push_fault(path, message);
            }
        }
        ("array", ConfigValue::List(list)) => {
            for (index, item) in list.iter().enumerate() {
                let items = schema.get("items").unwrap_or(&Json::Bool(true));
                check_against_schema(items, root, item, &path::element(path, index), faults);
            }
        }
        ("object", ConfigValue::Table(members)) => table(schema, root, members, path, faults),
        (ty, found) => {
            let expected = match ty {
                "boolean" => "true or false",
                "string" => "a string",
                "integer" => "a whole number",
                "number" => "a number",
                "array" => "an array",
                _ => "a table",
            };
            // `policy = "name"` is a likely mistake for `default_policy`.
            let hint = if path == "policy" { "; the policy that serves is `default_policy`" } else { "" };
            // The number itself shows the problem, such as a fraction where a whole number is expected.
            let found = match found {
                ConfigValue::Float(number) => format!("{number:?}"),
                other => other.type_name().to_owned(),
            };
            faults.push_fault(path, format!("expected {expected}, found {found}{hint}"));
        }
    }
}

fn table(schema: &Json, root: &Json, members: &[(String, ConfigValue)], path: &str, faults: &mut ConfigFaults) {
    for (key, value) in members {
        let path = path::child(path, key);
        match member(schema, key) {
            Some(schema) => check_against_schema(schema, root, value, &path, faults),
            None => faults.push_fault(path, unknown_key(schema, root, key)),
        }
    }
    for name in schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str) {
        if !members.iter().any(|(key, _)| key == name) {
            faults.push_fault(path::child(path, name), "is required and missing");
        }
    }
}

/// Schema of a table's member: a declared one, or that of a table whose keys are free.
pub(super) fn member<'s>(schema: &'s Json, key: &str) -> Option<&'s Json> {
    let free = || schema.get("additionalProperties").filter(|rest| **rest != Json::Bool(false));
    schema.get("properties").and_then(|known| known.get(key)).or_else(free)
}

/// Names that a table declares.
pub(super) fn names(schema: &Json) -> impl Iterator<Item = &str> {
    schema.get("properties").and_then(Json::as_object).into_iter().flatten().map(|(name, _)| name.as_str())
}

/// Type, if the schema has one. Absent values are never checked, so `null` is not considered.
pub(super) fn type_of(schema: &Json) -> Option<&str> {
    match schema.get("type")? {
        Json::String(ty) => Some(ty),
        Json::Array(types) => types.iter().filter_map(Json::as_str).find(|ty| *ty != "null"),
        _ => None,
    }
}

/// Closed list of a string, if it has one.
fn choices(schema: &Json) -> Option<Vec<&str>> {
    if let Some(list) = schema.get("enum").and_then(Json::as_array) {
        return Some(list.iter().filter_map(Json::as_str).collect());
    }
    let list = schema.get("oneOf").and_then(Json::as_array)?;
    Some(list.iter().filter_map(|choice| choice.get("const").and_then(Json::as_str)).collect())
}

/// Returns true if a schema requires a string.
pub(super) fn is_text(schema: &Json) -> bool {
    choices(schema).is_some() || type_of(schema) == Some("string")
}

/// Message for a key that a table does not have.
pub(super) fn unknown_key(schema: &Json, root: &Json, key: &str) -> String {
    if let Some(name) = nearest(key, names(schema)) {
        return format!("{UNKNOWN_KEY}; did you mean `{name}`?");
    }
    // A key that exists in another section is most likely in the wrong place.
    let elsewhere: Vec<_> = root
        .get("properties")
        .and_then(Json::as_object)
        .into_iter()
        .flatten()
        .filter(|(_, section)| names(section).any(|name| name == key))
        .map(|(section, _)| format!("[{section}]"))
        .collect();
    if !elsewhere.is_empty() {
        return format!("{UNKNOWN_KEY}; it belongs in {}", elsewhere.join(" or "));
    }
    let known: Vec<_> = names(schema).collect();
    format!("{UNKNOWN_KEY}; known: {}", known.join(", "))
}

/// Suggestion after an unknown name: "did you mean", or else all known names.
pub(super) fn suggestion(given: &str, known: &[&str]) -> String {
    match nearest(given, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => "there are none".to_owned(),
        None => format!("known: {}", known.join(", ")),
    }
}

/// Checks that a number is within its bounds; NaN is not.
fn in_range(number: f64, min: f64, max: f64) -> Result<(), String> {
    if number >= min && number <= max {
        Ok(())
    } else if number < min {
        Err(format!("{number:?} is below {min:?}"))
    } else if number > max && max == f64::MAX {
        Err("infinity is not allowed".to_owned())
    } else if number > max {
        Err(format!("{number:?} is above {max:?}"))
    } else {
        Err(format!("not a number; allowed: {min:?} to {max:?}"))
    }
}
