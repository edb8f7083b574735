//! What is wrong with a configuration: all of it, each with its place.

/// Whether a finding stops the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// It must be mended.
    Fault,
    /// Legal but foolish.
    Warning,
}

/// One finding. `path` is the key's path as in `policy.gorgo.term[0].weight.max`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The key's path.
    pub path: String,
    /// What is wrong, what is allowed; lower case, no full stop.
    pub message: String,
    /// Fault or warning.
    pub severity: Severity,
}

/// All findings so far. Checks go on after the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    /// In the order found; reports sort them by line.
    pub list: Vec<Fault>,
}

impl Faults {
    /// Adds a fault.
    pub fn fault(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.list.push(Fault { path: path.into(), message: message.into(), severity: Severity::Fault });
    }

    /// Adds a warning.
    pub fn warn(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.list.push(Fault { path: path.into(), message: message.into(), severity: Severity::Warning });
    }

    /// Whether anything must be mended.
    #[must_use]
    pub fn any(&self) -> bool {
        self.list.iter().any(|fault| fault.severity == Severity::Fault)
    }

    /// Takes over another list.
    pub fn extend(&mut self, other: Self) {
        self.list.extend(other.list);
    }
}
