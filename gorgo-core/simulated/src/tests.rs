//! The simulated engine over HTTP on loopback. No test depends on how long anything takes.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};

use super::*;
use gorgo_routing::model::UnixMicros;

/// The test runtime's clock.
struct RuntimeClock(tokio::time::Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> UnixMicros {
        UnixMicros(1_700_000_000_000_000).plus(self.0.elapsed())
    }
}

/// An engine and one connection to it.
struct SimulatedFixture {
    addr: SocketAddr,
    client: SendRequest<Full<Bytes>>,
    tracker: TaskTracker,
    shutdown: CancellationToken,
}

fn settings(dialect: EngineDialect) -> SimulatedSettings {
    SimulatedSettings { speed: 1000.0, dialect, ..SimulatedSettings::new("l40s-qwen3.5-35b").unwrap() }
}

impl SimulatedFixture {
    async fn new(settings: SimulatedSettings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (tracker, shutdown) = (TaskTracker::new(), CancellationToken::new());
        let clock = Arc::new(RuntimeClock(tokio::time::Instant::now()));
        let addr = start(settings, listener, clock, &tracker, shutdown.clone()).unwrap().addr;
        let client = connect(addr, &tracker).await;
        Self { addr, client, tracker, shutdown }
    }

    async fn send(&mut self, method: &str, path: &str, body: impl Into<Bytes>) -> hyper::Result<Response<Incoming>> {
        let request = Request::builder().method(method).uri(path).header("host", "engine");
        self.client.ready().await?;
        self.client.send_request(request.body(Full::new(body.into())).unwrap()).await
    }

    async fn post(&mut self, path: &str, body: Value) -> (StatusCode, String) {
        let answer = self.send("POST", path, body.to_string()).await.unwrap();
        let status = answer.status();
        (status, text(answer).await)
    }

    async fn ask(&mut self, path: &str, body: Value) -> Value {
        let (status, text) = self.post(path, body).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Reads a metric of the page on a separate connection.
    async fn metric(&self, name: &str) -> f64 {
        metric(&mut connect(self.addr, &self.tracker).await, name).await
    }

    /// Waits until a metric has this value. The test runner stops a test that waits for ever.
    async fn until(&self, name: &str, value: f64) {
        let mut client = connect(self.addr, &self.tracker).await;
        while (metric(&mut client, name).await - value).abs() > f64::EPSILON {
            tokio::task::yield_now().await;
        }
    }

    async fn end(self) {
        self.shutdown.cancel();
        drop(self.client);
        self.tracker.close();
        self.tracker.wait().await;
    }
}

async fn connect(addr: SocketAddr, tracker: &TaskTracker) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(addr).await.unwrap();
    let (client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tracker.spawn(connection);
    client
}

async fn metric(client: &mut SendRequest<Full<Bytes>>, name: &str) -> f64 {
    client.ready().await.unwrap();
    let request = Request::get("/metrics").header("host", "engine").body(Full::default()).unwrap();
    let page = text(client.send_request(request).await.unwrap()).await;
    let sample = |line: &str| line.split(['{', ' ']).next() == Some(name);
    let line = page.lines().find(|line| sample(line)).unwrap_or_else(|| panic!("no {name} in {page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

async fn text(answer: Response<Incoming>) -> String {
    String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// Data of the events of a stream.
fn events(stream: &str) -> Vec<&str> {
    assert!(stream.ends_with("\n\n"), "{stream:?}");
    stream.split("\n\n").filter_map(|event| event.split_once("data: ").map(|(_, data)| data)).collect()
}

fn chat(content: &str, more: &Value) -> Value {
    let mut body = json!({ "model": "sim", "messages": [{ "role": "user", "content": content }], "max_tokens": 3 });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn the_second_identical_request_is_cached_and_answered_alike() {
    for dialect in EngineDialect::ALL {
        let mut bench = SimulatedFixture::new(settings(dialect)).await;
        let body = chat(&"word".repeat(1000), &json!({}));
        let first = bench.ask("/v1/chat/completions", body.clone()).await;
        let second = bench.ask("/v1/chat/completions", body).await;
        let usage = |answer: &Value, cached: u32| {
            assert_eq!(
                answer["usage"],
                json!({
                    "prompt_tokens": 1000, "completion_tokens": 3, "total_tokens": 1003,
                    "prompt_tokens_details": { "cached_tokens": cached },
                })
            );
        };
        usage(&first, 0);
        usage(&second, 992);
        assert_eq!(first["choices"], second["choices"]);
        assert_eq!(first["choices"][0]["finish_reason"], "length");
        assert_ne!(first["id"], second["id"]);
        let cached = match dialect {
            EngineDialect::Sglang => "sglang:cached_tokens_total",
            EngineDialect::Vllm => "vllm:prefix_cache_hits_total",
        };
        assert!((bench.metric(cached).await - 992.0).abs() < 0.5);
        bench.end().await;
    }
}

#[tokio::test]
async fn a_chat_stream_says_what_the_whole_answer_says() {
    let mut bench = SimulatedFixture::new(settings(EngineDialect::Sglang)).await;
    let whole = bench.ask("/v1/chat/completions", chat("hello there", &json!({}))).await;
    let more = json!({ "stream": true, "stream_options": { "include_usage": true } });
    let (_, stream) = bench.post("/v1/chat/completions", chat("hello there", &more)).await;
    let events = events(&stream);
    assert_eq!(events.last(), Some(&"[DONE]"));
    let chunks: Vec<Value> =
        events[..events.len() - 1].iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert_eq!(chunks.len(), 1 + 3 + 1 + 1, "role, tokens, reason, usage: {stream}");
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
    let said: String =
        chunks[1..4].iter().map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().unwrap()).collect();
    assert_eq!(whole["choices"][0]["message"]["content"], said);
    assert_eq!(chunks[4]["choices"][0]["finish_reason"], "length");
    assert_eq!((&chunks[5]["choices"], &chunks[5]["usage"]["completion_tokens"]), (&json!([]), &json!(3)));
    // Without the option there is no usage, and no chunk without choices.
    let (_, stream) = bench.post("/v1/chat/completions", chat("hello there", &json!({ "stream": true }))).await;
    assert!(!stream.contains("usage") && !stream.contains(r#""choices":[]"#), "{stream}");
    bench.end().await;
}

#[tokio::test]
async fn each_api_streams_and_answers_whole() {
    let mut bench = SimulatedFixture::new(settings(EngineDialect::Sglang)).await;
    let cases = [
        ("/v1/completions", json!({ "prompt": "abcdefgh", "max_tokens": 2 }), "/usage/prompt_tokens"),
        ("/v1/responses", json!({ "input": "abcdefgh", "max_output_tokens": 2 }), "/usage/input_tokens"),
        (
            "/v1/messages",
            json!({ "messages": [{ "role": "user", "content": "abcdefgh" }], "max_tokens": 2 }),
            "/usage/input_tokens",
        ),
        (
            "/generate",
            json!({ "text": "abcdefgh", "sampling_params": { "max_new_tokens": 2 } }),
            "/meta_info/prompt_tokens",
        ),
    ];
    for (path, mut body, prompt_tokens) in cases {
        let whole = bench.ask(path, body.clone()).await;
        assert_eq!(whole.pointer(prompt_tokens), Some(&json!(2)), "{whole}");
        body["stream"] = json!(true);
        let (status, stream) = bench.post(path, body).await;
        assert_eq!(status, StatusCode::OK);
        let events = events(&stream);
        let done = matches!(path, "/v1/completions" | "/generate");
        assert_eq!(events.last() == Some(&"[DONE]"), done, "{path}");
        assert!(events.iter().filter(|event| **event != "[DONE]").all(|event| event.starts_with('{')), "{stream}");
    }
    let body = json!({ "input": ["abcd", "abcdefgh"] });
    let embeddings = bench.ask("/v1/embeddings", body).await;
    assert_eq!(embeddings["data"].as_array().map(Vec::len), Some(2));
    assert_eq!(embeddings["usage"]["prompt_tokens"], 3);
    bench.end().await;
}

#[tokio::test]
async fn anthropic_s_stream_as_a_whole() {
    let mut bench = SimulatedFixture::new(settings(EngineDialect::Sglang)).await;
    let body = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 1, "stream": true });
    let (_, stream) = bench.post("/v1/messages", body).await;
    insta::assert_snapshot!(stream, @r#"
event: message_start
data: {"message":{"content":[],"id":"msg_0000000000000001","model":"sim","role":"assistant","stop_reason":null,"stop_sequence":null,"type":"message","usage":{"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"input_tokens":1,"output_tokens":0}},"type":"message_start"}

event: content_block_start
data: {"content_block":{"text":"","type":"text"},"index":0,"type":"content_block_start"}

event: content_block_delta
data: {"delta":{"text":"harbour","type":"text_delta"},"index":0,"type":"content_block_delta"}

event: content_block_stop
data: {"index":0,"type":"content_block_stop"}

event: message_delta
data: {"delta":{"stop_reason":"max_tokens","stop_sequence":null},"type":"message_delta","usage":{"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"input_tokens":1,"output_tokens":1}}

event: message_stop
data: {"type":"message_stop"}
"#);
    bench.end().await;
}

#[tokio::test]
async fn a_client_that_leaves_frees_the_engine() {
    for dialect in EngineDialect::ALL {
        let running = match dialect {
            EngineDialect::Sglang => "sglang:num_running_reqs",
            EngineDialect::Vllm => "vllm:num_requests_running",
        };
        // So slow that the request would run for hours: only its cancellation ends it.
        let mut bench = SimulatedFixture::new(SimulatedSettings { speed: 0.5, ..settings(dialect) }).await;
        let body = chat("bye", &json!({ "stream": true, "max_tokens": 600_000 }));
        let mut answer = bench.send("POST", "/v1/chat/completions", body.to_string()).await.unwrap();
        let _ = answer.body_mut().frame().await.unwrap().unwrap();
        bench.until(running, 1.0).await;
        drop(answer);
        bench.client = connect(bench.addr, &bench.tracker).await;
        bench.until(running, 0.0).await;

        // The same before anything has been answered.
        let body = chat("bye", &json!({ "max_tokens": 600_000 })).to_string();
        let request =
            Request::post("/v1/chat/completions").header("host", "engine").body(Full::new(body.into())).unwrap();
        let sent = bench.tracker.spawn(bench.client.send_request(request));
        bench.until(running, 1.0).await;
        sent.abort();
        bench.client = connect(bench.addr, &bench.tracker).await;
        bench.until(running, 0.0).await;
        bench.end().await;
    }
}

#[tokio::test]
async fn bad_requests_are_refused_in_the_engine_s_words() {
    for dialect in EngineDialect::ALL {
        let mut bench = SimulatedFixture::new(settings(dialect)).await;
        let code = |text: &str| {
            let body: Value = serde_json::from_str(text).unwrap();
            let error = if dialect == EngineDialect::Vllm { &body["error"] } else { &body };
            error["code"].as_u64().unwrap()
        };
        let broken = bench.send("POST", "/v1/chat/completions", "{\"messages\":").await.unwrap();
        assert_eq!(broken.status(), StatusCode::BAD_REQUEST);
        assert_eq!(code(&text(broken).await), 400);
        let too_long = json!({ "prompt": "x".repeat(2_800_004), "stream": true });
        let (status, body) = bench.post("/v1/completions", too_long).await;
        assert_eq!((status, code(&body)), (StatusCode::BAD_REQUEST, 400));
        let (status, _) = bench.post("/v1/completions", json!({ "prompt": "a", "model": "other" })).await;
        let (generate, _) = bench.post("/generate", json!({ "text": "a" })).await;
        let expected = if dialect == EngineDialect::Vllm { StatusCode::NOT_FOUND } else { StatusCode::OK };
        assert_eq!((status, generate), (expected, expected));
        let (status, _) = bench.post("/v1/nothing", json!({})).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert_eq!(bench.send("GET", "/v1/completions", "").await.unwrap().status(), StatusCode::METHOD_NOT_ALLOWED);
        bench.end().await;
    }
}

#[tokio::test]
async fn health_models_and_metrics_are_there() {
    let mut bench = SimulatedFixture::new(settings(EngineDialect::Sglang)).await;
    assert_eq!(bench.send("GET", "/health", "").await.unwrap().status(), StatusCode::OK);
    let models: Value = serde_json::from_str(&text(bench.send("GET", "/v1/models", "").await.unwrap()).await).unwrap();
    assert_eq!(models["data"][0]["id"], "sim");
    assert!((bench.metric("sglang:max_total_num_tokens").await - 700_000.0).abs() < 0.5);
    assert!((bench.metric("process_start_time_seconds").await - 1.7e9).abs() < 60.0);
    bench.end().await;
}

/// Metrics of our page that a real SGLang also has must have the same labels.
#[test]
fn metrics_are_shaped_like_a_real_page() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("GORGO_SHARED").map_or(root, std::path::PathBuf::from);
    let Ok(real) = std::fs::read_to_string(shared.join("traces/gorgo/sglang_metrics.txt")) else {
        println!("not run: no page of a real engine in shared data");
        return;
    };
    let labels = |page: &str, name: &str| -> Option<Vec<String>> {
        let line = page.lines().find(|line| line.split('{').next() == Some(name))?;
        let inner = line.split_once('{')?.1.rsplit_once('}')?.0;
        let mut keys: Vec<String> = inner.split(',').map(|pair| pair.split('=').next().unwrap().to_owned()).collect();
        keys.retain(|key| key != "pid"); // num_retracted_reqs has it where several processes report
        Some(keys)
    };
    let ours = metrics::page(&settings(EngineDialect::Sglang), &gorgo_lab::sim::EngineStats::default(), 0.0);
    let mut shared_names = 0;
    for line in ours.lines().filter(|line| line.starts_with("sglang:")) {
        let name = line.split('{').next().unwrap();
        if let Some(expected) = labels(&real, name) {
            assert_eq!(labels(&ours, name), Some(expected), "{name}");
            shared_names += 1;
        }
    }
    assert!(shared_names >= 10, "{shared_names}");
}

#[test]
fn a_page_in_full() {
    let page = metrics::page(&settings(EngineDialect::Vllm), &gorgo_lab::sim::EngineStats::default(), 1.5);
    insta::assert_snapshot!(page, @r#"
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="sim"} 0.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="sim"} 0.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="sim"} 0.0
# HELP vllm:prefix_cache_queries_total Prefix cache queries, in number of tokens.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="sim"} 0.0
# HELP vllm:prefix_cache_hits_total Prefix cache hits, in number of tokens.
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="sim"} 0.0
# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="sim"} 0.0
# HELP vllm:prompt_tokens_cached_total Number of cached prompt tokens.
# TYPE vllm:prompt_tokens_cached_total counter
vllm:prompt_tokens_cached_total{engine="0",model_name="sim"} 0.0
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="sim"} 0.0
# HELP vllm:num_preemptions_total Cumulative number of preemptions.
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="sim"} 0.0
# HELP vllm:request_success_total Count of successfully processed requests.
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="length",model_name="sim"} 0.0
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig.
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="0"} 1.0
# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.5
"#);
}

fn faulty(fault: EngineFault, every: u64) -> SimulatedSettings {
    SimulatedSettings {
        fault_injection: Some(FaultInjection { fault, every_nth: every }),
        ..settings(EngineDialect::Vllm)
    }
}

#[tokio::test]
async fn faults_strike_as_asked() {
    let streamed = || chat("hello", &json!({ "stream": true }));

    let mut bench = SimulatedFixture::new(faulty(EngineFault::Status(503), 2)).await;
    for expected in [200, 503, 200, 503] {
        assert_eq!(bench.post("/v1/chat/completions", streamed()).await.0, expected);
    }
    assert_eq!(bench.send("GET", "/health", "").await.unwrap().status(), StatusCode::OK);
    bench.end().await;

    let mut bench = SimulatedFixture::new(faulty(EngineFault::DieAfter(2), 1)).await;
    let answer = bench.send("POST", "/v1/chat/completions", streamed().to_string()).await.unwrap();
    let mut body = answer.into_body();
    let (mut seen, mut broke) = (String::new(), false);
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => seen.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap()),
            Err(_) => broke = true,
        }
    }
    assert!(broke, "no clean end");
    assert_eq!(seen.matches("\"content\":").count(), 1 + 2, "role and two tokens: {seen}");
    bench.end().await;

    for (tokens, contents) in [(0, 0), (1, 1 + 1)] {
        let mut bench = SimulatedFixture::new(faulty(EngineFault::ErrorAfter(tokens), 1)).await;
        let (status, stream) = bench.post("/v1/chat/completions", streamed()).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(stream.matches("\"content\":").count(), contents);
        let events = events(&stream);
        assert!(events[events.len() - 2].starts_with(r#"{"error":{"#), "{stream}");
        assert_eq!(bench.post("/v1/chat/completions", chat("hello", &json!({}))).await.0, 503);
        bench.end().await;
    }

    for fault in [EngineFault::Hang, EngineFault::StallAfter(0)] {
        let bench = SimulatedFixture::new(faulty(fault, 1)).await;
        let mut client = connect(bench.addr, &bench.tracker).await;
        let body = Full::new(Bytes::from(streamed().to_string()));
        let request = Request::post("/v1/chat/completions").header("host", "engine").body(body).unwrap();
        let asked = bench.tracker.spawn(async move {
            let answer = client.send_request(request).await?;
            answer.into_body().collect().await.map(|_| ())
        });
        if fault == EngineFault::Hang {
            let health = bench.metric("process_start_time_seconds").await;
            assert!(health > 0.0, "the engine itself is well");
        }
        assert!(!asked.is_finished());
        bench.end().await; // shutdown ends what hangs
        assert!(asked.await.unwrap().is_err());
    }
}

#[tokio::test]
async fn http2_without_tls_is_served_too() {
    let bench = SimulatedFixture::new(settings(EngineDialect::Sglang)).await;
    let stream = TcpStream::connect(bench.addr).await.unwrap();
    let executor = TrackedExecutor(bench.tracker.clone());
    let (mut client, connection) = hyper::client::conn::http2::handshake(executor, TokioIo::new(stream)).await.unwrap();
    bench.tracker.spawn(connection);
    let body = Full::new(Bytes::from(chat("hello", &json!({ "stream": true })).to_string()));
    let request = Request::post("http://engine/v1/chat/completions").body(body).unwrap();
    let stream = text(client.send_request(request).await.unwrap()).await;
    assert_eq!(events(&stream).last(), Some(&"[DONE]"));
    drop(client);
    bench.end().await;
}

#[tokio::test]
async fn impossible_settings_do_not_start() {
    for settings in [
        SimulatedSettings { speed: 0.0, ..settings(EngineDialect::Sglang) },
        SimulatedSettings { rtt_ms: -1.0, ..settings(EngineDialect::Sglang) },
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let clock = Arc::new(RuntimeClock(tokio::time::Instant::now()));
        assert!(start(settings, listener, clock, &TaskTracker::new(), CancellationToken::new()).is_err());
    }
    assert!(SimulatedSettings::new("h200").unwrap_err().to_string().contains("l40s-qwen3.5-35b"));
}

/// The order of writes and their completeness do not depend on the round trip.
#[tokio::test]
async fn a_distant_engine_says_the_same() {
    let mut near = SimulatedFixture::new(settings(EngineDialect::Vllm)).await;
    let mut far = SimulatedFixture::new(SimulatedSettings { rtt_ms: 6.0, ..settings(EngineDialect::Vllm) }).await;
    let body = chat("hello", &json!({ "stream": true, "max_tokens": 40 }));
    let said = |stream: String| -> Vec<String> {
        let content = |event: &&str| serde_json::from_str::<Value>(event).ok();
        events(&stream).iter().filter_map(content).map(|chunk| chunk["choices"][0]["delta"].to_string()).collect()
    };
    let (near_said, far_said) = (
        said(near.post("/v1/chat/completions", body.clone()).await.1),
        said(far.post("/v1/chat/completions", body).await.1),
    );
    assert_eq!(near_said.len(), 1 + 40 + 1);
    assert_eq!(near_said, far_said);
    near.end().await;
    far.end().await;
}
