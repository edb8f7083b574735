//! Engines: one file per kind, which states as data how that engine differs (name, paths, metric names, launch flags).
//! A new engine is such a file and its three lines here. The code that queries engines by these rows is `wire`'s `engine`.
//!
//! All of them take their key as `authorization: Bearer …`, also on health, metrics and model paths.

mod llama_cpp;
mod openai;
mod page;
mod sglang;
mod simulated;
mod vllm;

pub use page::{CapacityPage, LabelAggregation, LimitsPage, MetricField, MetricSeries, MetricsPage};

/// Engine of a replica; selects its adapter, whose position in [`ENGINES`] is the kind's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each kind is described by its adapter's `summary`")]
pub enum EngineKind {
    Sglang,
    Vllm,
    LlamaCpp,
    OpenAi,
    Simulated,
}

/// All engines, in documentation order.
pub const ENGINES: &[&EngineAdapter] =
    &[&sglang::ENGINE, &vllm::ENGINE, &llama_cpp::ENGINE, &openai::ENGINE, &simulated::ENGINE];

/// Description of one kind of engine.
#[derive(Debug)]
pub struct EngineAdapter {
    /// Kind of the engine.
    pub kind: EngineKind,
    /// Name in configuration files and in the database.
    pub name: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// Path that is answered at once, without touching the model: its answer time is the round trip. A 5xx there
    /// means that the engine reports itself dead.
    pub probe_path: &'static str,
    /// Path of the list of models.
    pub models_path: &'static str,
    /// Metrics page; `None`: the engine has none, and routing relies on the router's own accounting.
    pub metrics: Option<MetricsPage>,
    /// Page with the KV capacity, for engines whose metrics page lacks it.
    pub capacity: Option<CapacityPage>,
    /// A page with the number of requests that the engine decodes cheaply and runs at once; `None`: there is none.
    pub limits: Option<LimitsPage>,
    /// The engine flag without which `usage` lacks `prompt_tokens_details.cached_tokens`; `None`: no flag is needed
    /// or none is known.
    pub cached_tokens_flag: Option<&'static str>,
    /// True if the engine can publish the events of its KV cache.
    pub cache_events: bool,
    /// Launch flags of the settings that `gorgo` advises on; a setting that is not listed does not exist, or was not
    /// studied.
    pub setting_flags: &'static [(EngineSetting, &'static str)],
}

/// Engine setting that, when wrong, costs more than routing can gain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineSetting {
    /// Requests that run at once.
    RunningRequests,
    /// Tokens of a prefill chunk.
    PrefillChunk,
    /// Order of the engine's own queue.
    QueueOrder,
}

impl EngineKind {
    /// The row of this engine.
    #[must_use]
    pub fn adapter(self) -> &'static EngineAdapter {
        // Every kind has its row (tested below); if one were missing, nothing beyond the API would be assumed of it.
        ENGINES.iter().find(|row| row.kind == self).copied().unwrap_or(&openai::ENGINE)
    }

    /// The name in configuration files and in the database.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.adapter().name
    }

    /// The engine of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        ENGINES.iter().find(|row| row.name == name).map(|row| row.kind)
    }

    /// All names, in documentation order.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        ENGINES.iter().map(|row| row.name).collect()
    }
}

impl EngineAdapter {
    /// Message for an operator: this replica does not report its cached tokens, and which flag would make it.
    #[must_use]
    pub fn missing_cached_tokens(&self, replica: &str) -> String {
        let engine = self.name;
        match self.cached_tokens_flag {
            // Naming the flag lets an operator act at once.
            Some(flag) => format!("replica {replica} reports no cached tokens: start {engine} with {flag}"),
            None => format!(
                "replica {replica} reports no cached tokens, and no flag of {engine} is known that would make it; \
                 its part of the prefix index goes uncorrected"
            ),
        }
    }

    /// The launch flag of a setting.
    #[must_use]
    pub fn flag(&self, setting: EngineSetting) -> Option<&'static str> {
        self.setting_flags.iter().find(|(known, _)| *known == setting).map(|(_, flag)| *flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_exactly_one_row() {
        // Kinds are numbered from 0 in the order of the rows, so a kind without a row shifts the numbers after it, and
        // `Simulated`, the last one, closes the list.
        for (place, row) in ENGINES.iter().enumerate() {
            assert_eq!(row.kind as usize, place, "`ENGINES` and `EngineKind` list `{}` in the same place", row.name);
            assert_eq!(EngineKind::parse(row.name), Some(row.kind));
            assert_eq!(row.kind.adapter().name, row.name);
            assert!(!row.summary.is_empty(), "{}", row.name);
        }
        assert_eq!(ENGINES.last().map(|row| row.kind), Some(EngineKind::Simulated), "new engines come before it");
        let mut names = EngineKind::names();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ENGINES.len(), "each name once");
    }

    #[test]
    fn every_path_is_one() {
        for row in ENGINES {
            let metrics = row.metrics.as_ref().map(|page| page.path);
            let capacity = row.capacity.as_ref().map(|page| page.path);
            let limits = row.limits.as_ref().map(|page| page.path);
            for path in [Some(row.probe_path), Some(row.models_path), metrics, capacity, limits].into_iter().flatten() {
                assert!(path.starts_with('/'), "{path}");
            }
            assert_ne!(Some(row.probe_path), metrics, "the metrics page grows under load: no round trip");
        }
    }

    #[test]
    fn every_setting_has_one_flag() {
        for row in ENGINES {
            for (place, (setting, flag)) in row.setting_flags.iter().enumerate() {
                assert!(flag.starts_with("--"), "{}: {flag}", row.name);
                assert!(row.setting_flags[..place].iter().all(|(known, _)| known != setting), "{}: {flag}", row.name);
            }
        }
    }

    #[test]
    fn the_missing_flag_is_named() {
        let text = EngineKind::Vllm.adapter().missing_cached_tokens("ap-seoul");
        assert_eq!(text, "replica ap-seoul reports no cached tokens: start vllm with --enable-prompt-tokens-details");
        assert!(EngineKind::OpenAi.adapter().missing_cached_tokens("x").contains("goes uncorrected"));
    }
}
