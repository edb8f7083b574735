//! Engine for tests: a real HTTP server on loopback whose answers a test determines, and a clock that advances by one
//! millisecond each time it is read, so that round trips are exact.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::engine::client::{EngineClient, HttpEndpoint};
use crate::engine::monitor::health::ReplicaLiveness;
use crate::engine::monitor::{MonitoredReplica, ProbeContext};
use gorgo_observe::{FactOutlet, RecordListener};
use gorgo_routing::config::{EngineUrl, HttpVersion};
use gorgo_routing::model::{Clock, EngineKind, EventKind, FleetEvent, ReplicaId, StoreRecord, UnixMicros};

/// Answer of the engine; `None`: none, ever.
pub(in crate::engine) type MockReply = Option<Response<Full<Bytes>>>;

pub(in crate::engine) fn reply(status: u16, body: impl Into<Bytes>) -> MockReply {
    Some(Response::builder().status(status).body(Full::new(body.into())).unwrap())
}

pub(in crate::engine) fn redirect(to: &str) -> MockReply {
    Some(Response::builder().status(307).header("location", to).body(Full::default()).unwrap())
}

/// Running mock.
pub(in crate::engine) struct MockEngine {
    pub(in crate::engine) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    stop: CancellationToken,
}

impl MockEngine {
    pub(in crate::engine) async fn start(
        answer: impl Fn(&Request<Incoming>) -> MockReply + Send + Sync + 'static,
    ) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), answer).await
    }

    pub(in crate::engine) async fn start_at(
        address: SocketAddr,
        answer: impl Fn(&Request<Incoming>) -> MockReply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, stop, answer) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new(), Arc::new(answer));
        let (counted, stopped, tasks) = (connections.clone(), stop.clone(), TaskTracker::new());
        tasks.clone().spawn(stop.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let answer = answer.clone();
                let service = service_fn(move |request| {
                    let reply = answer(&request);
                    async move {
                        match reply {
                            Some(reply) => Ok::<_, Infallible>(reply),
                            None => std::future::pending().await,
                        }
                    }
                });
                tasks.spawn(stopped.clone().run_until_cancelled_owned(async move {
                    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                }));
            }
        }));
        Self { address, connections, stop }
    }

    pub(in crate::engine) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(in crate::engine) fn stop(&self) {
        self.stop.cancel();
    }

    pub(in crate::engine) fn endpoint(&self, key: Option<&str>) -> HttpEndpoint {
        HttpEndpoint::new(EngineUrl::of_socket(self.address), key, HttpVersion::Http1).unwrap()
    }

    pub(in crate::engine) fn client(&self, key: Option<&str>) -> EngineClient {
        EngineClient::new(self.endpoint(key), TaskTracker::new())
    }

    pub(in crate::engine) fn watched(&self, engine: EngineKind, key: Option<&str>) -> MonitoredReplica {
        MonitoredReplica {
            replica: ReplicaId(0),
            name: "a".into(),
            adapter: engine.adapter(),
            endpoint: self.endpoint(key),
            api_key_env: key.map(|_| "A_KEY".to_owned()),
            learn_models: true,
        }
    }
}

impl Drop for MockEngine {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Address that refuses connections, and that no other test can take meanwhile: bound, but not listened on.
pub(in crate::engine) struct RefusingAddress(socket2::Socket);

impl RefusingAddress {
    pub(in crate::engine) fn new() -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        Self(socket)
    }

    pub(in crate::engine) fn endpoint(&self) -> HttpEndpoint {
        let address = self.0.local_addr().unwrap().as_socket().unwrap();
        HttpEndpoint::new(EngineUrl::of_socket(address), None, HttpVersion::Http1).unwrap()
    }
}

/// Clock that advances by one millisecond each time it is read.
#[derive(Debug)]
pub(in crate::engine) struct TickingClock(AtomicU64);

impl TickingClock {
    pub(in crate::engine) const fn new() -> Self {
        Self(AtomicU64::new(1_000_000_000))
    }

    pub(in crate::engine) fn skip(&self, ms: u64) {
        self.0.fetch_add(ms * 1_000, Ordering::Relaxed);
    }
}

impl Clock for TickingClock {
    fn now(&self) -> UnixMicros {
        UnixMicros(self.0.fetch_add(1_000, Ordering::Relaxed))
    }
}

#[derive(Default)]
struct RecordingListener {
    records: Mutex<Vec<StoreRecord>>,
}

impl RecordListener for RecordingListener {
    fn record(&self, record: StoreRecord) {
        self.records.lock().push(record);
    }
}

/// Context that remembers what was reported.
pub(in crate::engine) struct RecordingContext {
    pub(in crate::engine) senses: ProbeContext,
    pub(in crate::engine) clock: Arc<TickingClock>,
    events: Arc<Mutex<Vec<FleetEvent>>>,
    ears: Arc<RecordingListener>,
}

impl RecordingContext {
    pub(in crate::engine) fn new() -> Self {
        let (clock, ears, events) =
            (Arc::new(TickingClock::new()), Arc::new(RecordingListener::default()), Arc::new(Mutex::new(Vec::new())));
        let sink: Arc<Mutex<Vec<FleetEvent>>> = events.clone();
        let take = Arc::new(move |event| sink.lock().push(event));
        let senses = ProbeContext {
            clock: clock.clone(),
            outlet: FactOutlet::new(clock.clone(), take, ears.clone()),
            liveness: Arc::new(ReplicaLiveness::new(1)),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            seed: 7,
        };
        Self { senses, clock, events, ears }
    }

    /// Events since the last call.
    pub(in crate::engine) fn events(&self) -> Vec<FleetEvent> {
        std::mem::take(&mut self.events.lock())
    }

    /// Records since the last call.
    pub(in crate::engine) fn records(&self) -> Vec<StoreRecord> {
        std::mem::take(&mut self.ears.records.lock())
    }

    /// Texts for operators in the records since the last call; the other records are dropped.
    pub(in crate::engine) fn notes(&self) -> Vec<(EventKind, String)> {
        let note = |record| match record {
            StoreRecord::Event(event) => Some((event.kind, event.text)),
            _ => None,
        };
        self.records().into_iter().filter_map(note).collect()
    }
}
