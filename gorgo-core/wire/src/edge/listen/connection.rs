//! The life of one client connection, from its first byte to its close.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::edge::Data;
use crate::edge::intake::route;
use crate::edge::listen::Spawner;
use crate::edge::listen::client_socket::ClientSocket;

/// Longest request head, bytes; 431 above.
const MAX_HEAD: usize = 64 << 10;
/// Most headers of a request; 431 above.
const MAX_HEADERS: usize = 128;
/// What an HTTP/2 client sends first (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long the rest of half a preface is waited for before the next look.
const PREFACE_PAUSE: Duration = Duration::from_millis(5);
/// HTTP/2 receive window for request bodies; the default of 64 KiB costs a round trip per 64 KiB.
const STREAM_WINDOW: u32 = 1 << 20;

/// The connection a request came by, as far as its answer may act on it.
#[derive(Debug, Clone)]
pub(in crate::edge) struct ClientConnection {
    close: CancellationToken,
    shared: bool,
}

impl ClientConnection {
    /// Cancelled, it closes the connection after the running answer. A connection that other requests share (HTTP/2)
    /// stays; there, an answer ends for itself.
    pub(in crate::edge) fn closer(&self) -> CancellationToken {
        if self.shared { CancellationToken::new() } else { self.close.clone() }
    }
}

/// One connection, from accept to close. `kill` ends it at once; nothing is killed that was not asked to drain before.
pub(in crate::edge) async fn live(data: Arc<Data>, stream: TcpStream, kill: CancellationToken, tracker: TaskTracker) {
    // Without it the last piece of each stream waits for a delayed acknowledgement. It fails only for a dead socket.
    let _ = stream.set_nodelay(true);
    let head_timeout = Duration::from_millis(data.server.head_timeout_ms);
    let http2 = tokio::select! {
        spoken = timeout(head_timeout, speaks_http2(&stream)) => match spoken {
            Ok(Ok(http2)) => http2,
            Ok(Err(_)) | Err(_) => return,
        },
        () = kill.cancelled() => return,
        // Nothing was asked.
        () = data.draining.cancelled() => return,
    };
    // The drain reaches the connection by the same token as an answer that must be its last: one to look at, not two.
    let close = data.draining.child_token();
    let socket = TokioIo::new(ClientSocket::new(stream, data.idle_timeout()));
    if http2 {
        // In a box: most connections are not of this kind, and all would carry its room.
        Box::pin(live_http2(data, socket, close, kill, tracker)).await;
        return;
    }
    let service = {
        let close = close.clone();
        service_fn(move |request| {
            let client = ClientConnection { close: close.clone(), shared: false };
            let data = Arc::clone(&data);
            // In a box of its own, which goes when the answer begins: hyper keeps room for what stands here as long as the
            // connection lives.
            Box::pin(async move { Ok::<_, Infallible>(route::answer(data, client, request).await) })
        })
    };
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head_timeout).max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
    conduct(pin!(builder.serve_connection(socket, service)), &close, &kill).await;
}

async fn live_http2(
    data: Arc<Data>,
    socket: TokioIo<ClientSocket>,
    close: CancellationToken,
    kill: CancellationToken,
    tracker: TaskTracker,
) {
    let head_timeout = Duration::from_millis(data.server.head_timeout_ms);
    let spoke = Arc::new(AtomicBool::new(false));
    let service = {
        let (close, spoke) = (close.clone(), Arc::clone(&spoke));
        service_fn(move |request| {
            spoke.store(true, Ordering::Relaxed);
            let client = ClientConnection { close: close.clone(), shared: true };
            let data = Arc::clone(&data);
            async move { Ok::<_, Infallible>(route::answer(data, client, request).await) }
        })
    };
    let mut builder = http2::Builder::new(Spawner(tracker));
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .keep_alive_interval(head_timeout)
        .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX));
    let connection = pin!(builder.serve_connection(socket, service));
    // hyper puts no limit on waiting for a first request.
    let silent = async {
        sleep(head_timeout).await;
        if spoke.load(Ordering::Relaxed) {
            std::future::pending().await
        }
    };
    tokio::select! {
        () = conduct(connection, &close, &kill) => {}
        () = silent => {}
    }
}

/// Moves the connection on until it ends. How it ended is known to its requests.
///
/// By reference: a future keeps room for each place that a value moves through, and this one is there once per client.
async fn conduct<C: GracefulConnection>(
    mut connection: Pin<&mut C>,
    close: &CancellationToken,
    kill: &CancellationToken,
) {
    // Polled at every piece of an answer, so each branch counts.
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = close.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = connection => {}
        () = kill.cancelled() => {}
    }
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
