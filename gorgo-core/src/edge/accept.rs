//! The accept loop, the life of a client's connection, and the drain.
//!
//! A failing accept (no file handles left) is waited out; it neither spins nor ends the loop. On shutdown the listener
//! closes, idle connections close, running requests finish; those that have not within `server.drain_secs` end as
//! errors of class `Shutdown`.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::Version;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Data;
use super::refuse::Reserve;
use super::route;
use super::socket::ClientSocket;

/// Longest request head, bytes; 431 above.
const MAX_HEAD: usize = 64 << 10;
/// Most headers of a request; 431 above.
const MAX_HEADERS: usize = 128;
/// Wait after an accept that failed for want of something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Old engine connections are closed this often.
const PRUNE_INTERVAL: Duration = Duration::from_secs(1);
/// Time that answers get to say that they were cut.
const CUT_GRACE: Duration = Duration::from_secs(2);
/// What an HTTP/2 client sends first (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long the rest of half a preface is waited for before the next look.
const PREFACE_PAUSE: Duration = Duration::from_millis(5);
/// HTTP/2 receive window for request bodies; the default of 64 KiB costs a round trip per 64 KiB.
const STREAM_WINDOW: u32 = 1 << 20;

/// Lets hyper run HTTP/2's tasks on the tracker.
#[derive(Debug, Clone)]
pub(super) struct Spawner(pub(super) TaskTracker);

impl<F> hyper::rt::Executor<F> for Spawner
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        drop(self.0.spawn(future));
    }
}

/// The connection a request came by, as far as its answer may act on it.
#[derive(Debug, Clone)]
pub(super) struct ClientConnection {
    close: CancellationToken,
    shared: bool,
}

impl ClientConnection {
    /// Cancelled, it closes the connection after the running answer. A connection that other requests share (HTTP/2)
    /// stays; there, an answer ends for itself.
    pub(super) fn closer(&self) -> CancellationToken {
        if self.shared { CancellationToken::new() } else { self.close.clone() }
    }
}

/// Serves `listener` until `shutdown`, then drains. Returns when the last connection is closed. Connections run as
/// tasks of `tracker`. Whether all requests could finish: `false` where some were cut off, because the time to drain was
/// over or [`Data::cut_now`] was called.
pub async fn serve(data: Arc<Data>, listener: TcpListener, shutdown: CancellationToken, tracker: &TaskTracker) -> bool {
    let connections = TaskTracker::new();
    let kill = CancellationToken::new();
    let mut prune = interval(PRUNE_INTERVAL);
    let mut reserve = Reserve::take();
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    reserve.renew();
                    let life = live(Arc::clone(&data), stream, kill.clone(), tracker.clone());
                    tracker.spawn(connections.track_future(life));
                }
                Err(error) if is_of_one_client(&error) => {}
                Err(error) if reserve.refuse(&listener, &error).await => {}
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
            _ = prune.tick() => {
                let now = data.clock.now();
                data.upstreams.iter().for_each(|upstream| upstream.pool.tend(now));
            }
        }
    }
    data.draining.cancel();
    drop(listener);
    connections.close();
    let patience = Duration::from_secs(data.server.drain_secs);
    let finished = tokio::select! {
        () = connections.wait() => true,
        () = sleep(patience) => false,
        () = data.cut.cancelled() => false,
    };
    data.cut.cancel();
    if timeout(CUT_GRACE, connections.wait()).await.is_err() {
        kill.cancel();
        connections.wait().await;
    }
    for upstream in &data.upstreams {
        upstream.pool.close().await;
    }
    finished
}

/// Errors of `accept` that concern a client which is already gone.
fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Whether the client begins as HTTP/2 does. Its bytes stay where they are: hyper-util's own look takes the first 24 out of
/// the socket, reads the rest of the head behind them, and needs twice the buffer for it, for as long as the connection
/// lives.
async fn speaks_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut head = [0; PREFACE.len()];
    loop {
        let seen = stream.peek(&mut head).await?;
        if seen == 0 || head[..seen] != PREFACE[..seen] {
            return Ok(false);
        }
        if seen == PREFACE.len() {
            return Ok(true);
        }
        // Half a preface stays readable, so that there is nothing to wait for but time.
        sleep(PREFACE_PAUSE).await;
    }
}

/// One connection, from accept to close.
async fn live(data: Arc<Data>, stream: TcpStream, kill: CancellationToken, tracker: TaskTracker) {
    // Without it the last piece of each stream waits for a delayed acknowledgement. It fails only for a dead socket.
    let _ = stream.set_nodelay(true);
    let head_timeout = Duration::from_millis(data.server.head_timeout_ms);
    let close = CancellationToken::new();
    let spoke = Arc::new(AtomicBool::new(false));
    let service = {
        let (data, close, spoke) = (Arc::clone(&data), close.clone(), Arc::clone(&spoke));
        service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            spoke.store(true, Ordering::Relaxed);
            let client = ClientConnection { close: close.clone(), shared: request.version() >= Version::HTTP_2 };
            let data = Arc::clone(&data);
            async move { Ok::<_, Infallible>(route::answer(data, client, request).await) }
        })
    };
    let http2 = tokio::select! {
        spoken = timeout(head_timeout, speaks_http2(&stream)) => match spoken {
            Ok(Ok(http2)) => http2,
            Ok(Err(_)) | Err(_) => return,
        },
        () = kill.cancelled() => return,
        // Nothing was asked.
        () = data.draining.cancelled() => return,
    };
    let mut builder = auto::Builder::new(Spawner(tracker));
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .keep_alive_interval(head_timeout)
        .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX));
    let builder = if http2 { builder.http2_only() } else { builder.http1_only() };
    let socket = ClientSocket::new(stream, data.idle_timeout());
    let connection = builder.serve_connection(TokioIo::new(socket), service);
    tokio::pin!(connection);
    let silent = sleep(head_timeout);
    tokio::pin!(silent);
    let (mut closing, mut watching) = (false, true);
    loop {
        tokio::select! {
            // How it ended is known to its requests.
            _ = connection.as_mut() => break,
            () = kill.cancelled() => break,
            () = data.draining.cancelled(), if !closing => {
                closing = true;
                connection.as_mut().graceful_shutdown();
            }
            () = close.cancelled(), if !closing => {
                closing = true;
                connection.as_mut().graceful_shutdown();
            }
            // Over HTTP/2 hyper puts no limit on waiting for a first request.
            () = silent.as_mut(), if watching => {
                if !spoke.load(Ordering::Relaxed) {
                    break;
                }
                watching = false;
            }
        }
    }
}
