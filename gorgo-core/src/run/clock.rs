//! The wall clock, read once and continued monotonically.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gorgo_routing::model::{Clock, UnixMicros};

/// Microseconds since the epoch that never step back within a run, whatever happens to the machine's clock.
#[derive(Debug)]
pub struct WallClock {
    epoch: Duration,
    started: Instant,
}

impl WallClock {
    /// Reads the machine's clocks.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place where the machine's clocks are read")]
    pub fn start() -> Self {
        // A clock set before 1970 counts as the epoch: gorgo runs, with wrong dates.
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { epoch, started: Instant::now() }
    }
}

impl Clock for WallClock {
    fn now(&self) -> UnixMicros {
        let since = self.epoch + self.started.elapsed();
        UnixMicros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }
}
