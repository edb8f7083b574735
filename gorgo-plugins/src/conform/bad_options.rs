//! An instance made of a wrong setup is refused with text. The router checks options before; this is the second door.

use super::subject::Subject;
use crate::abi;
use crate::host::PluginError;
use crate::host::instance::Instance;
use crate::host::options::{Set, To};

pub(super) fn check(subject: &Subject) -> Result<String, String> {
    // Text where a number is declared: a plugin may take its default instead, but must live.
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
    for settings in [&confused[..], &[]] {
        match Instance::create(&subject.about.name, &subject.functions, &subject.fleet, settings) {
            Ok(_) => {}
            Err(PluginError::Create { cause, .. }) if cause.contains("panic") => {
                return Err(format!("settings of the wrong type: {cause}"));
            }
            Err(PluginError::Create { cause, .. }) if cause == "an error" => {
                return Err("it refuses without a word".to_owned());
            }
            Err(_) => {}
        }
    }
    Ok("lives".to_owned())
}
