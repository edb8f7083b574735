//! llama.cpp's server. Metrics need `--metrics`; `usage` always contains the cached tokens.
//!
//! The probe asks `/health`, which needs no key, is answered without occupying a slot, and returns 503 while a model loads.
//! Current builds no longer have KV figures on the metrics page; those of older builds are still read.

use super::{Across, Adapter, EngineKind, Field, MetricsPage, Series};

pub(super) const ENGINE: Adapter = Adapter {
    kind: EngineKind::LlamaCpp,
    name: "llama-cpp",
    summary: "llama.cpp's server",
    probe_path: "/health",
    models_path: "/v1/models",
    metrics: Some(MetricsPage { path: "/metrics", series: &[SERIES], flag: Some("--metrics") }),
    capacity: None,
    limits: None,
    cached_tokens_flag: None,
    cache_events: false,
    setting_flags: &[],
};

const SERIES: &[Series] = &[
    Series::sample("llamacpp:requests_processing", Field::Running, Across::Sum),
    Series::sample("llamacpp:requests_deferred", Field::Waiting, Across::Sum),
    Series::sample("llamacpp:kv_cache_tokens", Field::KvUsedTokens, Across::Sum),
    Series::sample("llamacpp:kv_cache_usage_ratio", Field::KvUsedShare, Across::Mean),
    Series::sample("llamacpp:prompt_tokens_total", Field::PromptTokensTotal, Across::Sum),
    Series::sample("llamacpp:tokens_predicted_total", Field::GeneratedTokensTotal, Across::Sum),
];
