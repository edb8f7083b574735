//! The moment from which on all requests end: what a second signal asks for, or the end of the drain's patience.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::{CancellationToken, WaitForCancellationFuture, WaitForCancellationFutureOwned};

/// A token with a flag beside it: answers look at every piece whether it came, and a token's own look takes a lock.
#[derive(Debug, Default)]
pub(super) struct Cut {
    made: AtomicBool,
    token: CancellationToken,
}

impl Cut {
    /// From now on. Whoever waits for it is woken and finds it made.
    pub(super) fn make(&self) {
        self.made.store(true, Ordering::Release);
        self.token.cancel();
    }

    pub(super) fn is_made(&self) -> bool {
        self.made.load(Ordering::Acquire)
    }

    pub(super) fn wait(&self) -> WaitForCancellationFuture<'_> {
        self.token.cancelled()
    }

    pub(super) fn wait_owned(&self) -> WaitForCancellationFutureOwned {
        self.token.clone().cancelled_owned()
    }
}
