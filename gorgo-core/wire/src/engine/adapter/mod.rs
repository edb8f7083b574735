//! One row per engine: paths, metric names, and which flag is missing when a signal is.
//!
//! All of them take their key as `authorization: Bearer …`, also on health, metrics and model paths.

use super::limits::LimitsPage;
use super::metrics::Series;
use gorgo_routing::model::EngineKind;

mod llama_cpp;
mod openai;
mod sglang;
mod simulated;
mod vllm;

/// All engines, in documentation order.
pub const ENGINES: &[&Adapter] =
    &[&sglang::ENGINE, &vllm::ENGINE, &llama_cpp::ENGINE, &openai::ENGINE, &simulated::ENGINE];

/// What is particular to an engine.
#[derive(Debug)]
pub struct Adapter {
    /// Which engine.
    pub kind: EngineKind,
    /// A path that is answered at once, without touching the model: its answer time is the round trip. A 5xx there
    /// means that the engine calls itself dead.
    pub probe_path: &'static str,
    /// Where the list of models is.
    pub models_path: &'static str,
    /// Its metrics page; `None`: it has none, and routing goes by the router's own accounting.
    pub metrics: Option<MetricsPage>,
    /// Where the KV capacity is when the metrics page does not tell.
    pub capacity: Option<CapacityPage>,
    /// Where the engine shows how many requests it decodes cheaply and runs at once; `None`: nowhere.
    pub limits: Option<LimitsPage>,
    /// The engine flag without which `usage` lacks `prompt_tokens_details.cached_tokens`; `None`: no flag is needed
    /// or none is known.
    pub cached_tokens_flag: Option<&'static str>,
}

/// A Prometheus page.
#[derive(Debug)]
pub struct MetricsPage {
    /// Where.
    pub path: &'static str,
    /// What to read of it.
    pub series: &'static [&'static [Series]],
    /// The engine flag without which the page is missing; `None`: it is always there.
    pub flag: Option<&'static str>,
}

/// A JSON page with the KV capacity somewhere in it.
#[derive(Debug)]
pub struct CapacityPage {
    /// Where.
    pub path: &'static str,
    /// The member that holds it, tokens.
    pub member: &'static str,
}

impl Adapter {
    /// For people: this replica does not say how many prompt tokens were cached, and what would make it.
    #[must_use]
    pub fn missing_cached_tokens(&self, replica: &str) -> String {
        let engine = self.kind.name();
        match self.cached_tokens_flag {
            Some(flag) => format!("replica {replica} reports no cached tokens: start {engine} with {flag}"),
            None => format!(
                "replica {replica} reports no cached tokens, and no flag of {engine} is known that would make it; \
                 its part of the prefix index goes uncorrected"
            ),
        }
    }
}

/// The row of an engine.
#[must_use]
pub fn adapter(kind: EngineKind) -> &'static Adapter {
    // Each kind has its row (tested below); were one missing, nothing beyond the API would be assumed of it.
    ENGINES.iter().find(|row| row.kind == kind).copied().unwrap_or(&openai::ENGINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_exactly_one_row() {
        assert_eq!(ENGINES.iter().map(|row| row.kind).collect::<Vec<_>>(), EngineKind::ALL);
        for kind in EngineKind::ALL {
            assert_eq!(adapter(kind).kind, kind);
        }
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
    fn the_missing_flag_is_named() {
        let text = adapter(EngineKind::Vllm).missing_cached_tokens("ap-seoul");
        assert_eq!(text, "replica ap-seoul reports no cached tokens: start vllm with --enable-prompt-tokens-details");
        assert!(adapter(EngineKind::OpenAi).missing_cached_tokens("x").contains("goes uncorrected"));
    }
}
