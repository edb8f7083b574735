//! Socket of an engine connection that reports TCP statistics while hyper owns it.
//!
//! hyper keeps the socket inside its own types, so nothing else can query the kernel about it. The socket queries for
//! itself: if a sample was requested, the next read that brings something takes it, which is just after the kernel has
//! seen acknowledgements. This needs no second file descriptor, and no system call without a request.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::edge::upstream::tcp_info::{self, TcpState};

/// Socket, as hyper reads and writes it.
#[derive(Debug)]
pub(in crate::edge) struct ReplicaSocket {
    stream: TcpStream,
    view: SocketView,
}

/// State of a socket as last sampled. Clones refer to the same socket.
#[derive(Debug, Clone, Default)]
pub(in crate::edge) struct SocketView(Arc<SocketSample>);

#[derive(Debug, Default)]
struct SocketSample {
    wanted: AtomicBool,
    state: Mutex<Option<TcpState>>,
}

impl ReplicaSocket {
    pub(in crate::edge) fn new(stream: TcpStream) -> (Self, SocketView) {
        let view = SocketView::default();
        (Self { stream, view: view.clone() }, view)
    }
}

impl SocketView {
    /// Requests a sample at the next read.
    pub(in crate::edge) fn request_sample(&self) {
        self.0.wanted.store(true, Ordering::Relaxed);
    }

    /// Result of the last sample.
    pub(in crate::edge) fn last_sample(&self) -> Option<TcpState> {
        *self.0.state.lock()
    }
}

impl AsyncRead for ReplicaSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        use std::os::fd::AsFd;
        let this = self.get_mut();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        // Wanted for few reads only, so reads do a plain load and no atomic swap.
        if read.is_ready() && this.view.0.wanted.load(Ordering::Relaxed) {
            this.view.0.wanted.store(false, Ordering::Relaxed);
            *this.view.0.state.lock() = tcp_info::state(this.stream.as_fd());
        }
        read
    }
}

impl AsyncWrite for ReplicaSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
