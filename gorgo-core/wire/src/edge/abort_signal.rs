//! Moment from which on all requests are aborted: by a second signal, or because the drain time is over.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::{CancellationToken, WaitForCancellationFuture, WaitForCancellationFutureOwned};

/// Token with a flag beside it: responses check at every piece, and the token's own check takes a lock.
#[derive(Debug, Default)]
pub(super) struct AbortSignal {
    triggered: AtomicBool,
    token: CancellationToken,
}

impl AbortSignal {
    /// Aborts all requests from now on and wakes everything that waits for it.
    pub(super) fn trigger(&self) {
        // The flag before the token: a task that the token wakes must see it set.
        self.triggered.store(true, Ordering::Release);
        self.token.cancel();
    }

    pub(super) fn is_triggered(&self) -> bool {
        self.triggered.load(Ordering::Acquire)
    }

    pub(super) fn wait(&self) -> WaitForCancellationFuture<'_> {
        self.token.cancelled()
    }

    pub(super) fn wait_owned(&self) -> WaitForCancellationFutureOwned {
        self.token.clone().cancelled_owned()
    }
}
