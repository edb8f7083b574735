//! Connections to one replica.
//!
//! HTTP/1.1: idle connections are reused last in, first out, while they are younger than [`IDLE_MAX`] (engines close
//! theirs after 5 s, and a request that meets the close is lost) and younger than what the engine itself states in
//! `Keep-Alive: timeout`. Some are opened before they are needed (`server.ready_connections`), which saves a request the
//! handshake; one that has carried a request is preferred to them, since its congestion window is open: 70 KB over
//! 279 ms take 280 ms there, 839 ms on an open but unused connection, 1,118 ms on a new one. HTTP/2: one shared
//! connection. A request is sent again by itself only where not a byte of it can
//! have left: hyper gives it back then. A connection that is dropped instead of given back is closed at once, so that
//! the engine stops working for nobody.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::header::{HOST, HeaderName};
use hyper::{HeaderMap, Request, Response, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::accept::Spawner;
use super::engine_socket::{EngineSocket, SocketView};
use super::payload::Payload;
use super::tcp_info::TcpState;
use crate::config::HttpVersion;
use crate::model::{At, Clock, Connection, ErrorClass};

/// Idle connections older than this are not used again.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// How long before the end of the engine's own limit a connection is given up.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);
/// Connections that were never used are closed at this age; engines start their clock with the first answer.
const UNUSED_MAX: Duration = Duration::from_secs(30);
/// Idle connections kept per replica.
const MAX_IDLE: usize = 256;
/// Connections per replica, busy and idle.
const MAX_CONNECTIONS: usize = 4_096;
/// Bytes read ahead per connection.
const READ_BUFFER: usize = 64 << 10;
/// HTTP/2 receive windows: the default of 64 KiB costs a round trip per 64 KiB.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// HTTP/2 keep-alive pings, so that a dead peer is noticed.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// TCP keep-alive, for the same reason.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);
/// The kernel is asked about a replica's connections this often at most.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// What became of an attempt to send, also when it was cut short: filled in as it goes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Trip {
    /// New or kept; `None` before one was had.
    pub(super) connection: Option<Connection>,
    /// Time spent connecting.
    pub(super) connect: Option<Duration>,
    /// When the request was handed to the connection.
    pub(super) sent: Option<At>,
    /// What the kernel thinks of the way, where it was asked.
    pub(super) kernel: Option<TcpState>,
}

/// Why there is no response.
#[derive(Debug)]
pub(super) struct SendError {
    pub(super) class: ErrorClass,
    /// Nothing of the request can have reached the engine.
    pub(super) unsent: bool,
}

impl SendError {
    const fn connect() -> Self {
        Self { class: ErrorClass::Connect, unsent: true }
    }
}

/// A connection that carries, or carried, one request.
#[derive(Debug)]
pub(super) enum Carrier {
    /// Used by one request at a time.
    Http1(Http1),
    /// Shared; resets its stream by itself when the response is dropped.
    Http2,
}

/// One HTTP/1.1 connection. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Http1 {
    sender: http1::SendRequest<Payload>,
    task: AbortHandle,
    socket: SocketView,
    idle_since: At,
    idle_max: Duration,
    /// Whether it carried a request.
    used: bool,
}

impl Drop for Http1 {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Http1 {
    fn usable(&self, now: At) -> bool {
        !self.sender.is_closed() && now.since(self.idle_since) < self.idle_max
    }
}

/// Where a replica listens.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) http: HttpVersion,
}

/// The connections to one replica.
#[derive(Debug)]
pub(super) struct Pool {
    target: Target,
    connect_timeout: Duration,
    tracker: TaskTracker,
    /// Oldest first.
    idle: Mutex<Vec<Http1>>,
    shared: tokio::sync::Mutex<Option<Shared>>,
    room: Arc<Semaphore>,
    /// When the kernel was last asked about a connection, µs.
    sampled: AtomicU64,
    /// Idle connections to be had at any time.
    ready: usize,
    /// Connections being opened for that.
    opening: AtomicUsize,
}

#[derive(Debug, Clone)]
struct Shared {
    sender: http2::SendRequest<Payload>,
    task: AbortHandle,
    socket: SocketView,
    /// Whether it carried a request.
    used: Arc<AtomicBool>,
}

impl Pool {
    /// `ready`: idle connections to be had at any time, once [`Pool::top_up`] was called.
    pub(super) fn new(target: Target, connect_timeout: Duration, ready: usize, tracker: TaskTracker) -> Arc<Self> {
        Arc::new(Self {
            target,
            connect_timeout,
            tracker,
            idle: Mutex::new(Vec::new()),
            shared: tokio::sync::Mutex::new(None),
            room: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            sampled: AtomicU64::new(0),
            ready,
            opening: AtomicUsize::new(0),
        })
    }

    /// Opens connections until as many are ready as there shall be. They come when they come; a replica that cannot be
    /// reached is for others to notice.
    pub(super) fn top_up(self: &Arc<Self>, clock: &Arc<dyn Clock>) {
        let wanted = match self.target.http {
            HttpVersion::Http1 => self.ready.saturating_sub(self.idle.lock().len()),
            // One connection carries all requests.
            HttpVersion::Http2 => usize::from(self.ready > 0),
        };
        while self.opening.fetch_add(1, Ordering::Relaxed) < wanted {
            let (pool, clock) = (Arc::clone(self), Arc::clone(clock));
            self.tracker.spawn(async move {
                pool.open_one(&*clock).await;
                pool.opening.fetch_sub(1, Ordering::Relaxed);
            });
        }
        self.opening.fetch_sub(1, Ordering::Relaxed);
    }

    async fn open_one(&self, clock: &dyn Clock) {
        let mut trip = Trip::default();
        match self.target.http {
            HttpVersion::Http1 => {
                if let Ok(connection) = self.dial_http1(clock, &mut trip).await {
                    self.keep(connection, clock.now());
                }
            }
            HttpVersion::Http2 => drop(self.shared_http2(clock, &mut trip).await),
        }
    }

    /// Sends a request and waits for the response's head. Cancel-safe: dropping the future closes the connection.
    pub(super) async fn send(
        &self,
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
        &self,
        mut request: Request<Payload>,
        clock: &dyn Clock,
        trip: &mut Trip,
    ) -> Result<(Response<Incoming>, Carrier), SendError> {
        let mut kept = self.take_idle(clock.now());
        loop {
            let warm = kept.is_some();
            let used = kept.as_ref().is_some_and(|connection| connection.used);
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => self.dial_http1(clock, trip).await?,
            };
            trip.connection = Some(if used { Connection::Warm } else { Connection::Fresh });
            trip.connect.get_or_insert(Duration::ZERO);
            let sent = clock.now();
            trip.sent = Some(sent);
            let sampled = self.sample(&connection.socket, sent);
            match connection.sender.try_send_request(request).await {
                Ok(response) => {
                    trip.kernel = connection.socket.state().filter(|_| sampled);
                    connection.idle_max = idle_max(response.headers());
                    return Ok((response, Carrier::Http1(connection)));
                }
                Err(mut error) => match error.take_message() {
                    // Surely unsent: once more, on a connection of its own.
                    Some(unsent) if warm => {
                        request = unsent;
                        *trip = Trip::default();
                    }
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
            let warm = trip.connect == Some(Duration::ZERO);
            if !shared.used.swap(true, Ordering::Relaxed) {
                trip.connection = Some(Connection::Fresh);
            }
            let sent = clock.now();
            trip.sent = Some(sent);
            let sampled = self.sample(&shared.socket, sent);
            match shared.sender.try_send_request(request).await {
                Ok(response) => {
                    trip.kernel = shared.socket.state().filter(|_| sampled);
                    return Ok((response, Carrier::Http2));
                }
                Err(mut error) => match error.take_message() {
                    Some(unsent) if warm => {
                        request = unsent;
                        *trip = Trip::default();
                        self.forget_http2(&shared).await;
                    }
                    unsent => return Err(failure(&error, unsent.is_some())),
                },
            }
        }
    }

    /// Has the kernel asked when the answer comes, at most once per [`SAMPLE_INTERVAL`]. `true`: it will be.
    fn sample(&self, socket: &SocketView, now: At) -> bool {
        let last = self.sampled.load(Ordering::Relaxed);
        let due = now.since(At(last)) >= SAMPLE_INTERVAL
            && self.sampled.compare_exchange(last, now.0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if due {
            socket.look();
        }
        due
    }

    fn take_idle(&self, now: At) -> Option<Http1> {
        let mut idle = self.idle.lock();
        idle.retain(|connection| connection.usable(now));
        // One that is not ready still uploads a body that its engine refused early: it is left to its age.
        let used = idle.iter().rposition(|connection| connection.used && connection.sender.is_ready());
        let at = used.or_else(|| idle.iter().rposition(|connection| connection.sender.is_ready()))?;
        Some(idle.remove(at))
    }

    /// Takes a connection back whose response was read to its end.
    pub(super) fn give_back(&self, carrier: Carrier, now: At) {
        let Carrier::Http1(mut connection) = carrier else { return };
        connection.used = true;
        self.keep(connection, now);
    }

    fn keep(&self, mut connection: Http1, now: At) {
        connection.idle_since = now;
        if !connection.usable(now) {
            return;
        }
        let mut idle = self.idle.lock();
        if idle.len() == MAX_IDLE {
            idle.remove(0);
        }
        idle.push(connection);
    }

    /// Closes idle connections that are too old, and forgets those that the engine closed.
    pub(super) fn prune(&self, now: At) {
        self.idle.lock().retain(|connection| connection.usable(now));
    }

    /// Closes all connections that carry nothing; the tasks of the others end with their requests.
    pub(super) async fn close(&self) {
        self.idle.lock().clear();
        if let Some(shared) = self.shared.lock().await.take() {
            shared.task.abort();
        }
    }

    /// Connections that carry nothing now.
    #[cfg(test)]
    pub(super) async fn open_and_idle(&self) -> usize {
        let shared = self.shared.lock().await.is_some();
        self.idle.lock().len() + usize::from(shared)
    }

    async fn dial(&self) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
        let dialled = timeout(self.connect_timeout, async {
            let permit = Arc::clone(&self.room).acquire_owned().await.map_err(io::Error::other)?;
            let stream = TcpStream::connect((self.target.host.as_str(), self.target.port)).await?;
            Ok::<_, io::Error>((stream, permit))
        });
        let (stream, permit) = dialled.await??;
        // Without it the last piece of each request waits for a delayed acknowledgement.
        stream.set_nodelay(true)?;
        SockRef::from(&stream)
            .set_tcp_keepalive(&TcpKeepalive::new().with_time(TCP_KEEPALIVE).with_interval(TCP_KEEPALIVE))?;
        Ok((stream, permit))
    }

    async fn dial_http1(&self, clock: &dyn Clock, trip: &mut Trip) -> Result<Http1, SendError> {
        let began = clock.now();
        let dialled = self.dial().await;
        trip.connect = Some(clock.now().since(began));
        let (stream, permit) = dialled.map_err(|_| SendError::connect())?;
        let (stream, socket) = EngineSocket::new(stream);
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(READ_BUFFER)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|_| SendError::connect())?;
        let task = self.tracker.spawn(async move {
            // How it ended is known to whoever waits for the response.
            let _ = connection.await;
            drop(permit);
        });
        Ok(Http1 { sender, task: task.abort_handle(), socket, idle_since: began, idle_max: UNUSED_MAX, used: false })
    }

    async fn shared_http2(&self, clock: &dyn Clock, trip: &mut Trip) -> Result<Shared, SendError> {
        let mut slot = self.shared.lock().await;
        if let Some(shared) = slot.as_ref().filter(|shared| !shared.sender.is_closed()) {
            trip.connection = Some(Connection::Warm);
            trip.connect = Some(Duration::ZERO);
            return Ok(shared.clone());
        }
        let began = clock.now();
        let dialled = self.dial().await;
        trip.connect = Some(clock.now().since(began));
        let (stream, permit) = dialled.map_err(|_| SendError::connect())?;
        let (stream, socket) = EngineSocket::new(stream);
        let (sender, connection) = http2::Builder::new(Spawner(self.tracker.clone()))
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_INTERVAL)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|_| SendError::connect())?;
        let task = self.tracker.spawn(async move {
            let _ = connection.await;
            drop(permit);
        });
        let shared = Shared { sender, task: task.abort_handle(), socket, used: Arc::default() };
        *slot = Some(shared.clone());
        trip.connection = Some(Connection::Fresh);
        Ok(shared)
    }

    async fn forget_http2(&self, broken: &Shared) {
        let mut slot = self.shared.lock().await;
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

/// How long a connection may be kept, by what the engine says of it.
fn idle_max(headers: &HeaderMap) -> Duration {
    let stated = headers.get(&KEEP_ALIVE).and_then(|value| value.to_str().ok()).and_then(|value| {
        let seconds = value.split(',').find_map(|part| part.trim().strip_prefix("timeout="))?;
        seconds.parse().ok().map(Duration::from_secs)
    });
    stated.map_or(IDLE_MAX, |stated| stated.saturating_sub(KEEP_ALIVE_MARGIN).min(IDLE_MAX))
}

/// A request's target as the protocol wants it: HTTP/1.1 the path alone, HTTP/2 the whole address without `Host`.
pub(super) fn address(http: HttpVersion, authority: &str, path: &str, headers: &mut HeaderMap) -> Option<Uri> {
    match http {
        HttpVersion::Http1 => path.parse().ok(),
        HttpVersion::Http2 => {
            headers.remove(HOST);
            format!("http://{authority}{path}").parse().ok()
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
        assert_eq!(idle_max(&headers), IDLE_MAX);
        for (stated, kept) in [("timeout=3, max=10", 2), ("max=10, timeout=60", 4), ("timeout=1", 0), ("timeout=x", 4)]
        {
            headers.insert(&KEEP_ALIVE, HeaderValue::from_static(stated));
            assert_eq!(idle_max(&headers), Duration::from_secs(kept), "{stated}");
        }
    }
}
