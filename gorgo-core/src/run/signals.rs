//! Signals: the first SIGTERM or SIGINT starts a drain, the second ends the process at once; SIGHUP starts a reload.

use std::io;

/// Waits for SIGTERM or SIGINT, and returns its name.
pub(super) struct ShutdownSignals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl ShutdownSignals {
    /// Installs the handlers.
    pub(super) fn install() -> io::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Returns the name of the next signal.
    #[cfg(unix)]
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// Returns the name of the next signal.
    #[cfg(not(unix))]
    pub(super) async fn next(&mut self) -> &'static str {
        let _ = tokio::signal::ctrl_c().await;
        "interrupt"
    }
}

/// Waits for SIGHUP.
pub(super) struct ReloadSignals {
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
}

impl ReloadSignals {
    /// Installs the handler.
    pub(super) fn install() -> io::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Self { hangup: signal(SignalKind::hangup())? })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Returns at the next SIGHUP; never on systems without that signal.
    pub(super) async fn next(&mut self) {
        #[cfg(unix)]
        if self.hangup.recv().await.is_some() {
            return;
        }
        // Pending for ever, instead of returning: the caller would reload in a loop.
        std::future::pending().await
    }
}
