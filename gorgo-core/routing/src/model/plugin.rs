//! Statistics of plugins, for metrics and for operators.

use std::sync::Arc;

/// Statistics of one plugin since it was loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginCounts {
    /// The name that the plugin gives itself.
    pub plugin: Arc<str>,
    /// Calls.
    pub calls: u64,
    /// Calls whose answer could not be used: an error, or a number that is not finite.
    pub failures: u64,
    /// Calls over the time budget, among those that were measured.
    pub over_budget: u64,
    /// Time spent in calls, seconds.
    pub seconds: f64,
    /// True if it was quarantined.
    pub quarantined: bool,
}
