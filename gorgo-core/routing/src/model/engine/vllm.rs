//! vLLM. Metrics are always available; cached tokens in `usage` need `--enable-prompt-tokens-details`.
//!
//! The probe asks `/health`: the API process answers it without waiting for the engine, and with 503 once the engine
//! has died. Generation throughput is no gauge here; it is taken from the counter between two pages.

use super::{Across, Adapter, EngineKind, EngineSetting, Field, MetricsPage, Series};

pub(super) const ENGINE: Adapter = Adapter {
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
pub(super) const SERIES: &[Series] = &[
    Series::sample("vllm:num_requests_running", Field::Running, Across::Sum),
    Series::sample("vllm:num_requests_waiting", Field::Waiting, Across::Sum),
    Series::sample("vllm:kv_cache_usage_perc", Field::KvUsedShare, Across::Mean),
    Series::sample("vllm:gpu_cache_usage_perc", Field::KvUsedShare, Across::Mean),
    Series::labels("vllm:cache_config_info", Field::KvCapacityTokens, "num_gpu_blocks", "block_size"),
    Series::sample("vllm:avg_generation_throughput_toks_per_s", Field::Throughput, Across::Sum),
    Series::sample("vllm:prompt_tokens_total", Field::PromptTokensTotal, Across::Sum),
    Series::sample("vllm:generation_tokens_total", Field::GeneratedTokensTotal, Across::Sum),
    Series::sample("process_start_time_seconds", Field::StartedSecs, Across::Most),
];
