//! A setup with wrong settings must neither crash the plugin nor be refused without text. The router checks options
//! before it calls `create`; this is a second line of defence.

use super::subject::JudgeSubject;
use crate::abi;
use crate::host::PluginError;
use crate::host::instance::PluginInstance;
use crate::host::options::{OptionSetting, OptionValue};

pub(super) fn check(subject: &JudgeSubject) -> Result<String, String> {
    // Text where a number is declared: a plugin may use its default instead, but must not panic.
    let confused: Vec<OptionSetting> = subject
        .about
        .options
        .iter()
        .map(|spec| {
            let number = matches!(spec.kind, abi::kind::NUMBER | abi::kind::BOOL | abi::kind::NUMBERS);
            let to = if number { OptionValue::Text("?".to_owned()) } else { OptionValue::Number(f64::NAN) };
            OptionSetting { key: spec.name.clone(), value: to }
        })
        .collect();
    // Then no settings at all, as if the router had not filled in the defaults.
    for settings in [&confused[..], &[]] {
        match PluginInstance::create(&subject.about.name, &subject.functions, &subject.fleet, settings) {
            Ok(_) => {}
            Err(PluginError::Create { cause, .. }) if cause.contains("panic") => {
                return Err(format!("settings of the wrong type: {cause}"));
            }
            Err(PluginError::Create { cause, .. }) if cause == "an error" => {
                return Err("it refuses settings without an error text".to_owned());
            }
            Err(_) => {}
        }
    }
    Ok("no panic".to_owned())
}
