//! llama.cpp's server. Metrics need `--metrics`; `usage` always contains the cached tokens.
//!
//! The probe asks `/health`, which needs no key, is answered without occupying a slot, and returns 503 while a model loads.
//! Current builds no longer have KV figures on the metrics page; those of older builds are still read.

use super::{EngineAdapter, EngineKind, LabelAggregation, MetricField, MetricSeries, MetricsPage};

pub(super) const ENGINE: EngineAdapter = EngineAdapter {
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

const SERIES: &[MetricSeries] = &[
    MetricSeries::sample("llamacpp:requests_processing", MetricField::Running, LabelAggregation::Sum),
    MetricSeries::sample("llamacpp:requests_deferred", MetricField::Waiting, LabelAggregation::Sum),
    MetricSeries::sample("llamacpp:kv_cache_tokens", MetricField::KvUsedTokens, LabelAggregation::Sum),
    MetricSeries::sample("llamacpp:kv_cache_usage_ratio", MetricField::KvUsedShare, LabelAggregation::Mean),
    MetricSeries::sample("llamacpp:prompt_tokens_total", MetricField::PromptTokensTotal, LabelAggregation::Sum),
    MetricSeries::sample("llamacpp:tokens_predicted_total", MetricField::GeneratedTokensTotal, LabelAggregation::Sum),
];
