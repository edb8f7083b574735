//! Test doubles: a scripted engine, a raw client, a router of a few lines, and a listener that collects rows.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::super::*;
use crate::engine::{HttpEndpoint, ReplicaLiveness};
use gorgo_observe::RecordListener;
use gorgo_routing::config::{EngineUrl, HttpVersion};
use gorgo_routing::model::{
    ApiPath, AttemptRecord, BodySplice, DecisionId, DecisionRecord, EngineKind, FleetEvent, Generation, OutcomeRecord,
    ParsedRequest, PolicyBuildId, PolicyIndex, RequestOutcome, StoreRecord, UnixMicros,
};
use gorgo_routing::policy::{DecideError, DecisionContext, ReadError};

/// Time limit that no test reaches unless it hangs.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) async fn within_limit<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("it hangs")
}

/// One step of an engine's script for a request.
#[derive(Clone)]
pub(super) enum ScriptStep {
    /// Writes these bytes at once.
    Send(Vec<u8>),
    /// Continues when the test opens the gate; ends early when the router disconnects.
    Await(TestLatch),
    /// Waits for this long.
    Linger(Duration),
    /// Never continues; ends when the router disconnects.
    Hang,
    /// Closes the TCP connection properly.
    Close,
    /// Closes with a reset.
    Reset,
    /// Writes until the router disconnects, counting.
    Flood,
    /// Notifies the test.
    Note(Arc<dyn Fn() + Send + Sync>),
}

pub(super) fn send(text: impl Into<Vec<u8>>) -> ScriptStep {
    ScriptStep::Send(text.into())
}

/// Head of a chunked response.
pub(super) fn sse_head() -> ScriptStep {
    send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
}

/// One chunk of a chunked response.
pub(super) fn chunk(text: &str) -> ScriptStep {
    send(format!("{:x}\r\n{text}\r\n", text.len()))
}

pub(super) fn last_chunk() -> ScriptStep {
    send("0\r\n\r\n")
}

/// Complete response with a length.
pub(super) fn whole(status: u16, body: &str) -> Vec<ScriptStep> {
    vec![send(format!(
        "HTTP/1.1 {status} Whatever\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))]
}

pub(super) fn event(delta: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":null}}]}}\n\n")
}

pub(super) const FINISH: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
pub(super) const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n";
pub(super) const DONE: &str = "data: [DONE]\n\n";

/// Successful stream of two tokens, with the usage chunk if it was requested.
pub(super) fn good_stream(asked: &ReceivedRequest) -> Vec<ScriptStep> {
    let mut steps = vec![sse_head(), chunk(&event("{\"content\":\"a\"}")), chunk(&event("{\"content\":\"b\"}"))];
    steps.push(chunk(FINISH));
    if asked.text().contains("include_usage\":true") {
        steps.push(chunk(USAGE));
    }
    steps.extend([chunk(DONE), last_chunk()]);
    steps
}

/// Opened once by the test.
#[derive(Clone)]
pub(super) struct TestLatch(watch::Sender<bool>);

impl TestLatch {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    pub(super) fn open(&self) {
        self.0.send_replace(true);
    }

    async fn wait(&self) {
        let mut opened = self.0.subscribe();
        let _ = opened.wait_for(|open| *open).await;
    }
}

/// Request as an engine received it.
#[derive(Debug, Clone)]
pub(super) struct ReceivedRequest {
    pub(super) head: String,
    pub(super) body: Vec<u8>,
    pub(super) connection: usize,
}

impl ReceivedRequest {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

type Script = Arc<dyn Fn(&ReceivedRequest) -> Vec<ScriptStep> + Send + Sync>;

/// A scripted engine.
pub(super) struct ScriptedEngine {
    pub(super) address: SocketAddr,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
    asked_count: watch::Sender<usize>,
    gone: watch::Sender<usize>,
    pub(super) flooded: Arc<AtomicUsize>,
    dark: watch::Sender<bool>,
    cut: watch::Sender<()>,
    tasks: TaskTracker,
}

impl ScriptedEngine {
    pub(super) async fn start(script: impl Fn(&ReceivedRequest) -> Vec<ScriptStep> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let engine = Self {
            address: listener.local_addr().unwrap(),
            asked: Arc::default(),
            asked_count: watch::Sender::new(0),
            gone: watch::Sender::new(0),
            flooded: Arc::default(),
            dark: watch::Sender::new(false),
            cut: watch::Sender::new(()),
            tasks: TaskTracker::new(),
        };
        let life = ScriptedConnection {
            script: Arc::new(script),
            asked: Arc::clone(&engine.asked),
            asked_count: engine.asked_count.clone(),
            gone: engine.gone.clone(),
            flooded: Arc::clone(&engine.flooded),
            dark: engine.dark.clone(),
            cut: engine.cut.clone(),
        };
        let tasks = engine.tasks.clone();
        engine.tasks.spawn(async move {
            let mut connection = 0;
            while let Ok((stream, _)) = listener.accept().await {
                connection += 1;
                tasks.spawn(life.clone().connection(stream, connection));
            }
        });
        engine
    }

    /// Address where nothing listens.
    pub(super) async fn nowhere() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
    }

    /// True if the link to it is lost: the kernel still accepts connections, but nothing is read or written.
    pub(super) fn set_unreachable(&self, dark: bool) {
        self.dark.send_replace(dark);
    }

    /// Ends all connections with a reset, like a process that is killed and restarted.
    pub(super) fn restart(&self) {
        self.cut.send_replace(());
    }

    pub(super) fn asked(&self) -> Vec<ReceivedRequest> {
        self.asked.lock().clone()
    }

    /// Waits until this many requests have arrived in total.
    pub(super) async fn wait_for_requests(&self, times: usize) {
        within_limit(self.asked_count.subscribe().wait_for(|count| *count >= times)).await.unwrap();
    }

    /// Waits until the router has disconnected from this many running requests.
    pub(super) async fn wait_for_disconnects(&self, times: usize) {
        within_limit(self.gone.subscribe().wait_for(|count| *count >= times)).await.unwrap();
    }
}

#[derive(Clone)]
struct ScriptedConnection {
    script: Script,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
    asked_count: watch::Sender<usize>,
    gone: watch::Sender<usize>,
    flooded: Arc<AtomicUsize>,
    dark: watch::Sender<bool>,
    cut: watch::Sender<()>,
}

impl ScriptedConnection {
    async fn connection(self, mut stream: TcpStream, connection: usize) {
        stream.set_nodelay(true).unwrap();
        let mut cut = self.cut.subscribe();
        let was_cut = tokio::select! {
            () = self.answers(&mut stream, connection) => false,
            _ = cut.changed() => true,
        };
        if was_cut {
            // Resets.
            let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        }
    }

    /// Waits until the link is back.
    async fn linked(&self) {
        let _ = self.dark.subscribe().wait_for(|dark| !*dark).await;
    }

    async fn answers(&self, stream: &mut TcpStream, connection: usize) {
        while let Some((head, body)) = read_message(stream).await {
            self.linked().await;
            let asked = ReceivedRequest { head, body, connection };
            let steps = (self.script)(&asked);
            self.asked.lock().push(asked);
            self.asked_count.send_modify(|count| *count += 1);
            for step in steps {
                self.linked().await;
                let stays = match step {
                    ScriptStep::Send(bytes) => stream.write_all(&bytes).await.is_ok(),
                    ScriptStep::Await(gate) => tokio::select! {
                        () = gate.wait() => true,
                        () = until_closed(stream) => false,
                    },
                    ScriptStep::Linger(span) => {
                        tokio::time::sleep(span).await;
                        true
                    }
                    ScriptStep::Hang => {
                        until_closed(stream).await;
                        false
                    }
                    ScriptStep::Note(tell) => {
                        tell();
                        true
                    }
                    ScriptStep::Close => return,
                    ScriptStep::Reset => {
                        socket2::SockRef::from(&*stream).set_linger(Some(Duration::ZERO)).unwrap();
                        return;
                    }
                    ScriptStep::Flood => {
                        let piece = vec![b'x'; 64 << 10];
                        let framed = [format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat();
                        while stream.write_all(&framed).await.is_ok() {
                            self.flooded.fetch_add(piece.len(), Ordering::Relaxed);
                        }
                        false
                    }
                };
                if !stays {
                    self.gone.send_modify(|count| *count += 1);
                    return;
                }
            }
        }
    }
}

async fn until_closed(stream: &mut TcpStream) {
    let mut byte = [0];
    while matches!(stream.read(&mut byte).await, Ok(read) if read > 0) {}
}

/// Reads one message with a stated length (or none).
async fn read_message(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = memchr::memmem::find(&bytes, b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length: usize = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = bytes.split_off(end);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some((head, body))
}

/// Response as a client received it.
#[derive(Debug)]
pub(super) struct ReceivedResponse {
    /// Chunks of a chunked body; 1 for any other.
    pub(super) pieces: usize,
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
    /// The transfer ended properly.
    pub(super) complete: bool,
}

impl ReceivedResponse {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// Decision id that the router reported.
    pub(super) fn decision(&self) -> DecisionId {
        DecisionId(self.header("x-gorgo-decision").expect("a decision header").parse().unwrap())
    }
}

/// A raw client connection.
pub(super) struct RawClient {
    pub(super) stream: TcpStream,
    bytes: Vec<u8>,
}

impl RawClient {
    pub(super) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, bytes: Vec::new() }
    }

    pub(super) async fn write(&mut self, text: impl AsRef<[u8]>) {
        self.stream.write_all(text.as_ref()).await.unwrap();
    }

    pub(super) async fn post(&mut self, path: &str, body: &str) {
        self.write(post(path, body)).await;
    }

    /// Reads until these bytes have arrived.
    pub(super) async fn until(&mut self, text: &str) {
        while memchr::memmem::find(&self.bytes, text.as_bytes()).is_none() {
            assert!(self.more().await, "closed before {text:?}");
        }
    }

    async fn more(&mut self) -> bool {
        within_limit(self.stream.read_buf(&mut self.bytes)).await.is_ok_and(|read| read > 0)
    }

    /// Returns `true` if the router closes the connection.
    pub(super) async fn is_closed(&mut self) -> bool {
        while self.more().await {}
        self.bytes.is_empty()
    }

    /// Reads one response.
    pub(super) async fn answer(&mut self) -> ReceivedResponse {
        let end = loop {
            if let Some(end) = memchr::memmem::find(&self.bytes, b"\r\n\r\n") {
                break end + 4;
            }
            assert!(self.more().await, "closed before the answer's head");
        };
        let head = String::from_utf8_lossy(&self.bytes[..end]).into_owned();
        self.bytes.drain(..end);
        let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        let (body, complete, pieces) = if header(&head, "transfer-encoding").is_some() {
            self.chunked().await
        } else {
            let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
            let (body, complete) = self.sized(length).await;
            (body, complete, 1)
        };
        ReceivedResponse { status, head, body: String::from_utf8_lossy(&body).into_owned(), complete, pieces }
    }

    async fn sized(&mut self, length: usize) -> (Vec<u8>, bool) {
        while self.bytes.len() < length {
            if !self.more().await {
                return (std::mem::take(&mut self.bytes), false);
            }
        }
        (self.bytes.drain(..length).collect(), true)
    }

    async fn chunked(&mut self) -> (Vec<u8>, bool, usize) {
        let mut body = Vec::new();
        for pieces in 0.. {
            let line = loop {
                if let Some(line) = memchr::memmem::find(&self.bytes, b"\r\n") {
                    break line;
                }
                if !self.more().await {
                    return (body, false, pieces);
                }
            };
            let size = usize::from_str_radix(std::str::from_utf8(&self.bytes[..line]).unwrap(), 16).unwrap();
            self.bytes.drain(..line + 2);
            let (piece, complete) = self.sized(size + 2).await;
            body.extend_from_slice(&piece[..piece.len().min(size)]);
            if !complete || size == 0 {
                return (body, complete, pieces);
            }
        }
        unreachable!("the range has no end")
    }
}

pub(super) fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: router\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(super) const CHAT: &str = "/v1/chat/completions";
pub(super) const STREAM: &str = r#"{"model":"m","stream":true,"messages":[]}"#;
pub(super) const PLAIN: &str = r#"{"model":"m","messages":[]}"#;

/// Real time, which the connections are measured with.
pub(super) struct InstantClock(pub(super) Instant);

impl gorgo_routing::model::Clock for InstantClock {
    fn now(&self) -> UnixMicros {
        UnixMicros(1_700_000_000_000_000).plus(self.0.elapsed())
    }
}

/// Collects rows.
#[derive(Default)]
pub(super) struct CollectedRecords {
    rows: Mutex<Vec<StoreRecord>>,
    count: watch::Sender<usize>,
}

impl RecordListener for CollectedRecords {
    fn record(&self, record: StoreRecord) {
        self.rows.lock().push(record);
        self.count.send_modify(|count| *count += 1);
    }
}

impl CollectedRecords {
    pub(super) fn all(&self) -> Vec<StoreRecord> {
        self.rows.lock().clone()
    }

    pub(super) fn outcomes(&self) -> Vec<OutcomeRecord> {
        let rows = self.all().into_iter();
        rows.filter_map(|row| if let StoreRecord::Outcome(_, outcome) = row { Some(*outcome) } else { None }).collect()
    }

    pub(super) fn decisions(&self) -> Vec<DecisionRecord> {
        let rows = self.all().into_iter();
        rows.filter_map(|row| if let StoreRecord::Decision(decision) = row { Some(*decision) } else { None }).collect()
    }

    pub(super) fn attempts(&self) -> Vec<AttemptRecord> {
        let rows = self.all().into_iter();
        rows.filter_map(|row| if let StoreRecord::Attempt(attempt) = row { Some(attempt) } else { None }).collect()
    }

    /// Waits for this many outcomes; each must be the only one of its decision, and have a decision row.
    pub(super) async fn outcomes_are(&self, count: usize) -> Vec<OutcomeRecord> {
        let mut changed = self.count.subscribe();
        within_limit(changed.wait_for(|_| self.outcomes().len() >= count)).await.unwrap();
        let outcomes = self.outcomes();
        assert_eq!(outcomes.len(), count, "{outcomes:?}");
        let mut decided: HashMap<DecisionId, usize> = HashMap::new();
        for decision in self.decisions() {
            *decided.entry(decision.decision).or_default() += 1;
        }
        for outcome in &outcomes {
            assert_eq!(decided.remove(&outcome.decision), Some(1), "decision rows of {outcome:?}");
        }
        outcomes
    }

    /// The only outcome.
    pub(super) async fn outcome(&self) -> OutcomeRecord {
        self.outcomes_are(1).await.remove(0)
    }
}

/// Router of a few lines: the replica with the fewest requests in flight, the first of equals.
pub(super) struct FakeRouter {
    pub(super) loads: Arc<Vec<AtomicI64>>,
    pub(super) endings: Arc<Mutex<Vec<RequestOutcome>>>,
    /// Requests that produced their first token and are still running.
    pub(super) decoding: Arc<AtomicI64>,
}

struct FakeLease {
    replica: ReplicaId,
    loads: Arc<Vec<AtomicI64>>,
    endings: Arc<Mutex<Vec<RequestOutcome>>>,
    decoding: Arc<AtomicI64>,
    began: bool,
}

impl ReplicaSelector for FakeRouter {
    fn read(
        &self,
        path: &str,
        body: &[u8],
        session: Option<&[u8]>,
        _key: Option<&[u8]>,
    ) -> Result<ParsedRequest, ReadError> {
        let path = ApiPath::from_path(path);
        let value: serde_json::Value = match serde_json::from_slice(body) {
            Ok(value) => value,
            Err(_) if path == ApiPath::Other => serde_json::Value::Null,
            Err(_) => return Err(ReadError::Malformed("the body is not JSON".to_owned())),
        };
        let stream = value["stream"].as_bool().unwrap_or(false);
        let splice = stream && path == ApiPath::ChatCompletions && value["stream_options"].is_null();
        Ok(ParsedRequest {
            path,
            model: value["model"].as_str().map(Into::into),
            stream,
            chain: Vec::new(),
            prompt_bytes: 0,
            media_bytes: 0,
            exact_tokens: None,
            max_tokens: None,
            body_bytes: u64::try_from(body.len()).unwrap(),
            session_hash: session.map_or(0, |session| u64::try_from(session.len()).unwrap()),
            head_hash: 0,
            has_extra_keys: false,
            slo_ttft_ms: None,
            usage_splice: splice.then(|| BodySplice {
                offset: 1,
                removed_bytes: 0,
                text: br#""stream_options":{"include_usage":true},"#.to_vec(),
            }),
        })
    }

    fn active_build(&self, policy: PolicyIndex) -> PolicyBuildId {
        PolicyBuildId(policy.0)
    }

    fn decide(&self, prompt: &ParsedRequest, context: &DecisionContext<'_>) -> Result<SelectedReplica, DecideError> {
        if prompt.model.as_deref() == Some("unknown") {
            return Err(DecideError::UnknownModel);
        }
        let free = (0..self.loads.len())
            .map(|index| ReplicaId(u16::try_from(index).unwrap()))
            .filter(|replica| !context.exclude.contains(replica));
        let replica = free
            .min_by_key(|replica| self.loads[replica.index()].load(Ordering::SeqCst))
            .ok_or(DecideError::NoReplica)?;
        self.loads[replica.index()].fetch_add(1, Ordering::SeqCst);
        Ok(SelectedReplica {
            record: Box::new(DecisionRecord {
                decision: context.id,
                received: context.at,
                path: prompt.path,
                model: prompt.model.clone(),
                session_hash: prompt.session_hash,
                policy: self.active_build(context.policy),
                generation: Generation(0),
                arm: None,
                block: None,
                counted: false,
                seed: context.seed,
                replica: Some(replica),
                refusal: None,
                propensity: 1.0,
                ties: 1,
                prompt_tokens: 0,
                parent: None,
                shared_tokens: 0,
                body_bytes: prompt.body_bytes,
                decide_us: 0,
                candidates: Vec::new(),
                shadows: Vec::new(),
            }),
            lease: Box::new(FakeLease {
                replica,
                loads: Arc::clone(&self.loads),
                endings: Arc::clone(&self.endings),
                decoding: Arc::clone(&self.decoding),
                began: false,
            }),
            predicted_ttft_ms: Some(12.5),
            predicted_cached_tokens: 3,
        })
    }
}

impl ReplicaLease for FakeLease {
    fn replica(&self) -> ReplicaId {
        self.replica
    }

    fn first_token(&mut self, _at: UnixMicros) {
        assert!(!std::mem::replace(&mut self.began, true), "first_token twice");
        self.decoding.fetch_add(1, Ordering::SeqCst);
    }

    fn finish(self: Box<Self>, _prompt: &ParsedRequest, ending: &RequestOutcome, _at: UnixMicros) {
        self.loads[self.replica.index()].fetch_sub(1, Ordering::SeqCst);
        if self.began {
            self.decoding.fetch_sub(1, Ordering::SeqCst);
        }
        self.endings.lock().push(*ending);
    }
}

/// A running data plane.
pub(super) struct DataPlaneFixture {
    pub(super) address: SocketAddr,
    pub(super) data: Arc<DataPlane>,
    pub(super) rows: Arc<CollectedRecords>,
    pub(super) fake: Arc<FakeRouter>,
    /// Facts that the data plane reported.
    pub(super) events: Arc<Mutex<Vec<FleetEvent>>>,
    pub(super) readiness: ReadinessFlag,
    pub(super) unread_hints: UnreadHints,
    pub(super) shutdown: CancellationToken,
    pub(super) tracker: TaskTracker,
    pub(super) served: watch::Sender<bool>,
}

/// Settings that a test may override.
pub(super) struct FixtureSettings {
    pub(super) server: ServerConfig,
    pub(super) failover: FailoverConfig,
    pub(super) http: HttpVersion,
    /// Name by which the engines are known; `None`: their address.
    pub(super) host: Option<String>,
    pub(super) key: Option<String>,
    pub(super) models: Vec<Arc<str>>,
    pub(super) engine: EngineKind,
    /// Replaces the router of a few lines, with its clock.
    pub(super) choose: Option<(Arc<dyn ReplicaSelector>, Arc<dyn Clock>)>,
}

impl DataPlaneFixture {
    pub(super) async fn start(engines: &[SocketAddr]) -> Self {
        Self::start_with(engines, |_| {}).await
    }

    pub(super) async fn start_with(engines: &[SocketAddr], change: impl FnOnce(&mut FixtureSettings)) -> Self {
        let mut settings = FixtureSettings {
            // Tests count connections; tests of opening ahead request it.
            server: ServerConfig { spare_connections: 0, ..ServerConfig::default() },
            failover: FailoverConfig::default(),
            http: HttpVersion::Http1,
            host: None,
            key: None,
            models: Vec::new(),
            engine: EngineKind::Vllm,
            choose: None,
        };
        change(&mut settings);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let rows = Arc::new(CollectedRecords::default());
        let fake = Arc::new(FakeRouter {
            loads: Arc::new(engines.iter().map(|_| AtomicI64::new(0)).collect()),
            endings: Arc::default(),
            decoding: Arc::default(),
        });
        let tracker = TaskTracker::new();
        let (events, readiness) = (Arc::new(Mutex::new(Vec::new())), ReadinessFlag::default());
        let replicas = engines.iter().enumerate().map(|(index, engine)| ReplicaSetup {
            id: ReplicaId(u16::try_from(index).unwrap()),
            name: format!("e{}", index + 1).into(),
            engine: settings.engine,
            endpoint: {
                let named = |host| EngineUrl::parse(&format!("http://{host}:{}", engine.port())).unwrap();
                let url = settings.host.as_ref().map_or_else(|| EngineUrl::of_socket(*engine), named);
                HttpEndpoint::new(url, settings.key.as_deref(), settings.http).unwrap()
            },
            models: settings.models.clone(),
        });
        let (choose, clock) = settings
            .choose
            .unwrap_or_else(|| (Arc::clone(&fake) as Arc<dyn ReplicaSelector>, Arc::new(InstantClock(Instant::now()))));
        let unread_hints = UnreadHints::default();
        let sink = Arc::clone(&events);
        let take = Arc::new(move |event| sink.lock().push(event));
        let outlet = FactOutlet::new(Arc::clone(&clock), take, Arc::clone(&rows) as Arc<dyn RecordListener>);
        let setup = DataPlaneSetup {
            selector: choose,
            clock,
            outlet,
            on_served: None,
            readiness: readiness.clone(),
            unread_hints: unread_hints.clone(),
            liveness: Arc::new(ReplicaLiveness::new(engines.len())),
            server: settings.server,
            failover: settings.failover,
            replicas: replicas.collect(),
            serving: ServingPolicy::new(PolicyIndex(0)),
            ids: DecisionIds::above(DecisionId(0)),
            seed: 7,
        };
        let data = DataPlane::new(setup, &tracker).unwrap();
        let shutdown = CancellationToken::new();
        let served = watch::Sender::new(false);
        tracker.spawn({
            let (data, shutdown, tracker, served) =
                (Arc::clone(&data), shutdown.clone(), tracker.clone(), served.clone());
            async move {
                serve(data, listener, shutdown, &tracker).await;
                served.send_replace(true);
            }
        });
        Self { address, data, rows, fake, events, readiness, unread_hints, shutdown, tracker, served }
    }

    pub(super) async fn client(&self) -> RawClient {
        RawClient::connect(self.address).await
    }

    /// Sends one request on a separate connection.
    pub(super) async fn ask(&self, path: &str, body: &str) -> ReceivedResponse {
        let mut client = self.client().await;
        client.post(path, body).await;
        client.answer().await
    }

    pub(super) async fn raw(&self, request: impl AsRef<[u8]>) -> ReceivedResponse {
        let mut client = self.client().await;
        client.write(request).await;
        client.answer().await
    }

    pub(super) fn load(&self) -> i64 {
        self.fake.loads.iter().map(|load| load.load(Ordering::SeqCst)).sum()
    }

    pub(super) async fn has_served(&self) {
        within_limit(self.served.subscribe().wait_for(|served| *served)).await.unwrap();
    }
}
