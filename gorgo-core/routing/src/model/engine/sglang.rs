//! SGLang. Metrics need `--enable-metrics`; cached tokens in `usage` need `--enable-cache-report`.
//!
//! The probe asks `/v1/models`, which the HTTP process answers by itself: `/health` runs a one-token generation and
//! takes 1.0 s even when idle (measured, 0.5.23). Gauges are refreshed every 40 decode steps, so they are late.

use super::{Across, Adapter, CapacityPage, EngineKind, EngineSetting, Field, LimitsPage, MetricsPage, Series};

pub(super) const ENGINE: Adapter = Adapter {
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
pub(super) const SERIES: &[Series] = &[
    Series::sample("sglang:num_running_reqs", Field::Running, Across::Sum),
    Series::sample("sglang:num_queue_reqs", Field::Waiting, Across::Sum),
    Series::sample("sglang:kv_used_tokens", Field::KvUsedTokens, Across::Sum),
    Series::sample("sglang:num_used_tokens", Field::KvUsedTokens, Across::Sum),
    Series::sample("sglang:token_usage", Field::KvUsedShare, Across::Mean),
    Series::sample("sglang:max_total_num_tokens", Field::KvCapacityTokens, Across::Sum),
    Series::labels("sglang:cache_config_info", Field::KvCapacityTokens, "num_pages", "page_size"),
    Series::sample("sglang:gen_throughput", Field::Throughput, Across::Sum),
    Series::sample("sglang:prompt_tokens_total", Field::PromptTokensTotal, Across::Sum),
    Series::sample("sglang:generation_tokens_total", Field::GeneratedTokensTotal, Across::Sum),
    Series::sample("process_start_time_seconds", Field::StartedSecs, Across::Most),
];
