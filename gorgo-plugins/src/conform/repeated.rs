//! The same input must give the same output, also from another instance: a decision must be repeatable.

use super::facts::{candidates, request};
use super::subject::JudgeSubject;
use crate::host::instance::PluginInstance;

pub(super) fn check(subject: &JudgeSubject) -> Result<String, String> {
    let facts = candidates(9);
    let first = subject.ask(&request(), &facts)?;
    // Another call in between shows whether the plugin carries state from call to call.
    subject.ask(&request(), &candidates(4))?;
    if subject.ask(&request(), &facts)? != first {
        return Err("the same input gives other numbers the second time".to_owned());
    }
    let instance = PluginInstance::create(&subject.about.name, &subject.functions, &subject.fleet, &subject.settings)
        .map_err(|cause| cause.to_string())?;
    let other = JudgeSubject {
        symbol: subject.symbol,
        about: subject.about.clone(),
        functions: subject.functions,
        settings: Vec::new(),
        fleet: Vec::new(),
        instance,
    };
    if other.ask(&request(), &facts)? != first {
        return Err("another instance gives other numbers".to_owned());
    }
    Ok("the same numbers".to_owned())
}
