//! The network link between router and engine: a base round trip, half of it in each direction.
//!
//! A request reaches the engine half a round trip after it was sent, each write of the answer reaches the router half a
//! round trip after it was made, and the first request of a connection waits one more round trip for the handshake
//! (37, 279 and 456 ms are the means that the GORGO paper reports for its three regions).
//! Every delay is requested for a given time, so that a link whose delay drifts or jitters can replace this one without
//! a change to its callers. Transfer time and slow start are not modelled.

use std::time::Duration;

use gorgo_routing::model::UnixMicros;

/// A link with a constant delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimulatedLink {
    round_trip: Duration,
}

/// Error for a round trip that is out of range.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("round trip is {0} ms; must be a number from 0 to 600000")]
pub struct LinkError(pub f64);

/// Longest round trip accepted, ms: ten minutes, more than any timeout.
const LONGEST_MS: f64 = 600_000.0;

impl SimulatedLink {
    /// Creates a link with this round trip in ms.
    ///
    /// # Errors
    /// The round trip is negative, not a number, or longer than ten minutes.
    pub fn new(round_trip_ms: f64) -> Result<Self, LinkError> {
        if (0.0..=LONGEST_MS).contains(&round_trip_ms) {
            Ok(Self { round_trip: Duration::from_secs_f64(round_trip_ms / 1e3) })
        } else {
            Err(LinkError(round_trip_ms))
        }
    }

    /// Returns the time from sending a request at `_at` to the engine reading it. `fresh`: the request is the first of
    /// its connection.
    #[must_use]
    pub fn request_delay(&self, _at: UnixMicros, fresh: bool) -> Duration {
        let half = self.round_trip / 2;
        if fresh { half + self.round_trip } else { half }
    }

    /// Returns the time that opening a connection at `_at` takes.
    #[must_use]
    pub fn handshake(&self, _at: UnixMicros) -> Duration {
        self.round_trip
    }

    /// Returns the time from a write of the engine at `_at` to the router reading it.
    #[must_use]
    pub fn answer_delay(&self, _at: UnixMicros) -> Duration {
        self.round_trip / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_exchange_takes_one_round_trip_and_a_fresh_one_two() {
        let link = SimulatedLink::new(37.0).unwrap();
        let now = UnixMicros(0);
        assert_eq!(link.request_delay(now, false) + link.answer_delay(now), Duration::from_millis(37));
        assert_eq!(link.request_delay(now, true) + link.answer_delay(now), Duration::from_millis(74));
    }

    #[test]
    fn impossible_round_trips_are_refused() {
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e12] {
            assert!(SimulatedLink::new(bad).is_err(), "{bad}");
        }
    }
}
