//! Connection to an engine that is polled by the task that waits for its response instead of by a separate task.
//!
//! hyper keeps a connection's protocol in a future that somebody must poll. A task per connection costs two task
//! switches for every piece of a response, and hands pieces over one at a time, even if one read brought twenty. Polled
//! together with the relay, all pieces that have arrived are available at once, and only the socket causes wake-ups.
//!
//! Nobody polls connections that carry nothing; [`InlineConnection::poll_once`] polls one once, which is when a close by the engine is
//! noticed.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;

use crate::edge::upstream::body::UpstreamBody;
use crate::edge::upstream::replica_socket::ReplicaSocket;

/// Rounds in which a connection and its reader poll each other before the task yields.
const MAX_ROUNDS: usize = 64;

/// A connection's protocol, polled in place.
pub(in crate::edge) struct InlineConnection {
    /// `None` once it has ended; what it had handed over by then can still be read.
    connection: Option<Box<http1::Connection<TokioIo<ReplicaSocket>, UpstreamBody>>>,
    filter: Arc<WakeFilter>,
    waker: Waker,
}

/// Nobody polls; a wake-up goes to the task that polled last.
const IDLE: u8 = 0;
/// Somebody polls; a wake-up causes another round.
const POLLING: u8 = 1;
/// A wake-up arrived.
const WOKEN: u8 = 2;

/// Separates wake-ups between the connection and its reader, which happen within one poll, from those of the socket.
#[derive(Default)]
struct WakeFilter {
    state: AtomicU8,
    outer: Mutex<Option<Waker>>,
}

impl Wake for WakeFilter {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.fetch_or(WOKEN, Ordering::AcqRel) & POLLING == 0
            && let Some(outer) = &*self.outer.lock()
        {
            outer.wake_by_ref();
        }
    }
}

impl InlineConnection {
    pub(in crate::edge) fn new(connection: http1::Connection<TokioIo<ReplicaSocket>, UpstreamBody>) -> Self {
        let bell = Arc::new(WakeFilter::default());
        Self { connection: Some(Box::new(connection)), waker: Waker::from(Arc::clone(&bell)), filter: bell }
    }

    /// Returns `true` once the protocol has ended.
    pub(in crate::edge) const fn has_ended(&self) -> bool {
        self.connection.is_none()
    }

    /// Polls `reader` and the connection alternately until the reader is ready or neither makes progress.
    pub(in crate::edge) fn drive<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut reader: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        {
            let mut outer = self.filter.outer.lock();
            // `will_wake` saves cloning the waker at every piece of a stream, where the task is always the same.
            if !outer.as_ref().is_some_and(|outer| outer.will_wake(cx.waker())) {
                *outer = Some(cx.waker().clone());
            }
        }
        for _ in 0..MAX_ROUNDS {
            // Set before each round: a wake-up during the round must be seen as one that calls for another.
            self.filter.state.store(POLLING, Ordering::Release);
            let mut inner = Context::from_waker(&self.waker);
            let read = reader(&mut inner);
            if read.is_ready() {
                // A caller that got something polls again before it relies on being woken.
                self.filter.state.store(IDLE, Ordering::Release);
                return read;
            }
            Self::poll(&mut self.connection, &mut inner);
            // Fails if a wake-up came during the round; resting would lose it.
            let rested = self.filter.state.compare_exchange(POLLING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok();
            if rested {
                return Poll::Pending;
            }
        }
        self.filter.state.store(IDLE, Ordering::Release);
        // Both sides keep waking each other: let other tasks run, then continue.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Lets the connection notice what happened to it while it carried nothing. Wakes nobody later.
    pub(in crate::edge) fn poll_once(&mut self) {
        Self::poll(&mut self.connection, &mut Context::from_waker(Waker::noop()));
    }

    /// Polls the connection once. How it ended is known to the reader of the response.
    fn poll(
        connection: &mut Option<Box<http1::Connection<TokioIo<ReplicaSocket>, UpstreamBody>>>,
        cx: &mut Context<'_>,
    ) {
        if connection.as_mut().is_some_and(|connection| Pin::new(&mut **connection).poll(cx).is_ready()) {
            *connection = None;
        }
    }
}

impl fmt::Debug for InlineConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InlineConnection").field("ended", &self.has_ended()).finish_non_exhaustive()
    }
}
