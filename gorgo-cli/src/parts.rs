//! What configuration must be told about the other parts: this is where the commands connect `config` with `policy`
//! and `sim`, which do not know one another.

use gorgo_core::config::Draft;
use gorgo_core::model::{Faults, KindDoc, Value};

/// The names that a configuration may use.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Built-in policies: name and table.
    pub(crate) presets: Vec<(String, Value)>,
    /// Profiles of simulated engines.
    pub(crate) profiles: Vec<&'static str>,
    /// Kinds of all families.
    pub(crate) kinds: Vec<KindDoc>,
}

/// CONNECT: presets of `policy`, profiles of `sim`, rows of the registry. Until then `gorgo` is a name without a table.
pub(crate) fn parts() -> Parts {
    let presets = vec![("gorgo".to_owned(), Value::Table(Vec::new()))];
    Parts { presets, profiles: vec!["l40s-qwen3.5-35b"], kinds: Vec::new() }
}

/// CONNECT: `policy::build` over the draft's tables, default and fleet; its faults. It also runs where other parts of
/// the file have faults, so that all are reported at once.
pub(crate) fn policy_faults(_draft: &Draft) -> Faults {
    Faults::default()
}
