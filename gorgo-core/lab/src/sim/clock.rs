//! Virtual time: a clock that moves only when it is advanced, and never back.

use std::sync::atomic::{AtomicU64, Ordering};

use gorgo_routing::model::{At, Clock};

/// A clock that shows the time it was last advanced to.
#[derive(Debug, Default)]
pub struct VirtualClock {
    micros: AtomicU64,
}

impl VirtualClock {
    /// Creates a clock that shows `start`.
    #[must_use]
    pub const fn new(start: At) -> Self {
        Self { micros: AtomicU64::new(start.0) }
    }

    /// Advances to `at`. An earlier time changes nothing.
    pub fn advance_to(&self, at: At) {
        self.micros.fetch_max(at.0, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> At {
        At(self.micros.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_steps_back() {
        let clock = VirtualClock::new(At(10));
        clock.advance_to(At(30));
        clock.advance_to(At(20));
        assert_eq!(clock.now(), At(30));
    }
}
