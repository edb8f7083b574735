//! vLLM. Metrics are always available; cached tokens in `usage` need `--enable-prompt-tokens-details`.
//!
//! The probe asks `/health`: the API process answers it without waiting for the engine, and with 503 once the engine
//! has died. Generation throughput is no gauge here; it is taken from the counter between two pages.

use super::{EngineAdapter, EngineKind, EngineSetting, LabelAggregation, MetricField, MetricSeries, MetricsPage};

pub(super) const ENGINE: EngineAdapter = EngineAdapter {
    kind: EngineKind::Vllm,
    name: "vllm",
    summary: "vLLM",
    probe_path: "/health",
    models_path: "/v1/models",
    metrics: Some(MetricsPage { path: "/metrics", series: &[SERIES], flag: None }),
    capacity: None,
    limits: None,
    cached_tokens_flag: Some("--enable-prompt-tokens-details"),
    cache_events: true,
    setting_flags: &[
        (EngineSetting::RunningRequests, "--max-num-seqs"),
        (EngineSetting::PrefillChunk, "--max-num-batched-tokens"),
    ],
};

/// Names as of 0.6 to 0.32; the newer one first where two mean the same. `kv_cache_usage_perc` is a share, 0 to 1, of blocks in
/// use by requests (not of blocks that hold a cached prefix).
pub(super) const SERIES: &[MetricSeries] = &[
    MetricSeries::sample("vllm:num_requests_running", MetricField::Running, LabelAggregation::Sum),
    MetricSeries::sample("vllm:num_requests_waiting", MetricField::Waiting, LabelAggregation::Sum),
    MetricSeries::sample("vllm:kv_cache_usage_perc", MetricField::KvUsedShare, LabelAggregation::Mean),
    MetricSeries::sample("vllm:gpu_cache_usage_perc", MetricField::KvUsedShare, LabelAggregation::Mean),
    MetricSeries::labels("vllm:cache_config_info", MetricField::KvCapacityTokens, "num_gpu_blocks", "block_size"),
    MetricSeries::sample("vllm:avg_generation_throughput_toks_per_s", MetricField::Throughput, LabelAggregation::Sum),
    MetricSeries::sample("vllm:prompt_tokens_total", MetricField::PromptTokensTotal, LabelAggregation::Sum),
    MetricSeries::sample("vllm:generation_tokens_total", MetricField::GeneratedTokensTotal, LabelAggregation::Sum),
    MetricSeries::sample("process_start_time_seconds", MetricField::StartedSecs, LabelAggregation::Max),
];
