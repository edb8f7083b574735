//! Signals that end a run early.

use std::io;

/// SIGINT and, on Unix, SIGTERM.
pub(super) struct InterruptSignals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl InterruptSignals {
    #[cfg(unix)]
    pub(super) fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    #[cfg(not(unix))]
    #[expect(clippy::unnecessary_wraps, reason = "the same signature as on unix")]
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        #[cfg(not(unix))]
        if tokio::signal::ctrl_c().await.is_err() {
            // Without a handler no signal can be waited for; returning would stop the replay.
            std::future::pending::<()>().await;
        }
    }
}
