//! Smoothed TTFT observed at each replica, ms (the `latency` term, `least-latency`).
//!
//! Only requests that ended well with a token count: an engine that rejects everything in 2 ms must not look fast.
//! Failures are for health checks to judge. Before the first sample, and when the last one is too old, the value is
//! unknown and the term's `unknown` rule decides, so that a replica that was slow once is not avoided forever.

use super::decaying_mean::DecayingMean;
use crate::model::{Candidates, ReplicaId, RequestOutcome, UnixMicros};

/// Age in half-lives beyond which the newest sample no longer counts and the mean is unknown.
const FORGOTTEN_HALF_LIVES: f64 = 16.0;

/// Smoothed TTFT of all replicas.
#[derive(Debug, Clone)]
pub struct TtftAverages {
    replicas: Vec<DecayingMean>,
    half_life_ms: f64,
}

impl TtftAverages {
    /// Creates the means of a fleet of `replicas`. `half_life_ms`: age at which a sample counts half.
    #[must_use]
    pub fn new(replicas: usize, half_life_ms: f64) -> Self {
        Self { replicas: vec![DecayingMean::default(); replicas], half_life_ms }
    }

    /// Records how a request ended at a replica.
    pub fn record(&mut self, at: UnixMicros, replica: ReplicaId, ending: &RequestOutcome) {
        if let Some(ttft_ms) = ending.ttft_ms.filter(|ms| ending.completed && ms.is_finite() && *ms >= 0.0) {
            self.replicas[replica.index()].push(at, ttft_ms, self.half_life_ms);
        }
    }

    /// Fills `latency_ms`.
    pub fn fill(&self, at: UnixMicros, candidates: &mut Candidates) {
        for (row, replica) in candidates.replica.iter().enumerate() {
            let observed = &self.replicas[replica.index()];
            // The decaying mean itself never changes with time, only by samples, so its age is checked here.
            let remembered = at.millis_since(observed.newest()) <= FORGOTTEN_HALF_LIVES * self.half_life_ms;
            candidates.latency_ms[row] = observed.mean().filter(|_| remembered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: ReplicaId = ReplicaId(0);

    fn at(ms: u64) -> UnixMicros {
        UnixMicros(1_000_000_000 + ms * 1_000)
    }

    fn read(latency: &TtftAverages, ms: u64) -> Option<f64> {
        let mut candidates = Candidates::default();
        candidates.reset(1, 0);
        latency.fill(at(ms), &mut candidates);
        candidates.latency_ms[0]
    }

    fn ended(ttft_ms: Option<f64>, completed: bool) -> RequestOutcome {
        RequestOutcome { ttft_ms, completed, ..RequestOutcome::default() }
    }

    #[test]
    fn unknown_then_smoothed_then_forgotten() {
        let mut latency = TtftAverages::new(1, 10_000.0);
        assert_eq!(read(&latency, 0), None);
        latency.record(at(0), R, &ended(Some(300.0), true));
        assert_eq!(read(&latency, 0), Some(300.0));
        latency.record(at(10_000), R, &ended(Some(600.0), true));
        assert!((read(&latency, 10_000).unwrap() - 500.0).abs() < 1e-9);
        assert!(read(&latency, 170_000).is_some());
        assert_eq!(read(&latency, 170_001), None);
    }

    #[test]
    fn failing_fast_is_not_being_fast() {
        let mut latency = TtftAverages::new(1, 10_000.0);
        for ending in [ended(Some(2.0), false), ended(None, false), ended(None, true), ended(Some(f64::NAN), true)] {
            latency.record(at(0), R, &ending);
        }
        assert_eq!(read(&latency, 0), None);
        latency.record(at(1), R, &ended(Some(400.0), true));
        latency.record(at(2), R, &ended(Some(2.0), false));
        assert_eq!(read(&latency, 2), Some(400.0));
    }
}
