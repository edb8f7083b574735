//! A kind's table → its parameters: types, ranges, defaults and unknown keys, all from the declarations.

use super::suggest::suggestion;
use crate::model::{ConfigFaults, ConfigValue, ParamSpec, ParamType, ParamValues};

/// Reads the members of a kind's table at `path`. `shared`: keys of the table that another function reads.
pub(super) fn read(
    members: &[(String, ConfigValue)],
    declared: &[ParamSpec],
    shared: &[&str],
    path: &str,
    faults: &mut ConfigFaults,
) -> ParamValues {
    for (key, _) in members {
        if !declared.iter().any(|param| param.name == key) && !shared.contains(&&**key) {
            let known = declared.iter().map(|param| param.name).chain(shared.iter().copied());
            faults.push_fault(format!("{path}.{key}"), format!("unknown key; {}", suggestion(key, known)));
        }
    }
    let mut params = ParamValues::default();
    for param in declared {
        let value = match members.iter().find(|(key, _)| key == param.name) {
            Some((_, value)) => match check(param.ty, value) {
                Ok(()) => Some(value.clone()),
                Err(message) => {
                    // Left out and not replaced by the default: a fault must not turn into a setting that nobody
                    // chose.
                    faults.push_fault(format!("{path}.{}", param.name), message);
                    None
                }
            },
            None => default(param.ty),
        };
        params.values.extend(value.map(|value| (param.name, value)));
    }
    params
}

/// Value of a parameter that is absent.
fn default(ty: ParamType) -> Option<ConfigValue> {
    match ty {
        ParamType::Number { default, .. } => default.map(ConfigValue::Float),
        ParamType::Integer { default, .. } => default.map(ConfigValue::Integer),
        ParamType::Text { default, .. } => default.map(|text| ConfigValue::Text(text.to_owned())),
        ParamType::Bool { default } => Some(ConfigValue::Bool(default)),
        ParamType::TextList | ParamType::Table => None,
    }
}

/// Checks that a value is of the type and in its range; the error is the mistake and what is allowed.
fn check(ty: ParamType, value: &ConfigValue) -> Result<(), String> {
    let expected = match (ty, value) {
        (ParamType::Number { min, max, .. }, ConfigValue::Integer(_) | ConfigValue::Float(_)) => {
            return in_range(value.number().unwrap_or(f64::NAN), min, max);
        }
        (ParamType::Integer { min, max, .. }, ConfigValue::Integer(whole)) => {
            return match whole {
                whole if *whole < min => Err(format!("{whole} is below {min}")),
                whole if *whole > max => Err(format!("{whole} is above {max}")),
                _ => Ok(()),
            };
        }
        (ParamType::Text { choices, .. }, ConfigValue::Text(text)) => {
            return if choices.is_empty() || choices.contains(&&**text) {
                Ok(())
            } else {
                Err(format!("unknown value \"{text}\"; {}", suggestion(text, choices.iter().copied())))
            };
        }
        (ParamType::TextList, ConfigValue::List(list)) if list.iter().all(|entry| entry.text().is_some()) => {
            return Ok(());
        }
        (ParamType::Bool { .. }, ConfigValue::Bool(_)) | (ParamType::Table, ConfigValue::Table(_)) => return Ok(()),
        (ParamType::Number { .. }, _) => "a number",
        (ParamType::Integer { .. }, _) => "a whole number",
        (ParamType::Text { .. }, _) => "a string",
        (ParamType::TextList, _) => "an array of strings",
        (ParamType::Bool { .. }, _) => "true or false",
        (ParamType::Table, _) => "a table",
    };
    Err(format!("expected {expected}, found {}", value.type_name()))
}

/// Checks that `number` is in `[min, max]`; written so that NaN is not.
pub(super) fn in_range(number: f64, min: f64, max: f64) -> Result<(), String> {
    if number >= min && number <= max {
        Ok(())
    } else if number < min {
        Err(format!("{} is below {}", format_number(number), format_number(min)))
    } else if number > max {
        Err(format!("{} is above {}", format_number(number), format_number(max)))
    } else {
        Err(format!("not a number; allowed: {} to {}", format_number(min), format_number(max)))
    }
}

/// A number as it is written in the file: `1.0`, `1e9`.
fn format_number(number: f64) -> String {
    if number.abs() >= 1e6 { format!("{number:e}") } else { format!("{number:?}") }
}
