//! `/metrics` in the formats of SGLang and vLLM, as far as routers read it. Gauges are current at every step, as in
//! vLLM; those of a real SGLang lag by up to 40 decode steps.

use std::fmt::{Display, Write};

use super::settings::{EngineDialect, SimulatedSettings};
use gorgo_lab::sim::{EngineStats, PAGE_TOKENS};

/// Content type of the page.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes the page. `started_secs`: start of the engine, seconds since the epoch.
pub(super) fn page(settings: &SimulatedSettings, numbers: &EngineStats, started_secs: f64) -> String {
    // These characters would end or break a label value.
    let model = settings.models.first().map_or("sim", String::as_str).replace(['"', '\\', '\n'], "_");
    let mut page = MetricsText { text: String::new() };
    match settings.dialect {
        EngineDialect::Sglang => sglang(&mut page, &model, numbers),
        EngineDialect::Vllm => vllm(&mut page, &model, numbers),
    }
    page.metric(
        "process_start_time_seconds",
        "gauge",
        "Start time of the process since unix epoch in seconds.",
        &[(String::new(), started_secs)],
    );
    page.text
}

struct MetricsText {
    text: String,
}

impl MetricsText {
    /// Writes one metric with its samples: labels (with braces) and value.
    fn metric(&mut self, name: impl Display, kind: &str, help: &str, samples: &[(String, f64)]) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(self.text, "{name}{labels} {value:?}");
        }
    }
}

/// Converts a counter to a metric value; exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "a metrics page has floating-point values only")]
const fn counter(value: u64) -> f64 {
    value as f64
}

fn sglang(page: &mut MetricsText, model: &str, numbers: &EngineStats) {
    let totals = &numbers.totals;
    let used = f64::from(numbers.used_tokens);
    // Before the first prompt the rate is 0, not NaN.
    let hit_rate = counter(totals.cached_tokens) / counter(totals.prompt_tokens.max(1));
    let available = numbers.capacity_tokens.saturating_sub(numbers.used_tokens + numbers.cached_tokens);
    let gauges = [
        ("num_running_reqs", "The number of running requests.", f64::from(numbers.running)),
        ("num_queue_reqs", "The number of requests in the waiting queue.", f64::from(numbers.waiting)),
        ("num_used_tokens", "The number of used tokens.", used),
        ("token_usage", "The token usage.", numbers.usage()),
        ("full_token_usage", "The token usage for full attention layers.", numbers.usage()),
        ("kv_used_tokens", "The number of KV tokens in use.", used),
        ("kv_evictable_tokens", "The number of cached KV tokens not in use.", f64::from(numbers.cached_tokens)),
        ("kv_available_tokens", "The number of empty KV tokens.", f64::from(available)),
        (
            "max_total_num_tokens",
            "Maximum total number of tokens in the KV cache pool.",
            f64::from(numbers.capacity_tokens),
        ),
        ("gen_throughput", "The generation throughput (token/s).", numbers.throughput),
        ("cache_hit_rate", "The prefix cache hit rate.", hit_rate),
        ("num_retracted_reqs", "The number of retracted requests.", counter(totals.retractions)),
    ];
    // Labels as on a real page, so that readers that filter by them work here too.
    let labels = format!(r#"{{engine_type="unified",model_name="{model}",moe_ep_rank="0",pp_rank="0",tp_rank="0"}}"#);
    for (name, help, value) in gauges {
        page.metric(format_args!("sglang:{name}"), "gauge", help, &[(labels.clone(), value)]);
    }
    let model_only = format!(r#"{{model_name="{model}"}}"#);
    let counters = [
        ("prompt_tokens_total", "Number of prefill tokens processed.", totals.prompt_tokens),
        ("generation_tokens_total", "Number of generation tokens processed.", totals.generation_tokens),
        ("num_requests_total", "Number of requests processed.", totals.finished),
        ("num_aborted_requests_total", "Number of requests aborted.", totals.cancelled),
    ];
    for (name, help, value) in counters {
        page.metric(format_args!("sglang:{name}"), "counter", help, &[(model_only.clone(), counter(value))]);
    }
    // SGLang splits this counter by tier of the cache; the simulated engine only has the GPU's.
    let cached = format!(r#"{{cache_source="device",model_name="{model}"}}"#);
    page.metric(
        "sglang:cached_tokens_total",
        "counter",
        "Number of cached prompt tokens.",
        &[(cached, counter(totals.cached_tokens))],
    );
    let pages = format!(r#"{{num_pages="{}",page_size="{PAGE_TOKENS}"}}"#, numbers.capacity_tokens / PAGE_TOKENS);
    page.metric("sglang:cache_config_info", "gauge", "Cache configuration information.", &[(pages, 1.0)]);
}

fn vllm(page: &mut MetricsText, model: &str, numbers: &EngineStats) {
    let totals = &numbers.totals;
    let labels = format!(r#"{{engine="0",model_name="{model}"}}"#);
    let gauges = [
        ("num_requests_running", "Number of requests in model execution batches.", f64::from(numbers.running)),
        ("num_requests_waiting", "Number of requests waiting to be processed.", f64::from(numbers.waiting)),
        ("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", numbers.usage()),
    ];
    for (name, help, value) in gauges {
        page.metric(format_args!("vllm:{name}"), "gauge", help, &[(labels.clone(), value)]);
    }
    let counters = [
        ("prefix_cache_queries_total", "Prefix cache queries, in number of tokens.", totals.prompt_tokens),
        ("prefix_cache_hits_total", "Prefix cache hits, in number of tokens.", totals.cached_tokens),
        ("prompt_tokens_total", "Number of prefill tokens processed.", totals.prompt_tokens),
        ("prompt_tokens_cached_total", "Number of cached prompt tokens.", totals.cached_tokens),
        ("generation_tokens_total", "Number of generation tokens processed.", totals.generation_tokens),
        ("num_preemptions_total", "Cumulative number of preemptions.", totals.retractions),
    ];
    for (name, help, value) in counters {
        page.metric(format_args!("vllm:{name}"), "counter", help, &[(labels.clone(), counter(value))]);
    }
    let finished = format!(r#"{{engine="0",finished_reason="length",model_name="{model}"}}"#);
    page.metric(
        "vllm:request_success_total",
        "counter",
        "Count of successfully processed requests.",
        &[(finished, counter(totals.finished))],
    );
    let blocks = numbers.capacity_tokens / PAGE_TOKENS;
    let config = format!(r#"{{block_size="{PAGE_TOKENS}",engine="0",num_gpu_blocks="{blocks}"}}"#);
    page.metric("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig.", &[(config, 1.0)]);
}
