//! Connections to one replica.
//!
//! HTTP/1.1: idle connections are reused last in, first out, while they are younger than `server.keep_idle_ms` (engines
//! close theirs after 5 s, and a request that meets the close is lost) and younger than the `timeout` in the engine's
//! own `Keep-Alive` header. HTTP/2: one shared connection. A request is sent again automatically only if not a byte of
//! it can have left, in which case hyper gives it back. A connection that is dropped instead of given back is closed at
//! once, so that the engine stops working for a client that left.
//!
//! Connections, including the shared one, are opened before they are needed, and again when they end: a request that
//! has to dial pays one more round trip, which at 456 ms costs more than most choices of a replica. See
//! [`PoolState::missing`] for how many.
//!
//! Nothing is sent to keep the window of an idle connection open, although a few bytes within each retransmission
//! time-out would do (`.ci/regions` measures it): over HTTP/1.1 they would have to be requests. `gorgo doctor` names
//! the kernel's setting that does it for all connections.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::header::{HOST, HeaderName};
use hyper::{HeaderMap, Request, Response, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::edge::listen::TrackerExecutor;
use crate::edge::upstream::body::UpstreamBody;
use crate::edge::upstream::dial::ReplicaAddress;
use crate::edge::upstream::inline_connection::InlineConnection;
use crate::edge::upstream::replica_socket::{ReplicaSocket, SocketView};
use crate::edge::upstream::slow_start::{FIRST_WINDOW, round_trips, window_after};
use crate::edge::upstream::tcp_info::TcpState;
use crate::engine::HttpEndpoint;
use gorgo_routing::config::HttpVersion;
use gorgo_routing::model::{Clock, ConnectionReuse, ErrorClass, UnixMicros};

/// Safety margin before the end of the engine's own keep-alive limit.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);
/// Idle connections kept per replica.
const MAX_IDLE: usize = 256;
/// Pause before connections are opened ahead again after one could not be opened.
const PRECONNECT_PAUSE: Duration = Duration::from_secs(1);
/// Fraction by which the remembered peak of busy connections decays at each [`ConnectionPool::maintain`] towards those busy now: with
/// one call a second it halves in some 40 s.
const PEAK_DECAY: f64 = 1.0 / 60.0;
/// Connections per replica, busy and idle.
const MAX_CONNECTIONS: usize = 4_096;
/// Bytes read ahead per connection.
const READ_BUFFER: usize = 64 << 10;
/// HTTP/2 receive windows: the default of 64 KiB costs a round trip per 64 KiB.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// HTTP/2 keep-alive pings, so that a dead peer is noticed.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// Shortest interval at which the kernel is asked about a replica's connections.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Progress of an attempt to send; filled in as it goes, so it is valid even when the attempt is aborted.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::edge) struct SendTiming {
    /// New or reused; `None` until there is one.
    pub(in crate::edge) connection: Option<ConnectionReuse>,
    /// Time spent connecting.
    pub(in crate::edge) connect: Option<Duration>,
    /// Time at which the request was handed to the connection.
    pub(in crate::edge) sent: Option<UnixMicros>,
    /// TCP statistics of the kernel, if it was asked.
    pub(in crate::edge) kernel: Option<TcpState>,
}

/// Reason why there is no response.
#[derive(Debug)]
pub(in crate::edge) struct SendError {
    pub(in crate::edge) error_class: ErrorClass,
    /// True if nothing of the request can have reached the engine.
    pub(in crate::edge) unsent: bool,
}

impl SendError {
    const fn connect() -> Self {
        Self { error_class: ErrorClass::Connect, unsent: true }
    }
}

/// Connection that carries, or carried, one request.
#[derive(Debug)]
pub(in crate::edge) enum PooledConnection {
    /// Used by one request at a time.
    Http1(Http1Connection),
    /// Shared; resets its stream by itself when the response is dropped.
    Http2,
}

/// One HTTP/1.1 connection. Dropping it closes it.
#[derive(Debug)]
pub(in crate::edge) struct Http1Connection {
    sender: http1::SendRequest<UpstreamBody>,
    protocol: InlineConnection,
    socket: SocketView,
    idle_since: UnixMicros,
    idle_max: Duration,
    _permit: OwnedSemaphorePermit,
}

impl Http1Connection {
    fn usable(&self, now: UnixMicros) -> bool {
        !self.protocol.has_ended() && !self.sender.is_closed() && now.elapsed_since(self.idle_since) < self.idle_max
    }

    /// Like `usable`, after polling the connection for what happened to it meanwhile.
    fn poll_usable(&mut self, now: UnixMicros) -> bool {
        self.protocol.poll_once();
        self.usable(now)
    }
}

impl PooledConnection {
    /// Polls `reader`, which waits for a response that this connection carries.
    pub(in crate::edge) fn drive<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut reader: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        match self {
            Self::Http1(connection) => connection.protocol.drive(cx, reader),
            // A separate task drives the shared connection.
            Self::Http2 => reader(cx),
        }
    }

    /// Runs a future that reads the answer.
    pub(in crate::edge) async fn run<F: Future>(&mut self, reading: F) -> F::Output {
        let mut reading = pin!(reading);
        poll_fn(|cx| self.drive(cx, |cx| reading.as_mut().poll(cx))).await
    }
}

/// Settings for keeping connections.
#[derive(Debug, Clone, Copy)]
pub(in crate::edge) struct PoolConfig {
    /// Time limit for dialling.
    pub(in crate::edge) connect_timeout: Duration,
    /// Connections to have beyond the recent peak of busy ones; 0: none is opened ahead.
    pub(in crate::edge) spare: usize,
    /// Age at which idle connections are no longer used.
    pub(in crate::edge) idle_max: Duration,
}

/// Connections to one replica.
#[derive(Debug)]
pub(in crate::edge) struct ConnectionPool {
    address: ReplicaAddress,
    config: PoolConfig,
    tracker: TaskTracker,
    state: Mutex<PoolState>,
    shared: tokio::sync::Mutex<Option<SharedConnection>>,
    permits: Arc<Semaphore>,
    /// Time at which the kernel was last asked about a connection, µs.
    sampled: AtomicU64,
    /// If set, it is asked with every response, see [`ConnectionPool::sample_always`].
    always_sample: AtomicBool,
}

/// State of all connections except the shared one.
#[derive(Debug, Default)]
struct PoolState {
    /// Connections that carry nothing. First those that were opened ahead and never used, then the longest unused.
    idle: Vec<Http1Connection>,
    /// Number of those being opened ahead.
    opening: usize,
    /// Recent peak of connections that were busy at once.
    peak: f64,
    /// Time at which one could not be opened ahead.
    preconnect_failed_at: Option<UnixMicros>,
}

impl PoolState {
    /// Number to open now, if `alive` are open or being opened: enough for the recent peak, and `spare` more.
    fn missing(&self, alive: usize, spare: usize, now: UnixMicros) -> usize {
        // After a failure the replica is probably down: dialling it for every request would only add to its load.
        if spare == 0 || self.preconnect_failed_at.is_some_and(|failed| now.elapsed_since(failed) < PRECONNECT_PAUSE) {
            return 0;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to MAX_CONNECTIONS")]
        let peak = self.peak.ceil() as usize;
        // More than `MAX_IDLE` would be closed again as soon as they were given back.
        let room = MAX_IDLE.saturating_sub(self.idle.len() + self.opening);
        (peak + spare).saturating_sub(alive).min(room)
    }

    #[expect(clippy::cast_precision_loss, reason = "from 0 to MAX_CONNECTIONS")]
    fn busy(&self, alive: usize) -> f64 {
        alive.saturating_sub(self.idle.len() + self.opening) as f64
    }
}

#[derive(Debug, Clone)]
struct SharedConnection {
    sender: http2::SendRequest<UpstreamBody>,
    task: AbortHandle,
    socket: SocketView,
}

impl SharedConnection {
    fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }
}

impl ConnectionPool {
    pub(in crate::edge) fn new(target: ReplicaAddress, keeping: PoolConfig, tracker: TaskTracker) -> Arc<Self> {
        Arc::new(Self {
            address: target,
            config: keeping,
            tracker,
            state: Mutex::default(),
            shared: tokio::sync::Mutex::new(None),
            permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            sampled: AtomicU64::new(0),
            always_sample: AtomicBool::new(false),
        })
    }

    /// Sends a request and waits for the response's head. Cancel-safe: dropping the future closes the connection.
    pub(in crate::edge) async fn send(
        self: &Arc<Self>,
        request: Request<UpstreamBody>,
        clock: &dyn Clock,
        trip: &mut SendTiming,
    ) -> Result<(Response<Incoming>, PooledConnection), SendError> {
        match self.address.http {
            HttpVersion::Http1 => self.send_http1(request, clock, trip).await,
            HttpVersion::Http2 => self.send_http2(request, clock, trip).await,
        }
    }

    async fn send_http1(
        self: &Arc<Self>,
        mut request: Request<UpstreamBody>,
        clock: &dyn Clock,
        trip: &mut SendTiming,
    ) -> Result<(Response<Incoming>, PooledConnection), SendError> {
        let began = clock.now();
        let mut kept = self.take_idle(began);
        // Before this request's own dial, so that a burst finds connections on the way for all of it.
        self.preconnect(began);
        loop {
            let warm = kept.is_some();
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => self.dial_http1(clock, trip).await?,
            };
            trip.connection = Some(if warm { ConnectionReuse::Warm } else { ConnectionReuse::Fresh });
            trip.connect.get_or_insert(Duration::ZERO);
            let sent = clock.now();
            trip.sent = Some(sent);
            // Requested before sending: the read that brings the response then takes the sample.
            let sampled = self.sample(&connection.socket, sent);
            let answering = connection.sender.try_send_request(request);
            let mut answering = pin!(answering);
            let driven = &mut connection.protocol;
            match poll_fn(|cx| driven.drive(cx, |cx| answering.as_mut().poll(cx))).await {
                Ok(response) => {
                    trip.kernel = connection.socket.last_sample().filter(|_| sampled);
                    connection.idle_max = idle_max(response.headers(), self.config.idle_max);
                    return Ok((response, PooledConnection::Http1(connection)));
                }
                Err(mut error) => match error.take_message() {
                    // Certainly unsent, because the engine closed the idle connection: try once more, on a new one.
                    Some(unsent) if warm => {
                        request = unsent;
                        *trip = SendTiming::default();
                    }
                    // Over a fresh connection the failure is the engine's answer; repeating it here could go on
                    // forever.
                    unsent => return Err(send_error(&error, unsent.is_some())),
                },
            }
        }
    }

    async fn send_http2(
        &self,
        mut request: Request<UpstreamBody>,
        clock: &dyn Clock,
        trip: &mut SendTiming,
    ) -> Result<(Response<Incoming>, PooledConnection), SendError> {
        loop {
            let mut shared = self.shared_http2(clock, trip).await?;
            let warm = trip.connection == Some(ConnectionReuse::Warm);
            let sent = clock.now();
            trip.sent = Some(sent);
            let sampled = self.sample(&shared.socket, sent);
            // Not under the lock: the sender is a cheap clone, and waiting for the response would serialise all
            // requests.
            match shared.sender.try_send_request(request).await {
                Ok(response) => {
                    trip.kernel = shared.socket.last_sample().filter(|_| sampled);
                    return Ok((response, PooledConnection::Http2));
                }
                Err(mut error) => match error.take_message() {
                    Some(unsent) if warm => {
                        request = unsent;
                        *trip = SendTiming::default();
                        // Otherwise the next round would find the same broken connection.
                        self.drop_shared(&shared).await;
                    }
                    unsent => return Err(send_error(&error, unsent.is_some())),
                },
            }
        }
    }

    /// Requests a sample of the kernel's statistics with the response, at most once per [`SAMPLE_INTERVAL`]. `true`: it
    /// was due.
    fn sample(&self, socket: &SocketView, now: UnixMicros) -> bool {
        let last = self.sampled.load(Ordering::Relaxed);
        let due = now.elapsed_since(UnixMicros(last)) >= SAMPLE_INTERVAL
            // Of several requests at the same moment only the one that wins the exchange takes the sample.
            && self.sampled.compare_exchange(last, now.0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if due || self.always_sample.load(Ordering::Relaxed) {
            socket.request_sample();
        }
        due
    }

    /// From now on reads each connection's window with every response.
    pub(in crate::edge) fn sample_always(&self) {
        self.always_sample.store(true, Ordering::Relaxed);
    }

    /// Round trips that a request of `bytes` would need now, at least 1; one more if it would have to dial. `restarts`:
    /// the kernel shrinks the window of idle connections.
    pub(in crate::edge) fn round_trips(&self, bytes: u64, now: UnixMicros, restarts: bool) -> f64 {
        let on = |state: Option<TcpState>, idle_since: UnixMicros| {
            let window =
                state.map_or(FIRST_WINDOW, |state| window_after(&state, now.elapsed_since(idle_since), restarts));
            round_trips(bytes, window)
        };
        let next = match self.address.http {
            // From the end, as `take_idle` does: this must be the connection that the request would get.
            HttpVersion::Http1 => {
                let kept = self.state.lock();
                let next = kept.idle.iter().rev().find(|kept| kept.usable(now) && kept.sender.is_ready());
                next.map(|connection| on(connection.socket.last_sample(), connection.idle_since))
            }
            // Shared by all requests, so hardly ever idle. If it is being dialled right now, this request would wait
            // too.
            HttpVersion::Http2 => {
                let shared = self.shared.try_lock().ok();
                let shared = shared.as_ref().and_then(|slot| slot.as_ref()).filter(|held| held.is_open());
                shared.map(|shared| on(shared.socket.last_sample(), now))
            }
        };
        next.unwrap_or_else(|| 1.0 + round_trips(bytes, FIRST_WINDOW))
    }

    fn take_idle(&self, now: UnixMicros) -> Option<Http1Connection> {
        let mut kept = self.state.lock();
        // This request's own connection counts, whether it is reused or must be dialled.
        kept.peak = kept.peak.max(kept.busy(self.alive()) + 1.0);
        for at in (0..kept.idle.len()).rev() {
            if !kept.idle[at].poll_usable(now) {
                drop(kept.idle.remove(at));
            } else if kept.idle[at].sender.is_ready() {
                return Some(kept.idle.remove(at));
            }
            // One that is not ready still uploads a body that its engine refused early: it stays until it is too old.
        }
        None
    }

    /// Number of connections that are open or being opened.
    fn alive(&self) -> usize {
        MAX_CONNECTIONS - self.permits.available_permits()
    }

    /// Opens connections for future requests. A failure is not reported here: the request that needs a connection dials
    /// for itself and reports it, and the probe has its own connection.
    fn preconnect(self: &Arc<Self>, now: UnixMicros) {
        if self.address.http == HttpVersion::Http2 {
            return self.preconnect_shared(now);
        }
        let mut kept = self.state.lock();
        for _ in 0..kept.missing(self.alive(), self.config.spare, now) {
            let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else { return };
            kept.opening += 1;
            let pool = Arc::clone(self);
            self.tracker.spawn(async move {
                let opened = timeout(pool.config.connect_timeout, pool.address.connect()).await;
                let opened = match opened {
                    // `now` is the time before dialling, so the connection counts as slightly too old, never as too
                    // young.
                    Ok(Ok(stream)) => Self::handshake(stream, permit, now, pool.config.idle_max).await,
                    _ => None,
                };
                let mut kept = pool.state.lock();
                kept.opening -= 1;
                match opened {
                    // At the front, so that used connections, whose windows are open, are taken first. After `close` it
                    // is dropped.
                    Some(connection) if !pool.permits.is_closed() => kept.idle.insert(0, connection),
                    Some(_) => {}
                    None => kept.preconnect_failed_at = Some(now),
                }
            });
        }
    }

    /// Like `open_ahead`, for the connection that all requests share.
    fn preconnect_shared(self: &Arc<Self>, now: UnixMicros) {
        // If the lock is taken, the connection is being dialled.
        let has = self.shared.try_lock().map_or(true, |slot| slot.as_ref().is_some_and(SharedConnection::is_open));
        let mut kept = self.state.lock();
        if has || kept.opening > 0 || kept.missing(0, self.config.spare.min(1), now) == 0 {
            return;
        }
        kept.opening += 1;
        let pool = Arc::clone(self);
        self.tracker.spawn(async move {
            let mut slot = pool.shared.lock().await;
            let mut failed = None;
            // Checked again under the lock: a request may have dialled it meanwhile.
            if !slot.as_ref().is_some_and(SharedConnection::is_open) {
                *slot = pool.dial_http2().await;
                failed = slot.is_none().then_some(now);
            }
            drop(slot);
            let mut kept = pool.state.lock();
            kept.opening -= 1;
            kept.preconnect_failed_at = failed;
        });
    }

    /// Takes back a connection whose response was read to its end.
    pub(in crate::edge) fn release(&self, carrier: PooledConnection, now: UnixMicros) {
        let PooledConnection::Http1(mut connection) = carrier else { return };
        connection.idle_since = now;
        // hyper notices the end of the response only when it is polled once more.
        if !connection.poll_usable(now) {
            return;
        }
        let mut kept = self.state.lock();
        if kept.idle.len() == MAX_IDLE {
            // The front holds those that are least likely to be used.
            kept.idle.remove(0);
        }
        kept.idle.push(connection);
    }

    /// Closes idle connections that are too old, drops those that the engine closed, and opens what may be needed.
    /// Called once a second.
    pub(in crate::edge) fn maintain(self: &Arc<Self>, now: UnixMicros) {
        // In a block: `open_ahead` takes the same lock.
        {
            let mut kept = self.state.lock();
            kept.idle.retain_mut(|connection| connection.poll_usable(now));
            let busy = kept.busy(self.alive());
            kept.peak = busy.max(kept.peak - (kept.peak - busy) * PEAK_DECAY);
        }
        self.preconnect(now);
    }

    /// Closes all connections that carry nothing; the tasks of the others end with their requests. None is opened
    /// afterwards.
    pub(in crate::edge) async fn close(&self) {
        // The semaphore first, so that a dial in progress cannot add a connection later.
        self.permits.close();
        self.state.lock().idle.clear();
        if let Some(shared) = self.shared.lock().await.take() {
            shared.task.abort();
        }
    }

    async fn dial(&self) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
        let dialled = timeout(self.config.connect_timeout, async {
            // Waiting for a permit counts against the same limit as connecting.
            let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(io::Error::other)?;
            Ok::<_, io::Error>((self.address.connect().await?, permit))
        });
        dialled.await?
    }

    /// Makes an HTTP/1.1 connection over `stream`; `None` if hyper refuses it.
    async fn handshake(
        stream: TcpStream,
        permit: OwnedSemaphorePermit,
        began: UnixMicros,
        idle_max: Duration,
    ) -> Option<Http1Connection> {
        let (stream, socket) = ReplicaSocket::new(stream);
        let handshake = http1::Builder::new().max_buf_size(READ_BUFFER).handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await.ok()?;
        let driven = InlineConnection::new(connection);
        Some(Http1Connection { sender, protocol: driven, socket, idle_since: began, idle_max, _permit: permit })
    }

    async fn dial_http1(&self, clock: &dyn Clock, trip: &mut SendTiming) -> Result<Http1Connection, SendError> {
        let began = clock.now();
        let dialled = self.dial().await;
        trip.connect = Some(clock.now().elapsed_since(began));
        let (stream, permit) = dialled.map_err(|_| SendError::connect())?;
        Self::handshake(stream, permit, began, self.config.idle_max).await.ok_or_else(SendError::connect)
    }

    async fn shared_http2(&self, clock: &dyn Clock, trip: &mut SendTiming) -> Result<SharedConnection, SendError> {
        let began = clock.now();
        let (mut slot, waited) = match self.shared.try_lock() {
            Ok(slot) => (slot, Duration::ZERO),
            // Another request is dialling it.
            Err(_) => (self.shared.lock().await, clock.now().elapsed_since(began)),
        };
        if let Some(shared) = slot.as_ref().filter(|shared| shared.is_open()) {
            trip.connection = Some(ConnectionReuse::Warm);
            trip.connect = Some(waited);
            return Ok(shared.clone());
        }
        let dialled = self.dial_http2().await;
        trip.connect = Some(clock.now().elapsed_since(began));
        let shared = dialled.ok_or_else(SendError::connect)?;
        *slot = Some(shared.clone());
        trip.connection = Some(ConnectionReuse::Fresh);
        Ok(shared)
    }

    /// Dials the connection for all requests; `None` on failure.
    async fn dial_http2(&self) -> Option<SharedConnection> {
        let (stream, permit) = self.dial().await.ok()?;
        let (stream, socket) = ReplicaSocket::new(stream);
        let (sender, connection) = http2::Builder::new(TrackerExecutor(self.tracker.clone()))
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_INTERVAL)
            .handshake(TokioIo::new(stream))
            .await
            .ok()?;
        // The permit lives as long as the connection, so that `alive` counts it.
        let task = self.tracker.spawn(async move {
            let _ = connection.await;
            drop(permit);
        });
        Some(SharedConnection { sender, task: task.abort_handle(), socket })
    }

    async fn drop_shared(&self, broken: &SharedConnection) {
        let mut slot = self.shared.lock().await;
        // By task id, because another request may have replaced it already.
        if slot.as_ref().is_some_and(|shared| shared.task.id() == broken.task.id()) {
            *slot = None;
        }
    }
}

fn send_error(error: &TrySendError<Request<UpstreamBody>>, unsent: bool) -> SendError {
    let error = error.error();
    let class = if error.is_parse() { ErrorClass::UpstreamProtocol } else { ErrorClass::UpstreamClosed };
    SendError { error_class: class, unsent }
}

/// Time for which an idle connection may be kept, according to the engine's `Keep-Alive`; at most `most`.
fn idle_max(headers: &HeaderMap, most: Duration) -> Duration {
    let stated = headers.get(&KEEP_ALIVE).and_then(|value| value.to_str().ok()).and_then(|value| {
        let seconds = value.split(',').find_map(|part| part.trim().strip_prefix("timeout="))?;
        seconds.parse().ok().map(Duration::from_secs)
    });
    stated.map_or(most, |stated| stated.saturating_sub(KEEP_ALIVE_MARGIN).min(most))
}

/// Request target as the protocol wants it: the path alone for HTTP/1.1, the whole address without `Host` for HTTP/2.
pub(in crate::edge) fn request_target(to: &HttpEndpoint, path: &str, headers: &mut HeaderMap) -> Option<Uri> {
    match to.http() {
        HttpVersion::Http1 => path.parse().ok(),
        HttpVersion::Http2 => {
            headers.remove(HOST);
            format!("http://{}{path}", to.url().authority()).parse().ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn the_engines_own_limit_is_kept() {
        let mut headers = HeaderMap::new();
        let most = Duration::from_secs(4);
        assert_eq!(idle_max(&headers, most), most);
        for (stated, kept) in [("timeout=3, max=10", 2), ("max=10, timeout=60", 4), ("timeout=1", 0), ("timeout=x", 4)]
        {
            headers.insert(&KEEP_ALIVE, HeaderValue::from_static(stated));
            assert_eq!(idle_max(&headers, most), Duration::from_secs(kept), "{stated}");
        }
    }
    #[test]
    fn as_many_are_kept_as_were_lately_busy_and_some_more() {
        let mut kept = PoolState { peak: 10.0, ..PoolState::default() };
        let now = UnixMicros(5_000_000);
        assert_eq!(kept.missing(0, 4, now), 14);
        assert_eq!(kept.missing(12, 4, now), 2);
        assert_eq!(kept.missing(30, 4, now), 0);
        assert_eq!(kept.missing(0, 0, now), 0, "none is opened ahead");
        kept.opening = MAX_IDLE - 1;
        assert_eq!(kept.missing(0, 4, now), 1, "idle ones are bounded");
        kept = PoolState { preconnect_failed_at: Some(now), ..kept };
        assert_eq!(kept.missing(0, 4, now), 0, "a replica that cannot be reached is left alone for a while");
        assert!(kept.missing(0, 4, now.plus(PRECONNECT_PAUSE)) > 0);
    }
}
