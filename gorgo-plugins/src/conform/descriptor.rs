//! The descriptor has everything that users and tuners need: version, summary, help of each option, unique names.

use super::subject::JudgeSubject;

pub(super) fn check(subject: &JudgeSubject) -> Result<String, String> {
    let about = &subject.about;
    if about.version.is_empty() || about.summary.is_empty() {
        return Err("`version` or `summary` is empty".to_owned());
    }
    if let Some(spec) = about.options.iter().find(|spec| spec.help.is_empty()) {
        return Err(format!("option {} has no help", spec.name));
    }
    let mut names: Vec<_> = about.options.iter().map(|spec| &spec.name).collect();
    names.sort();
    if let Some(twice) = names.windows(2).find(|two| two[0] == two[1]) {
        return Err(format!("option {} is declared twice", twice[0]));
    }
    Ok(format!("{} {}, unit {}", about.name, about.version, about.unit))
}
