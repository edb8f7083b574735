//! Findings about a configuration: all of them, each with its location.

/// Severity of a finding: whether it stops the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// An error that must be fixed.
    Fault,
    /// Legal but unwise.
    Warning,
}

/// One finding. `path` is the key's path as in `policy.gorgo.term[0].weight.max`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    /// The key's path.
    pub path: String,
    /// Message: the mistake and what is allowed; lower case, no full stop.
    pub message: String,
    /// Fault or warning.
    pub severity: Severity,
}

/// All findings so far. Checks continue after the first one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigFaults {
    /// In the order found; reports sort them by line.
    pub list: Vec<ConfigFault>,
}

impl ConfigFaults {
    /// Adds a fault.
    pub fn push_fault(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.list.push(ConfigFault { path: path.into(), message: message.into(), severity: Severity::Fault });
    }

    /// Adds a warning.
    pub fn push_warning(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.list.push(ConfigFault { path: path.into(), message: message.into(), severity: Severity::Warning });
    }

    /// Returns true if there is an error that must be fixed.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        self.list.iter().any(|fault| fault.severity == Severity::Fault)
    }

    /// Appends the findings of another list.
    pub fn extend(&mut self, other: Self) {
        self.list.extend(other.list);
    }
}
