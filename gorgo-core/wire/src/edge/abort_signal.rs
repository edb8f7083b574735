//! Moment from which on all requests are aborted: by a second signal, or because the drain time is over.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::{CancellationToken, WaitForCancellationFuture, WaitForCancellationFutureOwned};

/// Token with a flag beside it: responses check at every piece, and the token's own check takes a lock.
#[derive(Debug, Default)]
pub(super) struct Cut {
    made: AtomicBool,
    token: CancellationToken,
}

impl Cut {
    /// Aborts all requests from now on and wakes everything that waits for it.
    pub(super) fn make(&self) {
        // The flag before the token: a task that the token wakes must see it set.
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
