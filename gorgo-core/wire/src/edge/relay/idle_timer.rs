//! Idle limit within a response, and the other reason that ends the wait for its next piece.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::task::unconstrained;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::edge::abort_signal::AbortSignal;
use gorgo_routing::model::{Clock, ErrorClass, UnixMicros};

/// Wait for the next piece of one response.
///
/// Polled after every piece, so polling is cheap: timer and token are polled only if another task must be woken than
/// last time, or if the timer has expired. One timer serves many waits: it is set again, for the remainder, only when
/// it expires.
pub(in crate::edge) struct IdleTimer {
    limit: Duration,
    since: Option<UnixMicros>,
    timer: Option<Pin<Box<Sleep>>>,
    abort: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Task that timer and token wake.
    registered_waker: Option<Waker>,
}

impl IdleTimer {
    pub(in crate::edge) fn new(limit: Duration, cut: &AbortSignal) -> Self {
        Self { limit, since: None, timer: None, abort: Box::pin(cut.wait_owned()), registered_waker: None }
    }

    /// Records that the engine sent something.
    pub(in crate::edge) fn reset(&mut self) {
        self.since = None;
    }

    /// Ready with the reason why the wait is over: the engine was silent for the limit while this was polled, or all
    /// requests are aborted. Time in which nobody polled, because the client did not read, does not count.
    pub(in crate::edge) fn poll(&mut self, clock: &dyn Clock, cx: &mut Context<'_>) -> Poll<ErrorClass> {
        let since = *self.since.get_or_insert_with(|| clock.now());
        let wakes_us = self.registered_waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        // The timer is registered with this task and still running: nothing to do on the hot path.
        if wakes_us && self.timer.as_ref().is_some_and(|timer| !timer.is_elapsed()) {
            return Poll::Pending;
        }
        self.registered_waker = Some(cx.waker().clone());
        if self.abort.as_mut().poll(cx).is_ready() {
            return Poll::Ready(ErrorClass::Shutdown);
        }
        let limit = self.limit;
        loop {
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
            // Unconstrained: a timer that is not polled because the task's budget is used up is not registered, and
            // wakes nobody.
            ready!(pin!(unconstrained(timer.as_mut())).poll(cx));
            let silent = clock.now().elapsed_since(since);
            if silent >= limit {
                return Poll::Ready(ErrorClass::IdleTimeout);
            }
            // The timer was set for an earlier wait: set it again for the rest of this one.
            self.timer = Some(Box::pin(sleep(limit - silent)));
        }
    }
}
