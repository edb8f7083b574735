//! Where each value came from.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use super::path;
use super::source::{Source, unmark};
use crate::model::Fault;

/// Begins the message of a fault that is in the key and not in its value.
pub(super) const UNKNOWN_KEY: &str = "unknown key";

/// Who set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody.
    Default,
    /// A built-in policy that an environment variable or a flag changes.
    Preset,
    /// The file.
    File,
    /// The environment variable of that name.
    Environment(String),
    /// A flag, as it was written: `--set server.listen`.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Preset => f.write_str("preset"),
            Self::File => f.write_str("file"),
            Self::Environment(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

/// The file that was read, and who set each value.
#[derive(Debug, Clone, PartialEq)]
pub struct Origins {
    source: Source,
    /// By plain path; values nobody set are not in it, or are there as [`Origin::Default`].
    nodes: HashMap<String, Origin>,
}

/// Where a finding is to be mended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Spot<'a> {
    /// In the file as a whole.
    Whole,
    /// At bytes of the file, with the path as it is known.
    File(Range<usize>, &'a str),
    /// In a variable or a flag, and within its value at this path, which may be empty.
    Named(&'a str, &'a str),
}

impl Origins {
    pub(super) const fn new(source: Source, nodes: HashMap<String, Origin>) -> Self {
        Self { source, nodes }
    }

    /// The file.
    #[must_use]
    pub const fn source(&self) -> &Source {
        &self.source
    }

    /// Who set the value at `path`.
    #[must_use]
    pub fn of(&self, path: &str) -> &Origin {
        self.nodes.get(&path::plain(path)).unwrap_or(&Origin::Default)
    }

    /// `policies.toml:12`, `default`, `GORGO_SERVER__LISTEN`, `--set server.listen`: for the comment beside a value.
    #[must_use]
    pub fn describe(&self, path: &str) -> String {
        match self.of(path) {
            Origin::File => {
                let line = self.source.place(&path::plain(path)).map_or(1, |place| self.source.line(place.key.start));
                format!("{}:{line}", self.source.name())
            }
            other => other.to_string(),
        }
    }

    /// Where a fault is to be mended: at its path, or else at what is known of the way there.
    pub(super) fn locate<'a>(&'a self, fault: &'a Fault) -> Spot<'a> {
        if let Some((span, rest)) = unmark(&fault.path) {
            return Spot::File(span, rest);
        }
        let plain = path::plain(&fault.path);
        let mut inner = true;
        for at in path::outwards(&plain) {
            match self.nodes.get(at) {
                Some(Origin::File) => {
                    let span = self.span(at, inner && !fault.message.starts_with(UNKNOWN_KEY));
                    return Spot::File(span, &fault.path);
                }
                Some(Origin::Environment(name) | Origin::Flag(name)) => {
                    return Spot::Named(name, self.within(name, &plain, &fault.path));
                }
                _ => inner = false,
            }
        }
        if plain.is_empty() {
            Spot::Whole
        } else if plain.starts_with("GORGO_") || plain.starts_with("--") {
            Spot::Named(&fault.path, "")
        } else {
            Spot::File(0..0, &fault.path)
        }
    }

    /// The bytes to point at: the value, where it begins on the line of its key, or the key.
    fn span(&self, plain: &str, value: bool) -> Range<usize> {
        let Some(place) = self.source.place(plain) else { return 0..0 };
        let beside = self.source.line(place.key.start) == self.source.line(place.value.start);
        if value && beside { place.value.clone() } else { place.key.clone() }
    }

    /// What of a path lies within the value that `name` set: nothing, where it set just that value or a part of it.
    fn within<'a>(&self, name: &str, plain: &str, path: &'a str) -> &'a str {
        let set = path::outwards(plain)
            .filter(|at| matches!(self.nodes.get(*at), Some(Origin::Environment(by) | Origin::Flag(by)) if by == name))
            .last()
            .unwrap_or(plain);
        // An odd name has quotes in one and not in the other; then the whole path is shown.
        if path::plain(path) != path {
            return path;
        }
        path.get(set.len()..).unwrap_or(path).trim_start_matches('.')
    }
}
