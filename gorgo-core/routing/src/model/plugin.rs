//! What became of plugins: counts for metrics and for people.

use std::sync::Arc;

/// What one plugin did since it was loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginCount {
    /// The name that the plugin gives itself.
    pub plugin: Arc<str>,
    /// Calls.
    pub calls: u64,
    /// Calls whose answer could not be used: an error, a number that is not finite.
    pub failures: u64,
    /// Calls over the time budget, of those that were measured.
    pub over_budget: u64,
    /// Time spent in calls, seconds.
    pub seconds: f64,
    /// Whether it was taken out.
    pub quarantined: bool,
}
