//! The engine simulated by gorgo itself. It shows the metrics page of SGLang or of vLLM, so both are read, and
//! always reports the cached tokens.

use super::{EngineAdapter, EngineKind, MetricsPage, sglang, vllm};

pub(super) const ENGINE: EngineAdapter = EngineAdapter {
    kind: EngineKind::Simulated,
    name: "simulated",
    summary: "an engine simulated by gorgo, behind a real server on loopback",
    probe_path: "/health",
    models_path: "/v1/models",
    metrics: Some(MetricsPage { path: "/metrics", series: &[sglang::SERIES, vllm::SERIES], flag: None }),
    capacity: None,
    limits: Some(sglang::LIMITS),
    cached_tokens_flag: None,
    cache_events: false,
    setting_flags: &[],
};
