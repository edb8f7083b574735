//! Metrics pages of engines, real and broken.

use std::path::PathBuf;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;
use gorgo_routing::model::EngineKind;
use gorgo_routing::model::engine::ENGINES;

fn read_as(kind: EngineKind, page: &str) -> EngineMetrics {
    read(page.as_bytes(), kind.adapter().metrics.as_ref().unwrap().series)
}

/// Shaped like SGLang's page with two data-parallel ranks of two tensor ranks each.
const SGLANG: &str = r#"
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{dp_rank="0",model_name="m",tp_rank="0"} 7.0
sglang:num_running_reqs{dp_rank="0",model_name="m",tp_rank="1"} 7.0
sglang:num_running_reqs{dp_rank="1",model_name="m",tp_rank="0"} 2.0
sglang:num_running_reqs_offline_batch{dp_rank="0",model_name="m",tp_rank="0"} 99.0
sglang:num_queue_reqs{dp_rank="0",model_name="m",tp_rank="0"} 3
sglang:num_queue_reqs{dp_rank="1",model_name="m",tp_rank="0"} 0
sglang:num_used_tokens{dp_rank="0",model_name="m",tp_rank="0"} 1.2e3
sglang:num_used_tokens{dp_rank="1",model_name="m",tp_rank="0"} 800
sglang:token_usage{dp_rank="0",model_name="m",tp_rank="0"} 0.75
sglang:token_usage{dp_rank="1",model_name="m",tp_rank="0"} 0.25
sglang:max_total_num_tokens{dp_rank="0",model_name="m",tp_rank="0"} 2000.0
sglang:max_total_num_tokens{dp_rank="1",model_name="m",tp_rank="0"} 2000.0
sglang:gen_throughput{dp_rank="0",model_name="m",tp_rank="0"} 120.5
sglang:prompt_tokens_total{model_name="m"} 92.0
sglang:generation_tokens_total{model_name="m"} 9.0 1790000000000
"#;

const VLLM: &str = r#"
vllm:num_requests_running{engine="0",model_name="a \"quoted, {braced}\" name"} 4.0
vllm:num_requests_running{engine="1",model_name="a \"quoted, {braced}\" name"} 5.0
vllm:num_requests_waiting{engine="0",model_name="a"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="a",reason="capacity"} 50.0
vllm:kv_cache_usage_perc{engine="0",model_name="a"} 0.5
vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="0",num_gpu_blocks="1000",num_cpu_blocks="None"} 1.0
vllm:prompt_tokens_total{engine="0",model_name="a"} 1000.0
vllm:prompt_tokens_created{engine="0",model_name="a"} 1.79e+09
vllm:generation_tokens_total{engine="0",model_name="a"} 500.0
process_start_time_seconds 1.79000001e+09
# EOF
"#;

#[test]
fn sglang_ranks_that_share_work_count_once_and_others_add() {
    let page = read_as(EngineKind::Sglang, SGLANG);
    assert_eq!(
        page.report,
        EngineReport {
            running: Some(9.0),
            waiting: Some(3.0),
            kv_used_tokens: Some(2_000.0),
            kv_used_share: Some(0.5),
            kv_capacity_tokens: Some(4_000),
            decode_batch: None,
            max_running: None,
            throughput: Some(120.5),
            started_secs: None,
            prompt_tokens_total: None,
        }
    );
    assert_eq!((page.prompt_tokens_total, page.generated_tokens_total), (Some(92.0), Some(9.0)));
}

#[test]
fn vllm_labels_with_quotes_and_braces_and_capacity_from_labels() {
    let page = read_as(EngineKind::Vllm, VLLM);
    assert_eq!(
        page.report,
        EngineReport {
            running: Some(9.0),
            waiting: Some(1.0),
            kv_used_tokens: Some(8_000.0),
            kv_used_share: Some(0.5),
            kv_capacity_tokens: Some(16_000),
            decode_batch: None,
            max_running: None,
            throughput: None,
            started_secs: Some(1_790_000_010.0),
            prompt_tokens_total: None,
        }
    );
    assert_eq!((page.prompt_tokens_total, page.generated_tokens_total), (Some(1_000.0), Some(500.0)));
}

#[test]
fn llama_cpp_and_the_simulated_engine_read_their_dialects() {
    let llama = read_as(EngineKind::LlamaCpp, "llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n");
    assert_eq!((llama.report.running, llama.report.waiting), (Some(2.0), Some(1.0)));
    assert_eq!(read_as(EngineKind::Simulated, SGLANG).report.running, Some(9.0));
    assert_eq!(read_as(EngineKind::Simulated, VLLM).report.running, Some(9.0));
}

#[test]
fn the_newer_name_wins_wherever_it_stands() {
    let both = "sglang:num_used_tokens 5\nsglang:kv_used_tokens 7\n";
    assert_eq!(read_as(EngineKind::Sglang, both).report.kv_used_tokens, Some(7.0));
    assert_eq!(read_as(EngineKind::Sglang, "sglang_num_running_reqs 3").report.running, Some(3.0));
}

#[test]
fn what_is_no_number_is_unknown() {
    for value in ["NaN", "+Inf", "-Inf", "", "many", "1e999", "0x10"] {
        let page = read_as(EngineKind::Sglang, &format!("sglang:num_running_reqs {value}\nsglang:num_queue_reqs 1\n"));
        assert_eq!((page.report.running, page.report.waiting), (None, Some(1.0)), "{value}");
    }
    let cut = r#"sglang:num_running_reqs{dp_rank="0"#;
    assert!(read_as(EngineKind::Sglang, cut).is_empty());
    assert!(
        read_as(EngineKind::Vllm, "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1").is_empty()
    );
    assert!(read_as(EngineKind::Vllm, "<html>not found</html>").is_empty());
    assert!(read_as(EngineKind::Vllm, "").is_empty());
}

#[test]
fn windows_line_ends_and_tabs_are_read() {
    let page = read_as(EngineKind::Sglang, "sglang:num_running_reqs{dp_rank=\"0\"}\t3\r\nsglang:num_queue_reqs\t2\r\n");
    assert_eq!((page.report.running, page.report.waiting), (Some(3.0), Some(2.0)));
}

#[test]
fn a_real_sglang_page() {
    let shared = std::env::var_os("GORGO_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let file = shared.join("traces/gorgo/sglang_metrics.txt");
    let Ok(text) = std::fs::read(&file) else {
        println!("not run: a_real_sglang_page: {} is absent", file.display());
        return;
    };
    let page = read(&text, EngineKind::Sglang.adapter().metrics.as_ref().unwrap().series);
    assert_eq!(
        page.report,
        EngineReport {
            running: Some(0.0),
            waiting: Some(0.0),
            kv_used_tokens: Some(0.0),
            kv_used_share: Some(0.0),
            kv_capacity_tokens: Some(788_766),
            decode_batch: None,
            max_running: None,
            throughput: Some(0.0),
            started_secs: None,
            prompt_tokens_total: None,
        }
    );
    assert_eq!((page.prompt_tokens_total, page.generated_tokens_total), (Some(92.0), Some(9.0)));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512, rng_seed: RngSeed::Fixed(21), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn arbitrary_bytes_never_panic(page in prop::collection::vec(any::<u8>(), 0..600)) {
        for engine in ENGINES.iter().filter_map(|engine| engine.metrics.as_ref()) {
            let _ = read(&page, engine.series);
        }
    }

    /// Bytes that look like a page, truncated and changed anywhere.
    #[test]
    fn a_damaged_page_never_panics_and_stays_finite(
        start in 0_usize..VLLM.len(),
        length in 0_usize..VLLM.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(&b"{}\"\\=, \n#0e"[..])), 0..8),
    ) {
        let mut page = [VLLM, SGLANG].concat().into_bytes();
        for (place, byte) in damage {
            let place = place.index(page.len());
            page[place] = byte;
        }
        let page = &page[start..(start + length).min(page.len())];
        let read = read(page, EngineKind::Simulated.adapter().metrics.as_ref().unwrap().series);
        prop_assert!(read.report.running.is_none_or(f64::is_finite));
        prop_assert!(read.report.kv_used_tokens.is_none_or(f64::is_finite));
    }

    /// Any order of the lines has the same result.
    #[test]
    fn order_of_lines_does_not_matter(seed in any::<u64>()) {
        let mut lines: Vec<&str> = SGLANG.lines().collect();
        lines.sort_by_key(|line| xxhash_rust::xxh3::xxh3_64_with_seed(line.as_bytes(), seed));
        prop_assert_eq!(read_as(EngineKind::Sglang, &lines.join("\n")), read_as(EngineKind::Sglang, SGLANG));
    }
}
