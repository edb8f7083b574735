//! Origin of each value.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use super::path;
use super::source::{ConfigSource, parse_span_path};
use crate::model::ConfigFault;

/// Start of messages about faults in a key, not in its value.
pub(super) const UNKNOWN_KEY: &str = "unknown key";

/// Source that set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueOrigin {
    /// Not set: the default.
    Default,
    /// A built-in policy that an environment variable or a flag changes.
    Preset,
    /// Set in the file.
    File,
    /// Set by the environment variable of that name.
    Environment(String),
    /// Set by a flag, as it was written: `--set server.listen`.
    Flag(String),
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Preset => f.write_str("preset"),
            Self::File => f.write_str("file"),
            Self::Environment(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

/// File that was read, and origin of each value.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigOrigins {
    source: ConfigSource,
    /// Origins by plain path; values that are not set are missing, or have [`ValueOrigin::Default`].
    nodes: HashMap<String, ValueOrigin>,
}

/// Location at which a finding must be fixed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FaultLocation<'a> {
    /// The file as a whole.
    Whole,
    /// Bytes of the file, with the path as far as it is known.
    File(Range<usize>, &'a str),
    /// A variable or a flag, and the path within its value, which may be empty.
    Named(&'a str, &'a str),
}

impl ConfigOrigins {
    pub(super) const fn new(source: ConfigSource, nodes: HashMap<String, ValueOrigin>) -> Self {
        Self { source, nodes }
    }

    /// File that was read.
    #[must_use]
    pub const fn source(&self) -> &ConfigSource {
        &self.source
    }

    /// Origin of the value at `path`.
    #[must_use]
    pub fn origin(&self, path: &str) -> &ValueOrigin {
        self.nodes.get(&path::plain(path)).unwrap_or(&ValueOrigin::Default)
    }

    /// Text for the comment beside a value: `policies.toml:12`, `default`, `GORGO_SERVER__LISTEN`, `--set
    /// server.listen`.
    #[must_use]
    pub fn describe(&self, path: &str) -> String {
        match self.origin(path) {
            ValueOrigin::File => {
                let line =
                    self.source.span_of_key(&path::plain(path)).map_or(1, |place| self.source.line(place.key.start));
                format!("{}:{line}", self.source.name())
            }
            other => other.to_string(),
        }
    }

    /// Location at which a fault must be fixed: at its path, or else at the nearest known path around it.
    pub(super) fn locate<'a>(&'a self, fault: &'a ConfigFault) -> FaultLocation<'a> {
        // Faults of syntax have bytes instead of a path.
        if let Some((span, rest)) = parse_span_path(&fault.path) {
            return FaultLocation::File(span, rest);
        }
        let plain = path::plain(&fault.path);
        let mut inner = true;
        for at in path::ancestors(&plain) {
            match self.nodes.get(at) {
                Some(ValueOrigin::File) => {
                    // An unknown key, or a missing one within a table, is a matter of the key, not of the value.
                    let span = self.span(at, inner && !fault.message.starts_with(UNKNOWN_KEY));
                    return FaultLocation::File(span, &fault.path);
                }
                Some(ValueOrigin::Environment(name) | ValueOrigin::Flag(name)) => {
                    return FaultLocation::Named(name, self.within(name, &plain, &fault.path));
                }
                _ => inner = false,
            }
        }
        if plain.is_empty() {
            FaultLocation::Whole
        // Faults of variables and flags that name no key have their own name as the path.
        } else if plain.starts_with("GORGO_") || plain.starts_with("--") {
            FaultLocation::Named(&fault.path, "")
        } else {
            FaultLocation::File(0..0, &fault.path)
        }
    }

    /// Bytes to point at: the value if it begins on the line of its key, otherwise the key.
    fn span(&self, plain: &str, value: bool) -> Range<usize> {
        let Some(place) = self.source.span_of_key(plain) else { return 0..0 };
        let beside = self.source.line(place.key.start) == self.source.line(place.value.start);
        if value && beside { place.value.clone() } else { place.key.clone() }
    }

    /// Part of a path within the value that `name` set: empty if it set exactly that value or a part of it.
    fn within<'a>(&self, name: &str, plain: &str, path: &'a str) -> &'a str {
        let set = path::ancestors(plain)
            .filter(|at| matches!(self.nodes.get(*at), Some(ValueOrigin::Environment(by) | ValueOrigin::Flag(by)) if by == name))
            .last()
            .unwrap_or(plain);
        // An odd name has quotes in one form and not in the other; then the whole path is shown.
        if path::plain(path) != path {
            return path;
        }
        path.get(set.len()..).unwrap_or(path).trim_start_matches('.')
    }
}
