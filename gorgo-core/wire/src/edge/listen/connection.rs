//! One client connection, from its first byte to its close.

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

use crate::edge::DataPlane;
use crate::edge::intake::route;
use crate::edge::listen::TrackerExecutor;
use crate::edge::listen::client_socket::ClientSocket;

/// Longest request head, bytes; longer ones get 431.
const MAX_HEAD: usize = 64 << 10;
/// Most headers of a request; more get 431.
const MAX_HEADERS: usize = 128;
/// First bytes of an HTTP/2 client (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Pause before looking again for the rest of a partial preface.
const PREFACE_PAUSE: Duration = Duration::from_millis(5);
/// HTTP/2 receive window for request bodies; the default of 64 KiB costs a round trip per 64 KiB.
const STREAM_WINDOW: u32 = 1 << 20;

/// Connection that a request arrived on, as far as its response may act on it.
#[derive(Debug, Clone)]
pub(in crate::edge) struct ClientConnection {
    close: CancellationToken,
    shared: bool,
}

impl ClientConnection {
    /// Token that closes the connection after the running response when it is cancelled. A connection that other
    /// requests share (HTTP/2) stays open: there a response ends by itself.
    pub(in crate::edge) fn close_token(&self) -> CancellationToken {
        if self.shared { CancellationToken::new() } else { self.close.clone() }
    }
}

/// Serves one connection, from accept to close. `kill` ends it at once; it is cancelled only after a drain.
pub(in crate::edge) async fn serve_connection(
    data: Arc<DataPlane>,
    stream: TcpStream,
    kill: CancellationToken,
    tracker: TaskTracker,
) {
    // Without it the last piece of each stream waits for a delayed acknowledgement. Fails only on a dead socket.
    let _ = stream.set_nodelay(true);
    let head_timeout = Duration::from_millis(data.server.head_timeout_ms);
    let http2 = tokio::select! {
        spoken = timeout(head_timeout, speaks_http2(&stream)) => match spoken {
            Ok(Ok(http2)) => http2,
            Ok(Err(_)) | Err(_) => return,
        },
        () = kill.cancelled() => return,
        // No request has arrived yet, so there is nothing to finish.
        () = data.draining.cancelled() => return,
    };
    // Drain and "last response on this connection" share one token: one future to poll per piece instead of two.
    let close = data.draining.child_token();
    let socket = TokioIo::new(ClientSocket::new(stream, data.idle_timeout()));
    if http2 {
        // Boxed: most connections are HTTP/1.1, and all of them would carry the room of this future.
        Box::pin(serve_http2(data, socket, close, kill, tracker)).await;
        return;
    }
    let service = {
        let close = close.clone();
        service_fn(move |request| {
            let client = ClientConnection { close: close.clone(), shared: false };
            let data = Arc::clone(&data);
            // Boxed separately and freed when the response begins: hyper keeps room for this future as long as the
            // connection lives.
            Box::pin(async move { Ok::<_, Infallible>(route::answer(data, client, request).await) })
        })
    };
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head_timeout).max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
    drive_connection(pin!(builder.serve_connection(socket, service)), &close, &kill).await;
}

async fn serve_http2(
    data: Arc<DataPlane>,
    socket: TokioIo<ClientSocket>,
    close: CancellationToken,
    kill: CancellationToken,
    tracker: TaskTracker,
) {
    let head_timeout = Duration::from_millis(data.server.head_timeout_ms);
    let spoke = Arc::new(AtomicBool::new(false));
    let service = {
        let (close, spoke) = (close.clone(), Arc::clone(&spoke));
        // hyper calls this per request; the flag tells the timer below that the client is not idle from the start.
        service_fn(move |request| {
            spoke.store(true, Ordering::Relaxed);
            let client = ClientConnection { close: close.clone(), shared: true };
            let data = Arc::clone(&data);
            async move { Ok::<_, Infallible>(route::answer(data, client, request).await) }
        })
    };
    let mut builder = http2::Builder::new(TrackerExecutor(tracker));
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .keep_alive_interval(head_timeout)
        .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX));
    let connection = pin!(builder.serve_connection(socket, service));
    // hyper has no limit on waiting for the first request.
    let silent = async {
        sleep(head_timeout).await;
        if spoke.load(Ordering::Relaxed) {
            std::future::pending().await
        }
    };
    tokio::select! {
        () = drive_connection(connection, &close, &kill) => {}
        () = silent => {}
    }
}

/// Drives the connection until it ends. How it ended is known to its requests.
///
/// Takes a reference: a future keeps room for each place that a value moves through, and there is one of these per
/// client.
async fn drive_connection<C: GracefulConnection>(
    mut connection: Pin<&mut C>,
    close: &CancellationToken,
    kill: &CancellationToken,
) {
    // Polled at every piece of a response, so each branch counts.
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

/// Detects a client that starts with HTTP/2's preface. Its bytes stay in the socket: hyper-util's own detection takes
/// the first 24 out, reads the rest of the head behind them, and needs twice the buffer for that as long as the
/// connection lives.
async fn speaks_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut head = [0; PREFACE.len()];
    loop {
        let seen = stream.peek(&mut head).await?;
        // `peek` returns 0 at the end of the stream: let HTTP/1.1 handle it.
        if seen == 0 || head[..seen] != PREFACE[..seen] {
            return Ok(false);
        }
        if seen == PREFACE.len() {
            return Ok(true);
        }
        // A partial preface keeps the socket readable, so waiting for readiness would spin; only time helps.
        sleep(PREFACE_PAUSE).await;
    }
}
