//! An engine's socket that says how its connection is doing, while hyper owns it.
//!
//! hyper keeps the socket inside its task, so nobody else can ask the kernel about it. The socket asks itself: when a
//! look was wished for, the next read that brings something takes it, which is when the kernel has just seen
//! acknowledgements. No second file handle, no system call without a wish.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::edge::upstream::tcp_info::{self, TcpState};

/// The socket, as hyper reads and writes it.
#[derive(Debug)]
pub(in crate::edge) struct EngineSocket {
    stream: TcpStream,
    view: SocketView,
}

/// What is known of a socket. Clones are views of the same one.
#[derive(Debug, Clone, Default)]
pub(in crate::edge) struct SocketView(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    wanted: AtomicBool,
    state: Mutex<Option<TcpState>>,
}

impl EngineSocket {
    pub(in crate::edge) fn new(stream: TcpStream) -> (Self, SocketView) {
        let view = SocketView::default();
        (Self { stream, view: view.clone() }, view)
    }
}

impl SocketView {
    /// Asks for a look at the next read.
    pub(in crate::edge) fn look(&self) {
        self.0.wanted.store(true, Ordering::Relaxed);
    }

    /// What the last look found.
    pub(in crate::edge) fn state(&self) -> Option<TcpState> {
        *self.0.state.lock()
    }
}

impl AsyncRead for EngineSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        use std::os::fd::AsFd;
        let this = self.get_mut();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if read.is_ready() && this.view.0.wanted.load(Ordering::Relaxed) {
            this.view.0.wanted.store(false, Ordering::Relaxed);
            *this.view.0.state.lock() = tcp_info::state(this.stream.as_fd());
        }
        read
    }
}

impl AsyncWrite for EngineSocket {
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
