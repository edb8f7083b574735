//! A setup with wrong settings must neither crash the plugin nor be refused without text. The router checks options
//! before it calls `create`; this is a second line of defence.

use super::subject::Subject;
use crate::abi;
use crate::host::PluginError;
use crate::host::instance::Instance;
use crate::host::options::{Set, To};

pub(super) fn check(subject: &Subject) -> Result<String, String> {
    // Text where a number is declared: a plugin may use its default instead, but must not panic.
    let confused: Vec<Set> = subject
        .about
        .options
        .iter()
        .map(|spec| {
            let number = matches!(spec.kind, abi::kind::NUMBER | abi::kind::BOOL | abi::kind::NUMBERS);
            let to = if number { To::Text("?".to_owned()) } else { To::Number(f64::NAN) };
            Set { key: spec.name.clone(), to }
        })
        .collect();
    // Then no settings at all, as if the router had not filled in the defaults.
    for settings in [&confused[..], &[]] {
        match Instance::create(&subject.about.name, &subject.functions, &subject.fleet, settings) {
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
