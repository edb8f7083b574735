//! SGLang. Metrics need `--enable-metrics`; cached tokens in `usage` need `--enable-cache-report`.
//!
//! The probe asks `/v1/models`, which the HTTP process answers by itself: `/health` runs a one-token generation and
//! takes 1.0 s even when idle (measured, 0.5.23). Gauges are refreshed every 40 decode steps, so they are late.

use super::{
    CapacityPage, EngineAdapter, EngineKind, EngineSetting, LabelAggregation, LimitsPage, MetricField, MetricSeries,
    MetricsPage,
};

pub(super) const ENGINE: EngineAdapter = EngineAdapter {
    kind: EngineKind::Sglang,
    name: "sglang",
    summary: "SGLang",
    probe_path: "/v1/models",
    models_path: "/v1/models",
    metrics: Some(MetricsPage { path: "/metrics", series: &[SERIES], flag: Some("--enable-metrics") }),
    capacity: Some(CapacityPage { path: "/get_server_info", member: "max_total_num_tokens" }),
    limits: Some(LIMITS),
    cached_tokens_flag: Some("--enable-cache-report"),
    cache_events: true,
    setting_flags: &[
        (EngineSetting::RunningRequests, "--max-running-requests (graphs: --cuda-graph-max-bs)"),
        (EngineSetting::PrefillChunk, "--chunked-prefill-size"),
        (EngineSetting::QueueOrder, "--schedule-policy lpm"),
    ],
};

/// Page with its launch arguments and the limits that the engine derived from them.
pub(super) const LIMITS: LimitsPage = LimitsPage {
    path: "/get_server_info",
    batch: &["cuda_graph_max_bs", "cuda_graph_bs"],
    no_graphs: "disable_cuda_graph",
    running: &["effective_max_running_requests_per_dp", "max_running_requests"],
};

/// Names as of 0.4 to 0.5.23; the newer one first where two mean the same.
pub(super) const SERIES: &[MetricSeries] = &[
    MetricSeries::sample("sglang:num_running_reqs", MetricField::Running, LabelAggregation::Sum),
    MetricSeries::sample("sglang:num_queue_reqs", MetricField::Waiting, LabelAggregation::Sum),
    MetricSeries::sample("sglang:kv_used_tokens", MetricField::KvUsedTokens, LabelAggregation::Sum),
    MetricSeries::sample("sglang:num_used_tokens", MetricField::KvUsedTokens, LabelAggregation::Sum),
    MetricSeries::sample("sglang:token_usage", MetricField::KvUsedShare, LabelAggregation::Mean),
    MetricSeries::sample("sglang:max_total_num_tokens", MetricField::KvCapacityTokens, LabelAggregation::Sum),
    MetricSeries::labels("sglang:cache_config_info", MetricField::KvCapacityTokens, "num_pages", "page_size"),
    MetricSeries::sample("sglang:gen_throughput", MetricField::Throughput, LabelAggregation::Sum),
    MetricSeries::sample("sglang:prompt_tokens_total", MetricField::PromptTokensTotal, LabelAggregation::Sum),
    MetricSeries::sample("sglang:generation_tokens_total", MetricField::GeneratedTokensTotal, LabelAggregation::Sum),
    MetricSeries::sample("process_start_time_seconds", MetricField::StartedSecs, LabelAggregation::Max),
];
