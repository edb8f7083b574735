//! A connection to an engine that is moved on by whoever waits for its answer, not by a task of its own.
//!
//! hyper keeps a connection's protocol in a future that somebody must poll. A task per connection costs two changes of
//! task for every piece of an answer, and hands pieces over one at a time, even where twenty came in one read. Polled in
//! the relay's own turn, all pieces that are there are had at once, and nothing is woken but by the socket.
//!
//! Connections that carry nothing are polled by nobody; [`Driven::look`] does it once, which is when a close by the engine
//! is noticed.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;

use crate::edge::upstream::body::Payload;
use crate::edge::upstream::replica_socket::EngineSocket;

/// Turns that a connection and its reader give each other before others get theirs.
const MOST_TURNS: usize = 64;

/// A connection's protocol, polled in place.
pub(in crate::edge) struct Driven {
    /// `None` once it has ended; what it had handed over by then can still be read.
    connection: Option<Box<http1::Connection<TokioIo<EngineSocket>, Payload>>>,
    bell: Arc<Bell>,
    waker: Waker,
}

/// Nobody polls; a wake-up goes to whoever polled last.
const RESTING: u8 = 0;
/// Somebody polls; a wake-up means another turn.
const POLLING: u8 = 1;
/// A wake-up came.
const RUNG: u8 = 2;

/// Tells wake-ups between the connection and its reader, which happen within one turn, from those of the socket.
#[derive(Default)]
struct Bell {
    state: AtomicU8,
    outer: Mutex<Option<Waker>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.fetch_or(RUNG, Ordering::AcqRel) & POLLING == 0
            && let Some(outer) = &*self.outer.lock()
        {
            outer.wake_by_ref();
        }
    }
}

impl Driven {
    pub(in crate::edge) fn new(connection: http1::Connection<TokioIo<EngineSocket>, Payload>) -> Self {
        let bell = Arc::new(Bell::default());
        Self { connection: Some(Box::new(connection)), waker: Waker::from(Arc::clone(&bell)), bell }
    }

    /// Whether the protocol has ended.
    pub(in crate::edge) const fn has_ended(&self) -> bool {
        self.connection.is_none()
    }

    /// Polls `reader` and the connection in turns until the reader is ready or neither goes on.
    pub(in crate::edge) fn drive<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut reader: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        {
            let mut outer = self.bell.outer.lock();
            if !outer.as_ref().is_some_and(|outer| outer.will_wake(cx.waker())) {
                *outer = Some(cx.waker().clone());
            }
        }
        for _ in 0..MOST_TURNS {
            self.bell.state.store(POLLING, Ordering::Release);
            let mut inner = Context::from_waker(&self.waker);
            let read = reader(&mut inner);
            if read.is_ready() {
                // Whoever gets something asks again before it relies on being woken.
                self.bell.state.store(RESTING, Ordering::Release);
                return read;
            }
            Self::poll(&mut self.connection, &mut inner);
            let rested =
                self.bell.state.compare_exchange(POLLING, RESTING, Ordering::AcqRel, Ordering::Acquire).is_ok();
            if rested {
                return Poll::Pending;
            }
        }
        self.bell.state.store(RESTING, Ordering::Release);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Lets the connection notice what happened to it while it carried nothing. Wakes nobody later.
    pub(in crate::edge) fn look(&mut self) {
        Self::poll(&mut self.connection, &mut Context::from_waker(Waker::noop()));
    }

    /// How it ended is known to whoever waits for the answer.
    fn poll(connection: &mut Option<Box<http1::Connection<TokioIo<EngineSocket>, Payload>>>, cx: &mut Context<'_>) {
        if connection.as_mut().is_some_and(|connection| Pin::new(&mut **connection).poll(cx).is_ready()) {
            *connection = None;
        }
    }
}

impl fmt::Debug for Driven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driven").field("ended", &self.has_ended()).finish_non_exhaustive()
    }
}
