//! Delay after which a second replica is tried because a stream's first byte is late: `hedge.after` × the 99th
//! percentile predicted for the request, at least `hedge.min_ms`.
//!
//! The prediction: the router predicts a mean time to the first token from learned rates. The ratios of observed to
//! predicted times of the whole fleet's last requests are kept; their 99th percentile times this request's prediction
//! is its 99th percentile. Without a prediction: the 99th percentile of the replica's last streams. Without either: one
//! second. Only streams are hedged: when a whole response is due depends on how much will be generated, which nobody
//! knows.

use std::time::Duration;

use parking_lot::Mutex;

use gorgo_routing::config::HedgeConfig;
use gorgo_routing::model::ReplicaId;

/// Number of recent samples that are kept.
const WINDOW: usize = 128;
/// Samples required before a percentile is used: with fewer, the 99th is the worst of a handful.
const MIN_SAMPLES: usize = 32;
/// Value if nothing is known, ms.
const UNKNOWN_MS: f64 = 1_000.0;

/// Observed times to the first byte.
#[derive(Debug)]
pub(in crate::edge) struct HedgeDelays {
    hedge: HedgeConfig,
    /// Times per replica, ms.
    waits: Vec<Mutex<RollingP99>>,
    /// Observed ÷ predicted, of all replicas.
    ratios: Mutex<RollingP99>,
}

#[derive(Debug, Default)]
struct RollingP99 {
    values: Vec<f64>,
    next: usize,
    p99: Option<f64>,
}

impl RollingP99 {
    fn push(&mut self, value: f64) {
        if self.values.len() < WINDOW {
            self.values.push(value);
        } else {
            self.values[self.next] = value;
        }
        self.next = (self.next + 1) % WINDOW;
        let count = self.values.len();
        // Computed once per sample, not once per request: most requests read it, few change it.
        self.p99 = (count >= MIN_SAMPLES).then(|| {
            let mut values = self.values.clone();
            let rank = (count * 99).div_ceil(100);
            *values.select_nth_unstable_by(rank - 1, f64::total_cmp).1
        });
    }
}

impl HedgeDelays {
    pub(in crate::edge) fn new(hedge: HedgeConfig, replicas: usize) -> Self {
        Self { hedge, waits: (0..replicas).map(|_| Mutex::default()).collect(), ratios: Mutex::default() }
    }

    /// Records that a stream's first byte arrived after `waited_ms`, where `predicted_ms` was predicted.
    pub(in crate::edge) fn observe(&self, replica: ReplicaId, waited_ms: f64, predicted_ms: Option<f64>) {
        if let Some(waits) = self.waits.get(replica.index()) {
            waits.lock().push(waited_ms);
        }
        if let Some(predicted_ms) = predicted_ms.filter(|ms| *ms > 0.0) {
            self.ratios.lock().push(waited_ms / predicted_ms);
        }
    }

    /// Delay for the first byte from this replica before another one is tried.
    pub(in crate::edge) fn delay(&self, replica: ReplicaId, predicted_ms: Option<f64>) -> Duration {
        let by_ratio = predicted_ms.and_then(|ms| self.ratios.lock().p99.map(|ratio| ratio * ms));
        let p99_ms = by_ratio.or_else(|| self.waits.get(replica.index()).and_then(|waits| waits.lock().p99));
        // `try_from` fails for what is not finite or too large; both mean that the wait never ends.
        let wait = Duration::try_from_secs_f64(self.hedge.after * p99_ms.unwrap_or(UNKNOWN_MS) / 1e3);
        wait.unwrap_or(Duration::MAX).max(Duration::from_millis(self.hedge.min_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: ReplicaId = ReplicaId(0);

    fn ms(patience: &HedgeDelays, predicted: Option<f64>) -> u128 {
        patience.delay(R, predicted).as_millis()
    }

    #[test]
    fn unknown_then_the_replicas_own_then_the_prediction() {
        let patience = HedgeDelays::new(HedgeConfig { after: 4.0, min_ms: 500 }, 1);
        assert_eq!(ms(&patience, Some(50.0)), 4_000);
        for _ in 0..MIN_SAMPLES - 1 {
            patience.observe(R, 200.0, None);
        }
        assert_eq!(ms(&patience, None), 4_000, "too few");
        patience.observe(R, 300.0, None);
        assert_eq!(ms(&patience, Some(50.0)), 1_200);
        for _ in 0..WINDOW {
            patience.observe(R, 100.0, Some(50.0));
        }
        assert_eq!(ms(&patience, Some(1_000.0)), 8_000, "twice its prediction, four times");
        assert_eq!(ms(&patience, None), 500, "at least min_ms");
    }

    #[test]
    fn rubbish_predictions_make_no_panic() {
        let patience = HedgeDelays::new(HedgeConfig { after: 4.0, min_ms: 500 }, 1);
        (0..MIN_SAMPLES).for_each(|_| patience.observe(R, f64::INFINITY, Some(0.0)));
        assert_eq!(patience.delay(R, None), Duration::MAX);
        assert_eq!(patience.delay(ReplicaId(9), None).as_millis(), 4_000);
    }
}
