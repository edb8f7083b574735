//! Environment variables → settings. `GORGO_` + path, `__` between levels, any case, `_` for `-` and for every other
//! special character: `GORGO_STORE__FLUSH_MS`, `GORGO_POLICY__GORGO__TERM__0__WEIGHT`, `GORGO_REPLICA__US_ASHBURN__URL`
//! (array elements by index or name). A variable that names no key is a fault: a misspelt one would have no effect.

use std::ffi::OsString;

use super::nearest::folded;
use crate::model::ConfigFaults;

const PREFIX: &str = "GORGO_";

/// Variables with the prefix that are not keys: `GORGO_CONFIG` is the file (`--config`), `GORGO_SHARED` the folder of
/// data that tests and benchmarks read if it exists.
pub const NOT_CONFIGURATION: [&str; 2] = ["GORGO_CONFIG", "GORGO_SHARED"];

/// Variable that should name a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EnvVariable {
    /// Name as it is set.
    pub(super) name: String,
    /// Levels of the path.
    pub(super) parts: Vec<String>,
    /// Text of the value.
    pub(super) value: String,
}

/// Variables that name keys, sorted by name, so that one for a table precedes those for its members.
/// `keys`: variables that hold API keys, whatever their names.
pub(super) fn read(environment: &[(OsString, OsString)], keys: &[&str], faults: &mut ConfigFaults) -> Vec<EnvVariable> {
    let mut found: Vec<EnvVariable> = Vec::new();
    for (name, value) in environment {
        // Names that are not UTF-8 cannot have the prefix.
        let Some(name) = name.to_str() else { continue };
        let Some((prefix, path)) = name.split_at_checked(PREFIX.len()) else { continue };
        let listed = |list: &[&str]| list.iter().any(|other| name.eq_ignore_ascii_case(other));
        if !prefix.eq_ignore_ascii_case(PREFIX) || listed(&NOT_CONFIGURATION) || keys.contains(&name) || is_link(path) {
            continue;
        }
        let Some(value) = value.to_str() else {
            faults.push_fault(name, "the value is not UTF-8");
            continue;
        };
        let parts = path.split("__").map(str::to_owned).collect();
        found.push(EnvVariable { name: name.to_owned(), parts, value: value.to_owned() });
    }
    found.sort_by_key(|variable| (variable.name.to_ascii_uppercase(), variable.name.clone()));
    // Sorted without case, so two spellings of one name are neighbours.
    for pair in found.windows(2) {
        if let [one, other] = pair
            && one.name.eq_ignore_ascii_case(&other.name)
        {
            faults.push_fault(&one.name, format!("is also set as {}; names are read in any case", other.name));
        }
    }
    found
}

/// Returns true for variables that Kubernetes sets in every pod of a namespace with a service called `gorgo` or
/// `gorgo-…`: `GORGO_SERVICE_HOST`, `GORGO_PORT_8080_TCP_ADDR` and so on. They have one level, and no key has such a
/// name.
fn is_link(path: &str) -> bool {
    let path = format!("_{}", path.to_ascii_uppercase());
    let service = path.ends_with("_SERVICE_HOST") || path.ends_with("_SERVICE_PORT") || path.contains("_SERVICE_PORT_");
    let port = path.split("_PORT_").nth(1).is_some_and(|rest| rest.starts_with(|char: char| char.is_ascii_digit()));
    !path.contains("__") && (service || port || path.ends_with("_PORT"))
}

/// Variable for a path.
pub(super) fn name_of(parts: &[String]) -> String {
    let parts: Vec<_> = parts.iter().map(|part| folded(part).to_ascii_uppercase()).collect();
    format!("{PREFIX}{}", parts.join("__"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_means_a_key_is_read() {
        let set = [
            "GORGO_SHARED",
            "gorgo_config",
            "GORGO_SERVICE_HOST",
            "GORGO_PORT",
            "GORGO_PORT_80_TCP",
            "GORGO_EU_PORT",
            "GORGO_SEOUL_KEY",
            "PATH",
            "GORG",
            "gorgo_Log__Filter",
            "GORGO_STORE__RETENTION",
            "GORGO_PROT",
        ];
        let environment: Vec<_> = set.iter().map(|name| (OsString::from(name), OsString::from("1"))).collect();
        let mut faults = ConfigFaults::default();
        let names: Vec<_> =
            read(&environment, &["GORGO_SEOUL_KEY"], &mut faults).into_iter().map(|variable| variable.name).collect();
        assert_eq!(names, ["gorgo_Log__Filter", "GORGO_PROT", "GORGO_STORE__RETENTION"]);
        assert!(!faults.has_faults());
    }

    #[test]
    fn a_variable_in_two_cases_is_a_fault() {
        let environment = [("GORGO_LOG__FILTER", "a"), ("gorgo_log__filter", "b")]
            .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let mut faults = ConfigFaults::default();
        read(&environment, &[], &mut faults);
        assert_eq!(faults.list[0].message, "is also set as gorgo_log__filter; names are read in any case");
    }
}
