//! The scrape: reports, models, restarts, warnings.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::header::AUTHORIZATION;
use parking_lot::Mutex;

use super::*;
use crate::engine::monitor::mock::{MockEngine, RecordingContext, RefusingAddress, redirect, reply};
use gorgo_routing::model::{EngineKind, FleetEvent, ReplicaId, ScrapeRecord, StoreRecord};

const LIMIT: Duration = Duration::from_secs(5);
const R: ReplicaId = ReplicaId(0);
const MODELS: &str = r#"{"object":"list","data":[{"id":"m","object":"model"},{"id":"m-lora"}]}"#;

/// Engine whose metrics page is this text, with a redirect like SGLang's, and a count of requests to `/metrics`.
async fn engine(page: Arc<Mutex<String>>, redirected: Arc<AtomicUsize>) -> MockEngine {
    MockEngine::start(move |request| match request.uri().path() {
        "/metrics" => {
            redirected.fetch_add(1, Ordering::Relaxed);
            redirect("/metrics/")
        }
        "/metrics/" => reply(200, page.lock().clone()),
        "/v1/models" => reply(200, MODELS),
        "/get_server_info" => reply(200, r#"{"a":[{"max_total_num_tokens":4096}]}"#),
        _ => reply(404, ""),
    })
    .await
}

fn report(events: &[FleetEvent]) -> EngineReport {
    let reports: Vec<EngineReport> = events
        .iter()
        .filter_map(|event| match event {
            FleetEvent::Report { report, .. } => Some(*report),
            _ => None,
        })
        .collect();
    *reports.last().unwrap_or_else(|| panic!("no report in {events:?}"))
}

#[tokio::test]
async fn a_page_becomes_a_report_a_row_and_models() {
    let (page, redirects) = (Arc::new(Mutex::new(String::new())), Arc::new(AtomicUsize::new(0)));
    *page.lock() = "sglang:num_running_reqs 3\nsglang:num_queue_reqs 1\nsglang:max_total_num_tokens 1000\n".to_owned();
    let mock = engine(page, redirects.clone()).await;
    let heard = RecordingContext::new();
    let mut scraper = MetricsScraper::new(mock.watched(EngineKind::Sglang, None), LIMIT, &heard.senses);
    scraper.step(&heard.senses).await;
    let events = heard.events();
    let got = report(&events);
    assert_eq!((got.running, got.waiting, got.kv_capacity_tokens), (Some(3.0), Some(1.0), Some(1_000)));
    assert_eq!(events.last(), Some(&FleetEvent::Models { replica: R, models: vec!["m".into(), "m-lora".into()] }));
    let records = heard.records();
    let [StoreRecord::Scrape(row)] = records.as_slice() else { panic!("{records:?}") };
    assert!(row.ok && row.running == Some(3.0) && row.waiting == Some(1.0));
    assert!(heard.senses.liveness.last_activity(R) > UnixMicros::default());

    // The redirect is remembered, and the models are not read each time.
    scraper.step(&heard.senses).await;
    assert_eq!(redirects.load(Ordering::Relaxed), 1);
    assert_eq!(heard.events().len(), 1);
    heard.clock.skip(60_000);
    scraper.step(&heard.senses).await;
    assert!(matches!(heard.events().as_slice(), [FleetEvent::Report { .. }, FleetEvent::Models { .. }]));
    assert_eq!(mock.connections(), 1);
}

#[tokio::test]
async fn configured_models_are_not_asked_for() {
    let mock = engine(Arc::default(), Arc::default()).await;
    let heard = RecordingContext::new();
    let watched = MonitoredReplica { learn_models: false, ..mock.watched(EngineKind::OpenAi, None) };
    MetricsScraper::new(watched, LIMIT, &heard.senses).step(&heard.senses).await;
    assert_eq!((heard.events(), mock.connections()), (vec![], 0));
}

#[tokio::test]
async fn throughput_comes_from_the_counter_where_no_gauge_does() {
    let page = Arc::new(Mutex::new("vllm:generation_tokens_total 1000\n".to_owned()));
    let mock = engine(page.clone(), Arc::default()).await;
    let heard = RecordingContext::new();
    let mut scraper = MetricsScraper::new(mock.watched(EngineKind::Vllm, None), LIMIT, &heard.senses);
    scraper.step(&heard.senses).await;
    let Some(FleetEvent::Report { at: first, report: before, .. }) = heard.events().into_iter().next() else {
        panic!("none")
    };
    assert_eq!(before.throughput, None);
    *page.lock() = "vllm:generation_tokens_total 3000\n".to_owned();
    heard.clock.skip(2_000);
    scraper.step(&heard.senses).await;
    let Some(FleetEvent::Report { at: second, report: after, .. }) = heard.events().into_iter().next() else {
        panic!("none")
    };
    let expected = 2_000.0 / second.elapsed_since(first).as_secs_f64();
    assert!((after.throughput.unwrap() - expected).abs() < 1e-6 && expected > 900.0, "{after:?} {expected}");
}

#[tokio::test]
async fn a_counter_that_began_anew_is_a_restart_before_its_report() {
    for (before, after) in [
        ("vllm:prompt_tokens_total 1000\n", "vllm:prompt_tokens_total 10\n"),
        ("vllm:prompt_tokens_total 1000\n", "vllm:num_requests_running 0\n"),
        ("process_start_time_seconds 100\n", "process_start_time_seconds 150\n"),
    ] {
        let page = Arc::new(Mutex::new(before.to_owned()));
        let mock = engine(page.clone(), Arc::default()).await;
        let heard = RecordingContext::new();
        let mut scraper = MetricsScraper::new(mock.watched(EngineKind::Vllm, None), LIMIT, &heard.senses);
        scraper.step(&heard.senses).await;
        heard.events();
        *page.lock() = after.to_owned();
        scraper.step(&heard.senses).await;
        let events = heard.events();
        let [FleetEvent::Restarted { .. }, FleetEvent::Report { .. }, FleetEvent::Models { .. }] = events.as_slice()
        else {
            panic!("{events:?}")
        };
        assert_eq!(heard.notes().len(), 1);
        scraper.step(&heard.senses).await;
        assert_eq!(heard.events().len(), 1, "told once");
    }
    let same = EngineMetrics { prompt_tokens_total: Some(600.0), ..EngineMetrics::default() };
    assert!(!has_restarted(&EngineMetrics { prompt_tokens_total: Some(1_000.0), ..EngineMetrics::default() }, &same));
}

#[tokio::test]
async fn what_is_missing_is_said_once_with_its_remedy() {
    let locked = |request: &hyper::Request<hyper::body::Incoming>| match request.headers().get(AUTHORIZATION) {
        Some(key) if key == "Bearer right" && request.uri().path() != "/metrics" => reply(200, MODELS),
        Some(key) if key == "Bearer right" => reply(404, ""),
        _ => reply(401, ""),
    };
    let mock = MockEngine::start(locked).await;
    let told = async |watched: MonitoredReplica| {
        let heard = RecordingContext::new();
        let mut scraper = MetricsScraper::new(watched, LIMIT, &heard.senses);
        scraper.step(&heard.senses).await;
        scraper.step(&heard.senses).await;
        heard.notes().into_iter().map(|(kind, text)| format!("{}: {text}", kind.name())).collect::<Vec<_>>()
    };
    let unset = MonitoredReplica { api_key_env: Some("A_KEY".to_owned()), ..mock.watched(EngineKind::Sglang, None) };
    assert_eq!(
        told(mock.watched(EngineKind::Sglang, Some("right"))).await,
        [
            "missing-signal: replica a answers 404 to GET /metrics, so its metrics are unknown: start sglang with --enable-metrics"
        ]
    );
    assert_eq!(
        told(mock.watched(EngineKind::Sglang, None)).await,
        [
            "missing-signal: replica a answers 401 to GET /metrics: it requires an API key; set api_key_env to the variable that contains it",
            "missing-signal: replica a answers 401 to GET /v1/models: it requires an API key; set api_key_env to the variable that contains it",
        ]
    );
    assert_eq!(
        told(unset).await[0],
        "missing-signal: replica a answers 401 to GET /metrics: A_KEY (api_key_env) contains no API key"
    );
    assert_eq!(
        told(mock.watched(EngineKind::Vllm, Some("wrong"))).await[0],
        "missing-signal: replica a answers 401 to GET /metrics: the engine rejects the API key in A_KEY"
    );
}

#[tokio::test]
async fn a_page_of_another_engine_is_no_report() {
    let page = Arc::new(Mutex::new("vllm:num_requests_running 3\n".to_owned()));
    let mock = engine(page, Arc::default()).await;
    let heard = RecordingContext::new();
    let watched = MonitoredReplica { learn_models: false, ..mock.watched(EngineKind::LlamaCpp, None) };
    MetricsScraper::new(watched, LIMIT, &heard.senses).step(&heard.senses).await;
    assert_eq!(heard.events(), []);
    let records = heard.records();
    let [StoreRecord::Event(note), StoreRecord::Scrape(row)] = records.as_slice() else { panic!("{records:?}") };
    assert_eq!(note.text, "replica a: GET /metrics has no metrics of llama-cpp; check `engine`");
    assert!(!row.ok);
}

#[tokio::test]
async fn capacity_is_asked_for_where_the_page_does_not_tell() {
    let page = Arc::new(Mutex::new("sglang:num_running_reqs 3\n".to_owned()));
    let mock = engine(page, Arc::default()).await;
    let heard = RecordingContext::new();
    let mut scraper = MetricsScraper::new(mock.watched(EngineKind::Sglang, None), LIMIT, &heard.senses);
    scraper.step(&heard.senses).await;
    let got = report(&heard.events());
    assert_eq!((got.running, got.kv_capacity_tokens), (Some(3.0), Some(4_096)));
    scraper.step(&heard.senses).await;
    assert_eq!(heard.events().len(), 1);
}

#[tokio::test]
async fn what_it_decodes_cheaply_is_asked_at_connect_and_after_a_restart() {
    let (page, asked) = (Arc::new(Mutex::new(String::new())), Arc::new(AtomicUsize::new(0)));
    let mock = {
        let (page, asked) = (page.clone(), asked.clone());
        MockEngine::start(move |request| match request.uri().path() {
            "/metrics" => reply(if page.lock().is_empty() { 404 } else { 200 }, page.lock().clone()),
            "/get_server_info" => {
                let before = asked.fetch_add(1, Ordering::Relaxed);
                reply(200, format!(r#"{{"cuda_graph_max_bs":{},"max_running_requests":64}}"#, 20 + before))
            }
            _ => reply(404, ""),
        })
        .await
    };
    let heard = RecordingContext::new();
    let watched = MonitoredReplica { learn_models: false, ..mock.watched(EngineKind::Simulated, None) };
    let mut scraper = MetricsScraper::new(watched, LIMIT, &heard.senses);
    // Its metrics are switched off: it is reported all the same.
    scraper.step(&heard.senses).await;
    let got = report(&heard.events());
    assert_eq!((got.running, got.decode_batch, got.max_running), (None, Some(20), Some(64)));
    *page.lock() = "sglang:num_running_reqs 3\nprocess_start_time_seconds 100\n".to_owned();
    scraper.step(&heard.senses).await;
    let after = asked.load(Ordering::Relaxed);
    for _ in 0..3 {
        scraper.step(&heard.senses).await;
        assert_eq!(report(&heard.events()).running, Some(3.0));
    }
    assert_eq!(asked.load(Ordering::Relaxed), after + 1, "once more since the page is back, then no more");
    *page.lock() = "sglang:num_running_reqs 3\nprocess_start_time_seconds 200\n".to_owned();
    scraper.step(&heard.senses).await;
    scraper.step(&heard.senses).await;
    assert_eq!(report(&heard.events()).decode_batch, Some(20 + u32::try_from(after).unwrap() + 1));
    assert_eq!(asked.load(Ordering::Relaxed), after + 2);
}

#[tokio::test]
async fn an_absent_engine_makes_rows_and_no_noise() {
    let mock = engine(Arc::default(), Arc::default()).await;
    let nobody = RefusingAddress::new();
    let heard = RecordingContext::new();
    let mut scraper = MetricsScraper::new(
        MonitoredReplica { endpoint: nobody.endpoint(), ..mock.watched(EngineKind::Vllm, None) },
        LIMIT,
        &heard.senses,
    );
    scraper.step(&heard.senses).await;
    assert_eq!(heard.events(), []);
    assert!(matches!(heard.records().as_slice(), [StoreRecord::Scrape(ScrapeRecord { ok: false, .. })]));
}

#[test]
fn broken_lists_are_no_lists() {
    assert_eq!(model_names(MODELS.as_bytes()).unwrap().len(), 2);
    for body in ["", "[]", "{}", r#"{"data":[{"name":"m"}]}"#, "<html>"] {
        assert_eq!(model_names(body.as_bytes()), None, "{body}");
    }
    assert_eq!(whole_member(br#"{"n":{"x":-1},"m":[{"x":7}]}"#, "x"), Some(7));
    assert_eq!(whole_member(b"no", "x"), None);
}
