//! Units, the router's time, and the rounding that makes stored numbers exact.

use std::fmt;
use std::time::Duration;

/// Unit of a number. A term declares one for its signal; weights turn signals into a policy's cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Milliseconds.
    Millis,
    /// Prompt tokens.
    Tokens,
    /// Requests.
    Requests,
    /// A fraction, 0 to 1.
    Share,
    /// Tokens per second.
    TokensPerSecond,
    /// No unit at all: a hash, a turn, a constant.
    One,
}

impl Unit {
    /// All units, in the order the documentation lists them.
    pub const ALL: [Self; 6] =
        [Self::Millis, Self::Tokens, Self::Requests, Self::Share, Self::TokensPerSecond, Self::One];

    /// The unit's name in configuration files and in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Millis => "ms",
            Self::Tokens => "tokens",
            Self::Requests => "requests",
            Self::Share => "share",
            Self::TokensPerSecond => "tokens/s",
            Self::One => "1",
        }
    }

    /// The unit of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name() == name)
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A moment on the router's clock: microseconds since the Unix epoch.
///
/// The clock is read once from the wall at start and runs monotonically from there, so within a run
/// it never steps back; the simulator's virtual clock may start at any value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixMicros(pub u64);

impl UnixMicros {
    /// Time elapsed since `earlier`; zero when `earlier` is later.
    #[must_use]
    pub const fn elapsed_since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Milliseconds since `earlier`; zero when `earlier` is later.
    #[must_use]
    pub fn millis_since(self, earlier: Self) -> f64 {
        self.elapsed_since(earlier).as_secs_f64() * 1e3
    }

    /// The moment `span` later.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }

    /// Microseconds since the epoch as the database stores them.
    #[must_use]
    pub fn micros(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }
}

/// Source of time: the wall clock in `serve`, events in the simulator and in tests.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> UnixMicros;
}

/// Largest magnitude that [`to_milli`] keeps: 2^53 thousandths, the integers an `f64` holds exactly.
const MILLI_LIMIT: f64 = 9_007_199_254_740_992.0;

/// A number in thousandths of its unit, as the database stores it. Not finite numbers become 0;
/// callers void those before they come here.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "clamped to ±2^53 on the same line")]
pub fn to_milli(value: f64) -> i64 {
    if value.is_finite() { (value * 1e3).round().clamp(-MILLI_LIMIT, MILLI_LIMIT) as i64 } else { 0 }
}

/// Marks in rows the signal and the cost of a term that gave none in a decision; NULL in the database.
pub const VOID_MILLI: i64 = i64::MIN;

/// The number that [`to_milli`] stored. Decisions are made with `from_milli(to_milli(x))`, so that a
/// decision repeated from its stored row is equal.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "to_milli keeps to integers that f64 holds exactly")]
pub fn from_milli(milli: i64) -> f64 {
    milli as f64 / 1e3
}
