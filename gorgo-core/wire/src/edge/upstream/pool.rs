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
//! [`Kept::wanted`] for how many.
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

use crate::edge::listen::Spawner;
use crate::edge::upstream::body::Payload;
use crate::edge::upstream::dial::Target;
use crate::edge::upstream::inline_connection::Driven;
use crate::edge::upstream::replica_socket::{EngineSocket, SocketView};
use crate::edge::upstream::slow_start::{FIRST_WINDOW, round_trips, window_after};
use crate::edge::upstream::tcp_info::TcpState;
use crate::engine::Endpoint;
use gorgo_routing::config::HttpVersion;
use gorgo_routing::model::{At, Clock, Connection, ErrorClass};

/// Safety margin before the end of the engine's own keep-alive limit.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);
/// Idle connections kept per replica.
const MAX_IDLE: usize = 256;
/// Pause before connections are opened ahead again after one could not be opened.
const AHEAD_PAUSE: Duration = Duration::from_secs(1);
/// Fraction by which the remembered peak of busy connections decays at each [`Pool::tend`] towards those busy now: with
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
pub(in crate::edge) struct Trip {
    /// New or reused; `None` until there is one.
    pub(in crate::edge) connection: Option<Connection>,
    /// Time spent connecting.
    pub(in crate::edge) connect: Option<Duration>,
    /// Time at which the request was handed to the connection.
    pub(in crate::edge) sent: Option<At>,
    /// TCP statistics of the kernel, if it was asked.
    pub(in crate::edge) kernel: Option<TcpState>,
}

/// Reason why there is no response.
#[derive(Debug)]
pub(in crate::edge) struct SendError {
    pub(in crate::edge) class: ErrorClass,
    /// True if nothing of the request can have reached the engine.
    pub(in crate::edge) unsent: bool,
}

impl SendError {
    const fn connect() -> Self {
        Self { class: ErrorClass::Connect, unsent: true }
    }
}

/// Connection that carries, or carried, one request.
#[derive(Debug)]
pub(in crate::edge) enum Carrier {
    /// Used by one request at a time.
    Http1(Http1),
    /// Shared; resets its stream by itself when the response is dropped.
    Http2,
}

/// One HTTP/1.1 connection. Dropping it closes it.
#[derive(Debug)]
pub(in crate::edge) struct Http1 {
    sender: http1::SendRequest<Payload>,
    driven: Driven,
    socket: SocketView,
    idle_since: At,
    idle_max: Duration,
    _permit: OwnedSemaphorePermit,
}

impl Http1 {
    fn usable(&self, now: At) -> bool {
        !self.driven.has_ended() && !self.sender.is_closed() && now.since(self.idle_since) < self.idle_max
    }

    /// Like `usable`, after polling the connection for what happened to it meanwhile.
    fn still_usable(&mut self, now: At) -> bool {
        self.driven.look();
        self.usable(now)
    }
}

impl Carrier {
    /// Polls `reader`, which waits for a response that this connection carries.
    pub(in crate::edge) fn drive<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut reader: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        match self {
            Self::Http1(connection) => connection.driven.drive(cx, reader),
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
pub(in crate::edge) struct Keeping {
    /// Time limit for dialling.
    pub(in crate::edge) connect_timeout: Duration,
    /// Connections to have beyond the recent peak of busy ones; 0: none is opened ahead.
    pub(in crate::edge) spare: usize,
    /// Age at which idle connections are no longer used.
    pub(in crate::edge) idle_max: Duration,
}

/// Connections to one replica.
#[derive(Debug)]
pub(in crate::edge) struct Pool {
    target: Target,
    keeping: Keeping,
    tracker: TaskTracker,
    kept: Mutex<Kept>,
    shared: tokio::sync::Mutex<Option<Shared>>,
    room: Arc<Semaphore>,
    /// Time at which the kernel was last asked about a connection, µs.
    sampled: AtomicU64,
    /// If set, it is asked with every response, see [`Pool::watch`].
    watched: AtomicBool,
}

/// State of all connections except the shared one.
#[derive(Debug, Default)]
struct Kept {
    /// Connections that carry nothing. First those that were opened ahead and never used, then the longest unused.
    idle: Vec<Http1>,
    /// Number of those being opened ahead.
    opening: usize,
    /// Recent peak of connections that were busy at once.
    peak: f64,
    /// Time at which one could not be opened ahead.
    failed: Option<At>,
}

impl Kept {
    /// Number to open now, if `alive` are open or being opened: enough for the recent peak, and `spare` more.
    fn wanted(&self, alive: usize, spare: usize, now: At) -> usize {
        // After a failure the replica is probably down: dialling it for every request would only add to its load.
        if spare == 0 || self.failed.is_some_and(|failed| now.since(failed) < AHEAD_PAUSE) {
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
struct Shared {
    sender: http2::SendRequest<Payload>,
    task: AbortHandle,
    socket: SocketView,
}

impl Shared {
    fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }
}

impl Pool {
    pub(in crate::edge) fn new(target: Target, keeping: Keeping, tracker: TaskTracker) -> Arc<Self> {
        Arc::new(Self {
            target,
            keeping,
            tracker,
            kept: Mutex::default(),
            shared: tokio::sync::Mutex::new(None),
            room: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            sampled: AtomicU64::new(0),
            watched: AtomicBool::new(false),
        })
    }

    /// Sends a request and waits for the response's head. Cancel-safe: dropping the future closes the connection.
    pub(in crate::edge) async fn send(
        self: &Arc<Self>,
        request: Request<Payload>,
        clock: &dyn Clock,
        trip: &mut Trip,
    ) -> Result<(Response<Incoming>, Carrier), SendError> {
        match self.target.http {
            HttpVersion::Http1 => self.send_http1(request, clock, trip).await,
            HttpVersion::Http2 => self.send_http2(request, clock, trip).await,
        }
    }

    async fn send_http1(
        self: &Arc<Self>,
        mut request: Request<Payload>,
        clock: &dyn Clock,
        trip: &mut Trip,
    ) -> Result<(Response<Incoming>, Carrier), SendError> {
        let began = clock.now();
        let mut kept = self.take_idle(began);
        // Before this request's own dial, so that a burst finds connections on the way for all of it.
        self.open_ahead(began);
        loop {
            let warm = kept.is_some();
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => self.dial_http1(clock, trip).await?,
            };
            trip.connection = Some(if warm { Connection::Warm } else { Connection::Fresh });
            trip.connect.get_or_insert(Duration::ZERO);
            let sent = clock.now();
            trip.sent = Some(sent);
            // Requested before sending: the read that brings the response then takes the sample.
            let sampled = self.sample(&connection.socket, sent);
            let answering = connection.sender.try_send_request(request);
            let mut answering = pin!(answering);
            let driven = &mut connection.driven;
            match poll_fn(|cx| driven.drive(cx, |cx| answering.as_mut().poll(cx))).await {
                Ok(response) => {
                    trip.kernel = connection.socket.state().filter(|_| sampled);
                    connection.idle_max = idle_max(response.headers(), self.keeping.idle_max);
                    return Ok((response, Carrier::Http1(connection)));
                }
                Err(mut error) => match error.take_message() {
                    // Certainly unsent, because the engine closed the idle connection: try once more, on a new one.
                    Some(unsent) if warm => {
                        request = unsent;
                        *trip = Trip::default();
                    }
                    // Over a fresh connection the failure is the engine's answer; repeating it here could go on
                    // forever.
                    unsent => return Err(failure(&error, unsent.is_some())),
                },
            }
        }
    }

    async fn send_http2(
        &self,
        mut request: Request<Payload>,
        clock: &dyn Clock,
        trip: &mut Trip,
    ) -> Result<(Response<Incoming>, Carrier), SendError> {
        loop {
            let mut shared = self.shared_http2(clock, trip).await?;
            let warm = trip.connection == Some(Connection::Warm);
            let sent = clock.now();
            trip.sent = Some(sent);
            let sampled = self.sample(&shared.socket, sent);
            // Not under the lock: the sender is a cheap clone, and waiting for the response would serialise all
            // requests.
            match shared.sender.try_send_request(request).await {
                Ok(response) => {
                    trip.kernel = shared.socket.state().filter(|_| sampled);
                    return Ok((response, Carrier::Http2));
                }
                Err(mut error) => match error.take_message() {
                    Some(unsent) if warm => {
                        request = unsent;
                        *trip = Trip::default();
                        // Otherwise the next round would find the same broken connection.
                        self.forget_http2(&shared).await;
                    }
                    unsent => return Err(failure(&error, unsent.is_some())),
                },
            }
        }
    }

    /// Requests a sample of the kernel's statistics with the response, at most once per [`SAMPLE_INTERVAL`]. `true`: it
    /// was due.
    fn sample(&self, socket: &SocketView, now: At) -> bool {
        let last = self.sampled.load(Ordering::Relaxed);
        let due = now.since(At(last)) >= SAMPLE_INTERVAL
            // Of several requests at the same moment only the one that wins the exchange takes the sample.
            && self.sampled.compare_exchange(last, now.0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if due || self.watched.load(Ordering::Relaxed) {
            socket.look();
        }
        due
    }

    /// From now on reads each connection's window with every response.
    pub(in crate::edge) fn watch(&self) {
        self.watched.store(true, Ordering::Relaxed);
    }

    /// Round trips that a request of `bytes` would need now, at least 1; one more if it would have to dial. `restarts`:
    /// the kernel shrinks the window of idle connections.
    pub(in crate::edge) fn round_trips(&self, bytes: u64, now: At, restarts: bool) -> f64 {
        let on = |state: Option<TcpState>, idle_since: At| {
            let window = state.map_or(FIRST_WINDOW, |state| window_after(&state, now.since(idle_since), restarts));
            round_trips(bytes, window)
        };
        let next = match self.target.http {
            // From the end, as `take_idle` does: this must be the connection that the request would get.
            HttpVersion::Http1 => {
                let kept = self.kept.lock();
                let next = kept.idle.iter().rev().find(|kept| kept.usable(now) && kept.sender.is_ready());
                next.map(|connection| on(connection.socket.state(), connection.idle_since))
            }
            // Shared by all requests, so hardly ever idle. If it is being dialled right now, this request would wait
            // too.
            HttpVersion::Http2 => {
                let shared = self.shared.try_lock().ok();
                let shared = shared.as_ref().and_then(|slot| slot.as_ref()).filter(|held| held.is_open());
                shared.map(|shared| on(shared.socket.state(), now))
            }
        };
        next.unwrap_or_else(|| 1.0 + round_trips(bytes, FIRST_WINDOW))
    }

    fn take_idle(&self, now: At) -> Option<Http1> {
        let mut kept = self.kept.lock();
        // This request's own connection counts, whether it is reused or must be dialled.
        kept.peak = kept.peak.max(kept.busy(self.alive()) + 1.0);
        for at in (0..kept.idle.len()).rev() {
            if !kept.idle[at].still_usable(now) {
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
        MAX_CONNECTIONS - self.room.available_permits()
    }

    /// Opens connections for future requests. A failure is not reported here: the request that needs a connection dials
    /// for itself and reports it, and the probe has its own connection.
    fn open_ahead(self: &Arc<Self>, now: At) {
        if self.target.http == HttpVersion::Http2 {
            return self.share_ahead(now);
        }
        let mut kept = self.kept.lock();
        for _ in 0..kept.wanted(self.alive(), self.keeping.spare, now) {
            let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else { return };
            kept.opening += 1;
            let pool = Arc::clone(self);
            self.tracker.spawn(async move {
                let opened = timeout(pool.keeping.connect_timeout, pool.target.connect()).await;
                let opened = match opened {
                    // `now` is the time before dialling, so the connection counts as slightly too old, never as too
                    // young.
                    Ok(Ok(stream)) => Self::handshake(stream, permit, now, pool.keeping.idle_max).await,
                    _ => None,
                };
                let mut kept = pool.kept.lock();
                kept.opening -= 1;
                match opened {
                    // At the front, so that used connections, whose windows are open, are taken first. After `close` it
                    // is dropped.
                    Some(connection) if !pool.room.is_closed() => kept.idle.insert(0, connection),
                    Some(_) => {}
                    None => kept.failed = Some(now),
                }
            });
        }
    }

    /// Like `open_ahead`, for the connection that all requests share.
    fn share_ahead(self: &Arc<Self>, now: At) {
        // If the lock is taken, the connection is being dialled.
        let has = self.shared.try_lock().map_or(true, |slot| slot.as_ref().is_some_and(Shared::is_open));
        let mut kept = self.kept.lock();
        if has || kept.opening > 0 || kept.wanted(0, self.keeping.spare.min(1), now) == 0 {
            return;
        }
        kept.opening += 1;
        let pool = Arc::clone(self);
        self.tracker.spawn(async move {
            let mut slot = pool.shared.lock().await;
            let mut failed = None;
            // Checked again under the lock: a request may have dialled it meanwhile.
            if !slot.as_ref().is_some_and(Shared::is_open) {
                *slot = pool.dial_http2().await;
                failed = slot.is_none().then_some(now);
            }
            drop(slot);
            let mut kept = pool.kept.lock();
            kept.opening -= 1;
            kept.failed = failed;
        });
    }

    /// Takes back a connection whose response was read to its end.
    pub(in crate::edge) fn give_back(&self, carrier: Carrier, now: At) {
        let Carrier::Http1(mut connection) = carrier else { return };
        connection.idle_since = now;
        // hyper notices the end of the response only when it is polled once more.
        if !connection.still_usable(now) {
            return;
        }
        let mut kept = self.kept.lock();
        if kept.idle.len() == MAX_IDLE {
            // The front holds those that are least likely to be used.
            kept.idle.remove(0);
        }
        kept.idle.push(connection);
    }

    /// Closes idle connections that are too old, drops those that the engine closed, and opens what may be needed.
    /// Called once a second.
    pub(in crate::edge) fn tend(self: &Arc<Self>, now: At) {
        // In a block: `open_ahead` takes the same lock.
        {
            let mut kept = self.kept.lock();
            kept.idle.retain_mut(|connection| connection.still_usable(now));
            let busy = kept.busy(self.alive());
            kept.peak = busy.max(kept.peak - (kept.peak - busy) * PEAK_DECAY);
        }
        self.open_ahead(now);
    }

    /// Closes all connections that carry nothing; the tasks of the others end with their requests. None is opened
    /// afterwards.
    pub(in crate::edge) async fn close(&self) {
        // The semaphore first, so that a dial in progress cannot add a connection later.
        self.room.close();
        self.kept.lock().idle.clear();
        if let Some(shared) = self.shared.lock().await.take() {
            shared.task.abort();
        }
    }

    async fn dial(&self) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
        let dialled = timeout(self.keeping.connect_timeout, async {
            // Waiting for a permit counts against the same limit as connecting.
            let permit = Arc::clone(&self.room).acquire_owned().await.map_err(io::Error::other)?;
            Ok::<_, io::Error>((self.target.connect().await?, permit))
        });
        dialled.await?
    }

    /// Makes an HTTP/1.1 connection over `stream`; `None` if hyper refuses it.
    async fn handshake(
        stream: TcpStream,
        permit: OwnedSemaphorePermit,
        began: At,
        idle_max: Duration,
    ) -> Option<Http1> {
        let (stream, socket) = EngineSocket::new(stream);
        let handshake = http1::Builder::new().max_buf_size(READ_BUFFER).handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await.ok()?;
        let driven = Driven::new(connection);
        Some(Http1 { sender, driven, socket, idle_since: began, idle_max, _permit: permit })
    }

    async fn dial_http1(&self, clock: &dyn Clock, trip: &mut Trip) -> Result<Http1, SendError> {
        let began = clock.now();
        let dialled = self.dial().await;
        trip.connect = Some(clock.now().since(began));
        let (stream, permit) = dialled.map_err(|_| SendError::connect())?;
        Self::handshake(stream, permit, began, self.keeping.idle_max).await.ok_or_else(SendError::connect)
    }

    async fn shared_http2(&self, clock: &dyn Clock, trip: &mut Trip) -> Result<Shared, SendError> {
        let began = clock.now();
        let (mut slot, waited) = match self.shared.try_lock() {
            Ok(slot) => (slot, Duration::ZERO),
            // Another request is dialling it.
            Err(_) => (self.shared.lock().await, clock.now().since(began)),
        };
        if let Some(shared) = slot.as_ref().filter(|shared| shared.is_open()) {
            trip.connection = Some(Connection::Warm);
            trip.connect = Some(waited);
            return Ok(shared.clone());
        }
        let dialled = self.dial_http2().await;
        trip.connect = Some(clock.now().since(began));
        let shared = dialled.ok_or_else(SendError::connect)?;
        *slot = Some(shared.clone());
        trip.connection = Some(Connection::Fresh);
        Ok(shared)
    }

    /// Dials the connection for all requests; `None` on failure.
    async fn dial_http2(&self) -> Option<Shared> {
        let (stream, permit) = self.dial().await.ok()?;
        let (stream, socket) = EngineSocket::new(stream);
        let (sender, connection) = http2::Builder::new(Spawner(self.tracker.clone()))
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
        Some(Shared { sender, task: task.abort_handle(), socket })
    }

    async fn forget_http2(&self, broken: &Shared) {
        let mut slot = self.shared.lock().await;
        // By task id, because another request may have replaced it already.
        if slot.as_ref().is_some_and(|shared| shared.task.id() == broken.task.id()) {
            *slot = None;
        }
    }
}

fn failure(error: &TrySendError<Request<Payload>>, unsent: bool) -> SendError {
    let error = error.error();
    let class = if error.is_parse() { ErrorClass::UpstreamProtocol } else { ErrorClass::UpstreamClosed };
    SendError { class, unsent }
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
pub(in crate::edge) fn address(to: &Endpoint, path: &str, headers: &mut HeaderMap) -> Option<Uri> {
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
        let mut kept = Kept { peak: 10.0, ..Kept::default() };
        let now = At(5_000_000);
        assert_eq!(kept.wanted(0, 4, now), 14);
        assert_eq!(kept.wanted(12, 4, now), 2);
        assert_eq!(kept.wanted(30, 4, now), 0);
        assert_eq!(kept.wanted(0, 0, now), 0, "none is opened ahead");
        kept.opening = MAX_IDLE - 1;
        assert_eq!(kept.wanted(0, 4, now), 1, "idle ones are bounded");
        kept = Kept { failed: Some(now), ..kept };
        assert_eq!(kept.wanted(0, 4, now), 0, "a replica that cannot be reached is left alone for a while");
        assert!(kept.wanted(0, 4, now.plus(AHEAD_PAUSE)) > 0);
    }
}
