//! How long an engine may say nothing within an answer, and what else ends the wait for its next piece.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::task::unconstrained;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::edge::abort_signal::Cut;
use gorgo_routing::model::{At, Clock, ErrorClass};

/// The wait for the next piece of one answer.
///
/// It is looked at after every piece, so a look is cheap: timer and token are polled only where somebody else is to be woken
/// than last time, or where the timer has run out. One timer serves many waits: it is set again, for what is left, only when
/// it runs out.
pub(in crate::edge) struct Silence {
    limit: Duration,
    since: Option<At>,
    timer: Option<Pin<Box<Sleep>>>,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Whom timer and token wake.
    wakes: Option<Waker>,
}

impl Silence {
    pub(in crate::edge) fn new(limit: Duration, cut: &Cut) -> Self {
        Self { limit, since: None, timer: None, cut: Box::pin(cut.wait_owned()), wakes: None }
    }

    /// The engine said something.
    pub(in crate::edge) fn broken(&mut self) {
        self.since = None;
    }

    /// Ready with why the wait is over: the engine was silent for the limit while we waited for it, or all requests end.
    /// Time in which nobody asked, because the client did not read, does not count.
    pub(in crate::edge) fn poll(&mut self, clock: &dyn Clock, cx: &mut Context<'_>) -> Poll<ErrorClass> {
        let since = *self.since.get_or_insert_with(|| clock.now());
        let wakes_us = self.wakes.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if wakes_us && self.timer.as_ref().is_some_and(|timer| !timer.is_elapsed()) {
            return Poll::Pending;
        }
        self.wakes = Some(cx.waker().clone());
        if self.cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(ErrorClass::Shutdown);
        }
        let limit = self.limit;
        loop {
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
            // Whatever the task has used up of its turn: a timer that was not polled through is not set, and wakes nobody.
            ready!(pin!(unconstrained(timer.as_mut())).poll(cx));
            let silent = clock.now().since(since);
            if silent >= limit {
                return Poll::Ready(ErrorClass::IdleTimeout);
            }
            // The timer was set for an earlier wait: once more for the rest of this one.
            self.timer = Some(Box::pin(sleep(limit - silent)));
        }
    }
}
