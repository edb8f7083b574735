//! Two budgets: retries as a share of requests, and bytes of request bodies in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use gorgo_routing::model::UnixMicros;

/// Window over which retries are counted, s.
const WINDOW_SECS: u64 = 10;
/// Retries that are always allowed per window, so that a router with little traffic can retry at all.
const MIN_RETRIES: f64 = 10.0;

/// Limits retries to a share of the requests of the last ten seconds, so that a failing fleet does not get every
/// request twice.
#[derive(Debug)]
pub(super) struct RetryBudget {
    share: f64,
    seconds: Mutex<[Second; 10]>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Second {
    second: u64,
    requests: u32,
    retries: u32,
}

impl RetryBudget {
    pub(super) fn new(share: f64) -> Self {
        Self { share, seconds: Mutex::new([Second::default(); 10]) }
    }

    /// Counts a request.
    pub(super) fn record_request(&self, at: UnixMicros) {
        let mut seconds = self.seconds.lock();
        slot(&mut seconds, at).requests += 1;
    }

    /// Returns `true`, and counts the retry, if one more fits.
    pub(super) fn try_retry(&self, at: UnixMicros) -> bool {
        let mut seconds = self.seconds.lock();
        let now = at.0 / 1_000_000;
        // Slots are reused every ten seconds, so one may hold an older second; after a step of the clock, even a later
        // one.
        let live = seconds.iter().filter(|second| second.second + WINDOW_SECS > now && second.second <= now);
        let (requests, retries) =
            live.fold((0_u32, 0_u32), |(requests, retries), s| (requests + s.requests, retries + s.retries));
        // With little traffic the share alone would never allow a retry.
        let fits = f64::from(retries) + 1.0 <= (self.share * f64::from(requests)).max(MIN_RETRIES);
        if fits {
            slot(&mut seconds, at).retries += 1;
        }
        fits
    }
}

fn slot(seconds: &mut [Second; 10], at: UnixMicros) -> &mut Second {
    let now = at.0 / 1_000_000;
    let index = usize::try_from(now % WINDOW_SECS).unwrap_or(0);
    let second = &mut seconds[index];
    // Left over from ten seconds ago.
    if second.second != now {
        *second = Second { second: now, ..Second::default() };
    }
    second
}

/// Budget for the bytes of all request bodies together.
#[derive(Debug)]
pub(super) struct ByteBudget {
    used: AtomicU64,
    limit: u64,
}

/// Bytes taken from the budget; released on drop.
#[derive(Debug)]
pub(super) struct BufferedBytes {
    budget: Arc<ByteBudget>,
    bytes: u64,
}

impl ByteBudget {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), limit })
    }

    /// Starts with nothing taken.
    pub(super) fn open(self: &Arc<Self>) -> BufferedBytes {
        BufferedBytes { budget: Arc::clone(self), bytes: 0 }
    }
}

impl BufferedBytes {
    /// Takes `bytes` more; returns `false` and takes nothing if that would exceed the budget.
    pub(super) fn try_grow(&mut self, bytes: u64) -> bool {
        // Added first and undone if over: a check before the addition would let two requests pass at once.
        let held = self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        if held.saturating_add(bytes) > self.budget.limit {
            self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.bytes += bytes;
        true
    }
}

impl Drop for BufferedBytes {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_requests() {
        let budget = RetryBudget::new(0.10);
        let at = UnixMicros(50_000_000);
        let quiet = (0..100).filter(|_| budget.try_retry(at)).count();
        assert_eq!(quiet, 10);
        for _ in 0..500 {
            budget.record_request(at);
        }
        let busy = (0..100).filter(|_| budget.try_retry(UnixMicros(55_000_000))).count();
        assert_eq!(busy, 40);
        // Ten seconds later everything has expired.
        let later = (0..100).filter(|_| budget.try_retry(UnixMicros(65_000_000))).count();
        assert_eq!(later, 10);
    }

    #[test]
    fn bytes_are_given_back() {
        let budget = ByteBudget::new(100);
        let mut first = budget.open();
        assert!(first.try_grow(60) && first.try_grow(40));
        let mut second = budget.open();
        assert!(!second.try_grow(1));
        drop(first);
        assert!(second.try_grow(100));
        assert_eq!(budget.used.load(Ordering::Relaxed), 100);
    }
}
