//! Socket of a client with a limit on how long it may refuse to take bytes.
//!
//! Also limits how much one read brings, and with it hyper's buffer.
//!
//! hyper waits forever for a client that does not read; its response, its engine connection and its reservation would
//! wait with it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, Take};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// Most bytes of one read. hyper doubles its buffer whenever a read filled it and keeps the largest for the
/// connection's life, up to the longest head: one long prompt would cost each open stream 64 KiB. One byte less than a
/// power of two, so that a read never fills such a buffer.
const READ_BYTES: u64 = (16 << 10) - 1;

/// Pieces up to this many bytes together are copied and sent as one: an event's chunk is three pieces of a few hundred
/// bytes, and `writev` costs more than `send` and the copy.
const COALESCE_BYTES: usize = 2 << 10;

/// Socket whose writes fail with `TimedOut` if nothing could be written within the limit.
#[derive(Debug)]
pub(in crate::edge) struct ClientSocket {
    stream: Take<TcpStream>,
    limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl ClientSocket {
    pub(in crate::edge) fn new(stream: TcpStream, limit: Duration) -> Self {
        Self { stream: stream.take(READ_BYTES), limit, stalled: None }
    }

    fn check_stall<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            // Any progress ends the stall; the timer exists only while a write is blocked.
            self.stalled = None;
            return written;
        }
        let limit = self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        match stalled.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            // hyper drops the connection on this error, and with it the response, which aborts the engine's work.
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read"))),
        }
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = &mut self.get_mut().stream;
        // `Take` counts down over the whole stream; the limit here is per read.
        stream.set_limit(READ_BYTES);
        Pin::new(stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(this.stream.get_mut()).poll_write(cx, bytes);
        this.check_stall(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let stream = Pin::new(this.stream.get_mut());
        let mut joined = [0; COALESCE_BYTES];
        let written = match join(pieces, &mut joined) {
            // Events are small and frequent: the copy is cheaper than the kernel's work for several pieces.
            Some(length) => stream.poll_write(cx, &joined[..length]),
            None => stream.poll_write_vectored(cx, pieces),
        };
        this.check_stall(cx, written)
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

/// Copies the pieces into `room`, one after the other; `None` if they do not fit.
fn join(pieces: &[io::IoSlice<'_>], room: &mut [u8]) -> Option<usize> {
    let mut length = 0;
    for piece in pieces {
        let end = length + piece.len();
        // Too long to join: the caller writes the pieces as they are.
        room.get_mut(length..end)?.copy_from_slice(piece);
        length = end;
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn one_read_is_bounded_whatever_has_come() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let sent: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let (written, accepted) = tokio::join!(client.write_all(&sent), listener.accept());
        written.unwrap();
        client.shutdown().await.unwrap();
        let mut socket = ClientSocket::new(accepted.unwrap().0, Duration::from_secs(9));
        let (mut received, mut largest, mut buffer) = (Vec::new(), 0, vec![0; 64 << 10]);
        loop {
            let read = socket.read(&mut buffer).await.unwrap();
            if read == 0 {
                break;
            }
            largest = largest.max(read);
            received.extend_from_slice(&buffer[..read]);
        }
        assert!(received == sent, "all of it comes, in order");
        assert_eq!(u64::try_from(largest).unwrap(), READ_BYTES);
    }

    #[tokio::test]
    async fn pieces_arrive_in_order_whether_they_are_sent_as_one_or_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut socket = ClientSocket::new(listener.accept().await.unwrap().0, Duration::from_secs(9));
        for size in [1, 700, 683, COALESCE_BYTES / 3 + 1, 4000] {
            let pieces = [b'a', b'b', b'c'].map(|letter| vec![letter; size]);
            let slices: Vec<_> = pieces.iter().map(|piece| io::IoSlice::new(piece)).collect();
            let written = socket.write_vectored(&slices).await.unwrap();
            assert_eq!(written, 3 * size, "an empty send buffer takes it all");
            let mut received = vec![0; written];
            client.read_exact(&mut received).await.unwrap();
            assert!(received == pieces.concat(), "{size}");
        }
    }
}
