//! The client against a small event-stream server on loopback: what is sent, what is counted, how failures show.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use clap::Parser;
use gorgo_lab::trace::{RequestSample, TraceRow};
use gorgo_routing::model::{ErrorClass, UnixMicros};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Barrier, Notify};

use super::*;

/// Time for tests: monotonic since it was made.
struct ReplayTestClock(tokio::time::Instant);

impl Clock for ReplayTestClock {
    fn now(&self) -> UnixMicros {
        UnixMicros(u64::try_from(self.0.elapsed().as_micros()).unwrap())
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(ReplayTestClock(tokio::time::Instant::now()))
}

/// A body of these pieces, each its own frame; an error cuts the connection.
struct ScriptedBody {
    left: VecDeque<io::Result<Bytes>>,
    flushed: bool,
}

impl ScriptedBody {
    fn of(texts: &[&'static str]) -> Self {
        let left = texts.iter().map(|text| Ok(Bytes::from_static(text.as_bytes()))).collect();
        Self { left, flushed: false }
    }

    fn then_cut(mut self) -> Self {
        self.left.push_back(Err(io::Error::other("cut")));
        self
    }
}

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        // hyper writes out what it has when a body is not ready, and throws it away when a body fails.
        if matches!(self.left.front(), Some(Err(_))) && !self.flushed {
            self.flushed = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.left.pop_front().map(|piece| piece.map(Frame::data)))
    }
}

const ROLE: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
const WORD: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":2,\
                     \"prompt_tokens_details\":{\"cached_tokens\":15}}}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const GOOD: [&str; 5] = [ROLE, WORD, WORD, USAGE, DONE];

/// How the server answers a row.
#[derive(Clone, Copy)]
enum MockAnswer {
    Good,
    Status(u16, &'static str),
    /// Fails this many times with this status, then answers well.
    GoodAfter(usize, u16),
    Stream(&'static [&'static str]),
    CutStream(&'static [&'static str]),
    Closed,
    Never,
}

/// Behaviour of the server, and what it saw.
struct MockServer {
    answers: Vec<MockAnswer>,
    /// Good answers wait here until enough of them are there.
    barrier: Barrier,
    seen: Mutex<Vec<(HeaderMap, Value)>>,
    arrived: Notify,
    connections: AtomicUsize,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
}

impl MockServer {
    /// Rows beyond the list are answered well.
    fn new(answers: &[MockAnswer], company: usize) -> Arc<Self> {
        Arc::new(Self {
            answers: answers.to_vec(),
            barrier: Barrier::new(company),
            seen: Mutex::default(),
            arrived: Notify::new(),
            connections: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            most_in_flight: AtomicUsize::new(0),
        })
    }

    async fn serve(self: &Arc<Self>, tracker: &TaskTracker) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mock, tasks) = (Arc::clone(self), tracker.clone());
        tracker.spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                mock.connections.fetch_add(1, Ordering::SeqCst);
                let mock = Arc::clone(&mock);
                let service = service_fn(move |request| Arc::clone(&mock).answer(request));
                let serving =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service);
                tasks.spawn(async move { serving.await.ok() });
            }
        });
        address
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> io::Result<Response<ScriptedBody>> {
        if request.uri().path() == "/v1/models" {
            return Ok(Response::new(ScriptedBody::of(&["{\"data\":[{\"id\":\"listed\"},{\"id\":\"other\"}]}"])));
        }
        if request.uri().path() == "/get_server_info" {
            return Ok(Response::new(ScriptedBody::of(&[
                "{\"version\":\"0.5\",\"max_running_requests\":64,\"api_key\":\"k\"}",
            ])));
        }
        let now = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_flight.fetch_max(now, Ordering::SeqCst);
        let (head, body) = request.into_parts();
        let body = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
        let row: usize = head.headers["x-gorgo-trace-row-index"].to_str().unwrap().parse().unwrap();
        self.seen.lock().unwrap().push((head.headers, body));
        self.arrived.notify_one();
        let response = match self.answers.get(row).copied().unwrap_or(MockAnswer::Good) {
            MockAnswer::Good => {
                self.barrier.wait().await;
                let response = Response::builder().header("x-gorgo-replica", "near").header("x-gorgo-decision", "77");
                Ok(response.body(ScriptedBody::of(&GOOD)).unwrap())
            }
            MockAnswer::Status(status, text) => {
                Ok(Response::builder().status(status).body(ScriptedBody::of(&[text])).unwrap())
            }
            MockAnswer::GoodAfter(failures, status) => {
                let seen = self.seen.lock().unwrap().len();
                let good = Response::new(ScriptedBody::of(&GOOD));
                let bad = || Response::builder().status(status).body(ScriptedBody::of(&["again"])).unwrap();
                Ok(if seen > failures { good } else { bad() })
            }
            MockAnswer::Stream(texts) => Ok(Response::new(ScriptedBody::of(texts))),
            MockAnswer::CutStream(texts) => Ok(Response::new(ScriptedBody::of(texts).then_cut())),
            MockAnswer::Closed => Err(io::Error::other("closed")),
            MockAnswer::Never => std::future::pending().await,
        };
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        response
    }
}

fn rows(count: usize) -> Vec<TraceRow> {
    let row = |index: usize| TraceRow {
        index,
        input_tokens: 20,
        output_tokens: 2,
        blocks: vec![1, u64::try_from(index).unwrap() + 2],
        ..TraceRow::default()
    };
    (0..count).map(row).collect()
}

fn asked(limit: Duration) -> RequestOptions {
    RequestOptions { api: crate::load::ReplayApi::Chat, stream: true, limit, retries: 0 }
}

fn plan(rows: Vec<TraceRow>, max_in_flight: usize) -> ReplayPlan {
    let bodies = BodyWriter::new(PromptText::new(16, 0), &asked(Duration::from_secs(60)), "sim", true);
    ReplayPlan { rows, bodies, max_in_flight: Some(max_in_flight), sessions: true }
}

/// A client of the mock and the tracker that both run on.
async fn client_of(mock: &Arc<MockServer>, limit: Duration) -> (Arc<ReplayClient>, TaskTracker) {
    let tracker = TaskTracker::new();
    let address = mock.serve(&tracker).await;
    let target = ServerUrl::parse(&address.to_string()).unwrap();
    let client = ReplayClient::new(target, &asked(limit), None, clock(), tracker.clone()).unwrap();
    (Arc::new(client), tracker)
}

/// Samples in order of their row.
async fn drive_all(mock: &Arc<MockServer>, plan: ReplayPlan) -> Vec<RequestSample> {
    let (client, tracker) = client_of(mock, Duration::from_secs(60)).await;
    let driven = drive(&client, plan, &tracker, &StopControls::default(), |_| {}).await;
    assert_eq!((driven.unsent, driven.unfinished), (0, 0));
    let mut samples = driven.samples;
    samples.sort_by_key(|sample| sample.row);
    samples
}

#[tokio::test]
async fn a_good_answer_is_measured_whole() {
    let samples = drive_all(&MockServer::new(&[], 1), plan(rows(1), 1)).await;
    let [sample] = samples.as_slice() else { panic!("{samples:?}") };
    assert_eq!((sample.status, sample.error, sample.content_events), (Some(200), None, 2));
    assert_eq!((sample.usage.prompt_tokens, sample.usage.cached_tokens), (Some(20), Some(15)));
    assert_eq!((sample.replica.as_deref(), sample.decision), (Some("near"), Some(77)));
    let ttft = sample.ttft_ms.unwrap();
    assert!(ttft > 0.0 && ttft <= sample.e2e_ms, "{sample:?}");
    assert!(sample.itl_ms.unwrap() <= sample.e2e_ms, "{sample:?}");
}

#[tokio::test]
async fn requests_carry_the_trace_and_share_its_prefixes() {
    let mock = MockServer::new(&[], 1);
    let mut sent = rows(2);
    sent[0].id = Some("row-a".into());
    sent[0].user = Some("u1".into());
    sent[1].user = Some("u1".into());
    sent[1].conversation = Some("c\n9".into());
    drive_all(&mock, plan(sent, 1)).await;
    let seen = mock.seen.lock().unwrap();
    let header = |row: usize, name: &str| seen[row].0.get(name).map(|value| value.to_str().unwrap().to_owned());
    let first = ["x-gorgo-trace-row-index", "x-gorgo-source-row-id", "x-session-id"].map(|name| header(0, name));
    assert_eq!(first, [Some("0".into()), Some("row-a".into()), Some("u1".into())]);
    let second = ["x-gorgo-trace-row-index", "x-gorgo-source-row-id", "x-session-id"].map(|name| header(1, name));
    assert_eq!(second, [Some("1".into()), None, Some("630a39".into())]);
    let slip: f64 = header(1, "x-gorgo-scheduling-slip-ms").unwrap().parse().unwrap();
    assert!(slip >= 0.0);
    let text = |row: usize| seen[row].1.pointer("/messages/0/content").unwrap().as_str().unwrap().to_owned();
    assert_eq!((text(0).len(), &text(0)[..64]), (80, &text(1)[..64]));
    assert_ne!(text(0)[64..], text(1)[64..]);
    let asked = |pointer: &str| seen[0].1.pointer(pointer).unwrap().clone();
    assert_eq!([asked("/model"), asked("/max_tokens")], [Value::from("sim"), Value::from(2)]);
    assert_eq!([asked("/stream"), asked("/stream_options/include_usage")], [Value::from(true), Value::from(true)]);
}

#[tokio::test]
async fn at_most_so_many_are_in_flight_on_as_many_connections() {
    // The server answers four at a time: fewer in flight would hang, more would show.
    let mock = MockServer::new(&[], 4);
    let samples = drive_all(&mock, plan(rows(12), 4)).await;
    assert!(samples.len() == 12 && samples.iter().all(|sample| sample.error.is_none()));
    assert_eq!(mock.most_in_flight.load(Ordering::SeqCst), 4);
    assert_eq!(mock.connections.load(Ordering::SeqCst), 4, "connections are kept");
}

#[tokio::test]
async fn waiting_for_a_slot_is_slip_and_not_latency() {
    let samples = drive_all(&MockServer::new(&[], 1), plan(rows(3), 1)).await;
    for pair in samples.windows(2) {
        assert!(pair[1].sent_ms >= pair[0].sent_ms + pair[0].e2e_ms, "{pair:?}");
        assert!(pair[1].slot_wait_ms > 0.0 && pair[1].slot_wait_ms <= pair[1].slip_ms(), "{pair:?}");
    }
    assert_eq!(samples[2].scheduled_ms, 0.0);
}

#[tokio::test]
async fn failures_are_told_apart_and_stop_nothing() {
    let answers = [
        MockAnswer::Status(503, "{\"error\":{\"message\":\"no replica is available\"}}"),
        MockAnswer::Status(404, "{\"error\":{\"message\":\"unknown model\"}}"),
        MockAnswer::Status(302, ""),
        MockAnswer::Stream(&[ROLE, WORD, "data: {\"error\":{\"message\":\"engine died\"}}\n\n"]),
        MockAnswer::CutStream(&[ROLE, WORD]),
        MockAnswer::Stream(&[ROLE, WORD]),
        MockAnswer::Closed,
        MockAnswer::Good,
    ];
    let samples = drive_all(&MockServer::new(&answers, 1), plan(rows(8), 1)).await;
    let errors: Vec<Option<ErrorClass>> = samples.iter().map(|sample| sample.error).collect();
    let expected = [
        ErrorClass::UpstreamStatus,
        ErrorClass::ClientError,
        ErrorClass::UpstreamProtocol,
        ErrorClass::UpstreamErrorEvent,
        ErrorClass::UpstreamAborted,
        ErrorClass::UpstreamAborted,
        ErrorClass::UpstreamClosed,
    ];
    assert_eq!(errors[..7], expected.map(Some));
    assert_eq!(errors[7], None);
    let details = [0, 1, 3].map(|row: usize| samples[row].detail.as_deref());
    assert_eq!(details, [Some("no replica is available"), Some("unknown model"), Some("engine died")]);
    // Times before the failure were measured nevertheless.
    assert!(samples[4].ttft_ms.is_some() && samples[4].content_events == 1);
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let (client, tracker) = client_of(&MockServer::new(&[MockAnswer::Never], 1), Duration::from_millis(1)).await;
    let driven = drive(&client, plan(rows(1), 1), &tracker, &StopControls::default(), |_| {}).await;
    assert_eq!(driven.samples[0].error, Some(ErrorClass::FirstByteTimeout));
}

#[tokio::test]
async fn stopping_sends_no_more_and_keeps_what_was_measured() {
    let (client, tracker) = client_of(&MockServer::new(&[], 1), Duration::from_secs(60)).await;
    let brakes = StopControls::default();
    let driven = drive(&client, plan(rows(50), 1), &tracker, &brakes, |_| brakes.stop.cancel()).await;
    assert!(!driven.samples.is_empty() && driven.unsent > 0, "{driven:?}");
    assert_eq!((driven.samples.len() + driven.unsent, driven.unfinished), (50, 0));
}

#[tokio::test]
async fn aborting_drops_what_is_in_flight() {
    let mock = MockServer::new(&[MockAnswer::Never], 1);
    let (client, tracker) = client_of(&mock, Duration::from_secs(60)).await;
    let brakes = StopControls::default();
    let abort = async {
        mock.arrived.notified().await;
        brakes.stop.cancel();
        brakes.abort.cancel();
    };
    let (driven, ()) = tokio::join!(drive(&client, plan(rows(2), 1), &tracker, &brakes, |_| {}), abort);
    assert_eq!((driven.samples.len(), driven.unsent, driven.unfinished), (0, 1, 1));
}

/// One request to a server that fails a number of times first, by a client with a number of retries.
async fn tried(failures: usize, status: u16, retries: u32) -> RequestSample {
    let mock = MockServer::new(&[MockAnswer::GoodAfter(failures, status)], 1);
    let tracker = TaskTracker::new();
    let address = mock.serve(&tracker).await;
    let target = ServerUrl::parse(&address.to_string()).unwrap();
    let asked = RequestOptions { retries, ..asked(Duration::from_secs(60)) };
    let client = Arc::new(ReplayClient::new(target, &asked, None, clock(), tracker.clone()).unwrap());
    drive(&client, plan(rows(1), 1), &tracker, &StopControls::default(), |_| {}).await.samples.swap_remove(0)
}

#[tokio::test]
async fn a_request_is_sent_again_only_where_told_and_its_times_count_from_the_first() {
    let once = tried(1, 502, 2).await;
    assert_eq!((once.error, once.status, once.retries), (None, Some(200), 1));
    // 100 ms before the second try.
    assert!(once.ttft_ms.unwrap() >= 100.0 && once.ttft_ms.unwrap() <= once.e2e_ms, "{once:?}");
    let never = tried(1, 502, 0).await;
    assert_eq!((never.error, never.status, never.retries), (Some(ErrorClass::UpstreamStatus), Some(502), 0));
    let spent = tried(5, 502, 1).await;
    assert_eq!((spent.status, spent.retries), (Some(502), 1));
    // The engine answered: another try would be another request.
    let answered = tried(5, 500, 2).await;
    assert_eq!((answered.status, answered.retries), (Some(500), 0));
}

#[tokio::test]
async fn a_whole_answer_has_tokens_and_no_first_one() {
    const WHOLE: &str = "{\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"two words\"}}],\
                         \"usage\":{\"prompt_tokens\":20,\"completion_tokens\":2}}";
    let mock = MockServer::new(&[MockAnswer::Stream(&[WHOLE]), MockAnswer::Stream(&["half {"])], 1);
    let tracker = TaskTracker::new();
    let address = mock.serve(&tracker).await;
    let asked = RequestOptions { stream: false, ..asked(Duration::from_secs(60)) };
    let target = ServerUrl::parse(&address.to_string()).unwrap();
    let client = Arc::new(ReplayClient::new(target, &asked, None, clock(), tracker.clone()).unwrap());
    let mut samples = drive(&client, plan(rows(2), 1), &tracker, &StopControls::default(), |_| {}).await.samples;
    samples.sort_by_key(|sample| sample.row);
    assert_eq!((samples[0].error, samples[0].ttft_ms, samples[0].content_events), (None, None, 1));
    assert_eq!(samples[0].usage.completion_tokens, Some(2));
    assert_eq!(samples[1].error, Some(ErrorClass::UpstreamProtocol));
    assert_eq!(RunSummary::from_samples(&samples).without_content, 0);
}

#[tokio::test]
async fn what_is_in_flight_too_long_after_the_last_send_is_dropped() {
    let mock = MockServer::new(&[MockAnswer::Good, MockAnswer::Never], 1);
    let (client, tracker) = client_of(&mock, Duration::from_secs(60)).await;
    let brakes = StopControls { drain: Some(Duration::from_millis(20)), ..StopControls::default() };
    let driven = drive(&client, plan(rows(2), 2), &tracker, &brakes, |_| {}).await;
    assert_eq!((driven.samples.len(), driven.unsent, driven.unfinished), (1, 0, 1));
}

/// The arguments as clap reads them.
#[derive(Parser)]
struct ReplayCli {
    #[command(flatten)]
    args: ReplayArgs,
}

fn args(words: &[&str]) -> ReplayArgs {
    ReplayCli::try_parse_from([&["replay"], words].concat()).unwrap().args
}

const TRACE: &str = "{\"timestamp\":0,\"input_length\":20,\"output_length\":9,\"hash_ids\":[1,2],\"id\":\"x\"}\n\
                     {\"timestamp\":1,\"input_length\":40,\"output_length\":9,\"hash_ids\":[1,2,3]}\n\
                     {\"timestamp\":2,\"input_length\":17,\"output_length\":9,\"hash_ids\":[1,4]}\n";

#[tokio::test]
async fn the_command_reads_replays_and_reports() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, csv) = (folder.path().join("t.jsonl"), folder.path().join("out.csv"));
    std::fs::write(&trace, TRACE).unwrap();
    let mock = MockServer::new(&[], 1);
    let tracker = TaskTracker::new();
    let address = mock.serve(&tracker).await.to_string();
    let words = [trace.to_str().unwrap(), "--to", &address, "--csv", csv.to_str().unwrap()];
    let more = ["--max-input-tokens", "39", "--max-output-tokens", "5", "--label", "mine", "--max-in-flight", "2"];
    let more = [more.as_slice(), &["--engine-info"]].concat();
    let report = replay(&args(&[words.as_slice(), &more].concat()), clock()).await.unwrap();
    assert_eq!((report.model.as_str(), report.label.as_str(), report.block_tokens), ("listed", "mine", 16));
    assert_eq!((report.counts.dropped_over_input, report.counts.outputs_capped), (1, 2));
    assert_eq!((report.summary.requests, report.summary.errors, report.summary.hit_rate), (2, 0, Some(0.75)));
    let lines = std::fs::read_to_string(&csv).unwrap();
    let rows: Vec<&str> = lines.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(rows, ["0", "2"]);
    assert_eq!(mock.connections.load(Ordering::SeqCst), 4, "two warm ones and one for each question on the server");
    // Only keys that distinguish runs, and no secrets.
    assert_eq!(report.record.engine, serde_json::json!({ "version": "0.5", "max_running_requests": 64 }));
    assert_eq!(report.record.models[0]["id"], "listed");
}

#[tokio::test]
async fn exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, bad) = (folder.path().join("t.jsonl"), folder.path().join("bad.jsonl"));
    std::fs::write(&trace, TRACE).unwrap();
    std::fs::write(&bad, "{\"timestamp\":0}\n").unwrap();
    let no_folder = folder.path().join("absent").join("out.csv");
    let (trace, bad, no_folder) = (trace.to_str().unwrap(), bad.to_str().unwrap(), no_folder.to_str().unwrap());
    let tracker = TaskTracker::new();
    let good = MockServer::new(&[], 1).serve(&tracker).await.to_string();
    let failing = MockServer::new(&[MockAnswer::Status(500, "")], 1).serve(&tracker).await.to_string();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let cases: [(&[&str], u8); 10] = [
        (&[trace, "--to", &good, "--json"], 0),
        (&[trace, "--to", &failing], 1),
        (&[trace, "--to", &closed], 1),
        (&[bad, "--to", &good], 2),
        (&["absent.jsonl", "--to", &good], 2),
        (&[trace, "--to", "https://a"], 2),
        (&[trace, "--to", &good, "--limit", "0"], 2),
        (&[trace, "--to", &good, "--api-key-env", "GORGO_TEST_NO_SUCH_KEY"], 2),
        (&[trace, "--to", &good, "--csv", no_folder], 2),
        (&[trace, "--to", &good, "--history", no_folder], 74),
    ];
    for (words, code) in cases {
        assert_eq!(run(args(words), clock()).await.code(), code, "{words:?}");
    }
}

#[tokio::test]
async fn a_replay_leaves_all_it_found_in_a_folder_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, out) = (folder.path().join("t.jsonl"), folder.path().join("runs").join("first"));
    std::fs::write(&trace, TRACE).unwrap();
    let tracker = TaskTracker::new();
    let address = MockServer::new(&[], 1).serve(&tracker).await.to_string();
    let words = [trace.to_str().unwrap(), "--to", &address, "--out-dir", out.to_str().unwrap()];
    let report = replay(&args(&words), clock()).await.unwrap();
    assert_eq!(std::fs::read_to_string(out.join("run.json")).unwrap(), report.json_text());
    assert_eq!(std::fs::read_to_string(out.join("run.csv")).unwrap().lines().count(), 4);
    assert!(std::fs::read_to_string(out.join("run.html")).unwrap().contains("<svg"));
    assert!(replay(&args(&words), clock()).await.unwrap_err().to_string().contains("already exists"));
}

#[test]
fn a_context_leaves_room_for_answer_and_template() {
    let longest =
        |more: &[&str]| args(&[&["t", "--to", "a", "--max-output-tokens", "128"], more].concat()).longest_input();
    assert_eq!(longest(&["--context-tokens", "4096"]), Some(4096 - 128 - 64));
    assert_eq!(longest(&["--context-tokens", "4096", "--max-input-tokens", "1000"]), Some(1000));
    assert_eq!(longest(&["--context-tokens", "100"]), Some(0));
    assert_eq!(longest(&[]), None);
}

#[tokio::test]
async fn a_replay_begins_at_its_time_and_ends_with_its_minutes() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.jsonl");
    // The third row is an hour away.
    std::fs::write(&trace, TRACE.replace("\"timestamp\":2", "\"timestamp\":3600000")).unwrap();
    let tracker = TaskTracker::new();
    let address = MockServer::new(&[], 1).serve(&tracker).await.to_string();
    let words =
        [trace.to_str().unwrap(), "--to", &address, "--start-at", "1970-01-01T00:00:00.2Z", "--max-minutes", "0.005"];
    let report = replay(&args(&words), clock()).await.unwrap();
    assert!(report.record.started_at.0 >= 200_000, "{:?}", report.record.started_at);
    assert_eq!((report.summary.requests, report.unsent), (2, 1));
    assert!(report.text().contains("1 requests not sent: stopped"), "{}", report.text());
    let late = replay(&args(&[words[0], "--to", &address, "--start-at", "1970-01-01T00:00:00Z"]), clock()).await;
    assert!(late.unwrap_err().to_string().contains("is in the past"));
}

#[test]
fn senseless_arguments_are_refused() {
    let wrong = [
        ["--time-scale", "NaN"],
        ["--time-scale", "-1"],
        ["--max-output-tokens", "0"],
        ["--path", "x"],
        ["--start-at", "soon"],
        ["--max-minutes", "0"],
        ["--max-fallback-share", "2"],
        ["--context-tokens", "4096"],
    ];
    for words in wrong {
        let line = [["replay", "t", "--to", "a"].as_slice(), &words].concat();
        assert!(ReplayCli::try_parse_from(line).is_err(), "{words:?}");
    }
}
