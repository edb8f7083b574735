//! The `options` table of a policy → settings as the contract passes them, checked against the plugin's declarations.

use gorgo_routing::model::ConfigValue;

use super::descriptor::DeclaredOption;
use super::error::PluginError;
use crate::abi;

/// One setting, owned by the host.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OptionSetting {
    pub(crate) key: String,
    pub(crate) value: OptionValue,
}

/// Value of an option.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OptionValue {
    Number(f64),
    Bool(bool),
    Text(String),
}

/// Returns the settings in the order of declaration, or all faults in one text.
pub(crate) fn settings(
    declared: &[DeclaredOption],
    given: Option<&ConfigValue>,
) -> Result<Vec<OptionSetting>, PluginError> {
    let members: &[(String, ConfigValue)] = match given {
        Some(ConfigValue::Table(members)) => members,
        _ => &[],
    };
    // All faults are collected, so that a user can correct them in one go.
    let mut wrong = Vec::new();
    for (key, _) in members.iter().filter(|(key, _)| declared.iter().all(|spec| spec.name != *key)) {
        let known: Vec<_> = declared.iter().map(|spec| &*spec.name).collect();
        let known =
            if known.is_empty() { "the plugin has none".to_owned() } else { format!("known: {}", known.join(", ")) };
        wrong.push(format!("`options.{key}` is unknown; {known}"));
    }
    let mut settings = Vec::new();
    for spec in declared {
        match members.iter().find(|(key, _)| *key == spec.name) {
            Some((_, value)) => {
                if let Err(message) = read(spec, value, &mut settings) {
                    wrong.push(message);
                }
            }
            None if spec.required() => wrong.push(format!("`options.{}` is missing: {}", spec.name, spec.help)),
            // Defaults are filled in here, so that plugins in C need not know their own.
            None if spec.default.is_finite() => {
                let to = if spec.kind == abi::kind::BOOL {
                    OptionValue::Bool(spec.default > 0.0)
                } else {
                    OptionValue::Number(spec.default)
                };
                settings.push(OptionSetting { key: spec.name.clone(), value: to });
            }
            None => {}
        }
    }
    if wrong.is_empty() { Ok(settings) } else { Err(PluginError::Options(wrong.join("; "))) }
}

fn read(spec: &DeclaredOption, value: &ConfigValue, settings: &mut Vec<OptionSetting>) -> Result<(), String> {
    let key = || spec.name.clone();
    let expected = match (spec.kind, value) {
        (abi::kind::NUMBER, ConfigValue::Integer(_) | ConfigValue::Float(_)) => {
            settings.push(OptionSetting { key: key(), value: OptionValue::Number(within(spec, &spec.name, value)?) });
            return Ok(());
        }
        // The form in which weights are tuned, `{ init = …, tune = true }`: the fault says what to do instead.
        (abi::kind::NUMBER, ConfigValue::Table(members))
            if members.iter().any(|(key, _)| key == "tune" || key == "init") =>
        {
            return Err(format!(
                "`options.{}`: options cannot be tuned; set a number here and tune the weight",
                spec.name
            ));
        }
        // The contract has no tables: each member becomes a setting `option.name`.
        (abi::kind::NUMBERS, ConfigValue::Table(members)) => {
            for (name, value) in members {
                let key = format!("{}.{name}", spec.name);
                let number = within(spec, &key, value)?;
                settings.push(OptionSetting { key, value: OptionValue::Number(number) });
            }
            return Ok(());
        }
        (abi::kind::TEXT, ConfigValue::Text(text)) => {
            settings.push(OptionSetting { key: key(), value: OptionValue::Text(text.clone()) });
            return Ok(());
        }
        // Nor has it lists: each text becomes a setting of the same key.
        (abi::kind::TEXTS, ConfigValue::List(list)) if list.iter().all(|entry| entry.text().is_some()) => {
            let texts = list.iter().filter_map(ConfigValue::text);
            settings.extend(texts.map(|text| OptionSetting { key: key(), value: OptionValue::Text(text.to_owned()) }));
            return Ok(());
        }
        (abi::kind::BOOL, ConfigValue::Bool(truth)) => {
            settings.push(OptionSetting { key: key(), value: OptionValue::Bool(*truth) });
            return Ok(());
        }
        (abi::kind::NUMBER, _) => "a number",
        (abi::kind::NUMBERS, _) => "a table of numbers",
        (abi::kind::TEXT, _) => "a string",
        (abi::kind::TEXTS, _) => "an array of strings",
        _ => "true or false",
    };
    Err(format!("`options.{}`: expected {expected}, found {}", spec.name, value.type_name()))
}

/// Returns the number if it is within the declared bounds; the comparisons are written so that NaN is not.
fn within(spec: &DeclaredOption, key: &str, value: &ConfigValue) -> Result<f64, String> {
    match value.number() {
        Some(number) if number >= spec.min && number <= spec.max => Ok(number),
        Some(number) => Err(format!("`options.{key}`: {number} is not between {} and {}", spec.min, spec.max)),
        None => Err(format!("`options.{key}`: expected a number, found {}", value.type_name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, kind: u32, flags: u32, default: f64) -> DeclaredOption {
        let (unit, help) = (String::new(), "what it is for".to_owned());
        DeclaredOption { name: name.to_owned(), unit, help, kind, flags, default, min: 0.0, max: 10.0 }
    }

    fn specs() -> Vec<DeclaredOption> {
        vec![
            spec("share", abi::kind::NUMBER, abi::option_flag::REQUIRED, f64::NAN),
            spec("grams", abi::kind::NUMBERS, 0, f64::NAN),
            spec("allow", abi::kind::TEXTS, 0, f64::NAN),
            spec("base", abi::kind::NUMBER, 0, 2.5),
            spec("strict", abi::kind::BOOL, 0, 1.0),
        ]
    }

    fn table(members: Vec<(&str, ConfigValue)>) -> ConfigValue {
        ConfigValue::Table(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    #[test]
    fn settings_are_flat_in_order_and_complete() {
        let given = table(vec![
            ("grams", table(vec![("us-east", ConfigValue::Integer(4)), ("eu", ConfigValue::Float(0.5))])),
            ("allow", ConfigValue::List(vec![ConfigValue::Text("eu".to_owned()), ConfigValue::Text("us".to_owned())])),
            ("share", ConfigValue::Integer(1)),
        ]);
        let shown: Vec<_> =
            settings(&specs(), Some(&given)).unwrap().iter().map(|it| format!("{} {:?}", it.key, it.value)).collect();
        let expected = [
            "share Number(1.0)",
            "grams.us-east Number(4.0)",
            "grams.eu Number(0.5)",
            "allow Text(\"eu\")",
            "allow Text(\"us\")",
            "base Number(2.5)",
            "strict Bool(true)",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let given = table(vec![
            ("gram", ConfigValue::Integer(1)),
            ("grams", table(vec![("eu", ConfigValue::Float(f64::NAN))])),
            ("base", ConfigValue::Integer(11)),
            ("strict", ConfigValue::Integer(1)),
            ("share", table(vec![("init", ConfigValue::Integer(1)), ("tune", ConfigValue::Bool(true))])),
        ]);
        let message = settings(&specs(), Some(&given)).unwrap_err().to_string();
        let expected = "`options.gram` is unknown; known: share, grams, allow, base, strict; `options.share`: options \
                        cannot be tuned; set a number here and tune the weight; `options.grams.eu`: NaN is not between 0 and 10; `options.base`: 11 is not \
                        between 0 and 10; `options.strict`: expected true or false, found a whole number";
        assert_eq!(message, expected);
        assert!(settings(&[], None).unwrap().is_empty());
    }
}
