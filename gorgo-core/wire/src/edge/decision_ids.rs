//! Decision ids: milliseconds since the epoch × 2^20 + a counter. Increasing and unique per database, even if the clock
//! steps back between two runs.

use std::sync::atomic::{AtomicI64, Ordering};

use gorgo_routing::model::{DecisionId, UnixMicros};

/// Bits of the counter within one millisecond.
const COUNTER_BITS: u32 = 20;

/// Generates ids, each above all before it.
#[derive(Debug)]
pub struct DecisionIds {
    last: AtomicI64,
}

impl DecisionIds {
    /// Ids above `last`, the highest one in the database (0 for an empty one).
    #[must_use]
    pub const fn above(last: DecisionId) -> Self {
        Self { last: AtomicI64::new(last.0) }
    }

    /// Next id. More than 2^20 ids in a millisecond run into the next one, which keeps them increasing.
    pub fn next(&self, now: UnixMicros) -> DecisionId {
        // Limited before the shift, which would otherwise overflow for an absurd clock.
        let millis = i64::try_from(now.0 / 1_000).unwrap_or(i64::MAX).min(i64::MAX >> COUNTER_BITS);
        let from_clock = millis << COUNTER_BITS;
        let advance = |last: i64| from_clock.max(last.saturating_add(1));
        let previous = self.last.update(Ordering::Relaxed, Ordering::Relaxed, advance);
        DecisionId(advance(previous))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_rise_and_tell_the_time() {
        let ids = DecisionIds::above(DecisionId(0));
        let at = UnixMicros(1_700_000_000_123_456);
        let (first, second) = (ids.next(at), ids.next(at));
        assert_eq!(first.0 >> COUNTER_BITS, 1_700_000_000_123);
        assert_eq!(second.0, first.0 + 1);
    }

    #[test]
    fn a_clock_that_steps_back_does_not_matter() {
        let last = DecisionId(1_700_000_000_123 << COUNTER_BITS | 5);
        let ids = DecisionIds::above(last);
        assert_eq!(ids.next(UnixMicros(1_600_000_000_000_000)).0, last.0 + 1);
        assert_eq!(ids.next(UnixMicros(0)).0, last.0 + 2);
        assert!(ids.next(UnixMicros(u64::MAX)).0 > 0);
    }

    #[test]
    fn threads_never_share_an_id() {
        let ids = DecisionIds::above(DecisionId(0));
        let mut all: Vec<i64> = Vec::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..5_000).map(|_| ids.next(UnixMicros(1)).0).collect::<Vec<_>>()))
                .collect();
            for thread in threads {
                all.extend(thread.join().unwrap());
            }
        });
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 20_000);
    }
}
