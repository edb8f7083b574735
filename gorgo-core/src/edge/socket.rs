//! A client's socket with a limit on how long it may refuse to take bytes.
//!
//! It also bounds what one read brings, and with it hyper's buffer.
//!
//! hyper waits for ever for a client that does not read; its answer, its engine connection and its reservation would wait
//! with it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, Take};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// Bytes of one read at most. hyper doubles its buffer whenever a read filled it and keeps the largest for the connection's
/// life, up to the longest head: one long prompt would cost each open stream 64 KiB. One byte less than a power of two.
const READ_BYTES: u64 = (16 << 10) - 1;

/// The socket. Writes fail with `TimedOut` when nothing could be written for the limit.
#[derive(Debug)]
pub(super) struct ClientSocket {
    stream: Take<TcpStream>,
    limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl ClientSocket {
    pub(super) fn new(stream: TcpStream, limit: Duration) -> Self {
        Self { stream: stream.take(READ_BYTES), limit, stalled: None }
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let limit = self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        match stalled.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read"))),
        }
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = &mut self.get_mut().stream;
        stream.set_limit(READ_BYTES);
        Pin::new(stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(this.stream.get_mut()).poll_write(cx, bytes);
        this.watch(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(this.stream.get_mut()).poll_write_vectored(cx, pieces);
        this.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.get_ref().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().stream.get_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().stream.get_mut()).poll_shutdown(cx)
    }
}
