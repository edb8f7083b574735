//! Round trip between the router and each replica, ms, as a request on a warm connection sees it.
//!
//! The probe on its own warm connection is the reference. The kernel's estimate for live connections (`TCP_INFO`) is
//! fresher and free, but is used only if its minimum lies within 20 % + 2 ms of the probe's minimum. Otherwise
//! something in between (a proxy, a load balancer, a simulated link) terminates TCP, and the kernel measures the way to
//! that. A lost probe counts as the timeout, since leaving losses out would make a dying link look good.

use std::collections::VecDeque;

use super::decaying_mean::DecayingMean;
use crate::model::{Candidates, FleetEvent, ReplicaId, RttSource, UnixMicros, quantile};

/// Number of probes for the quantile and the minimum: about a minute at the default interval of 2 s.
const WINDOW_PROBES: usize = 32;
/// Quantile that is kept as `rtt_p95_ms`.
const QUANTILE: f64 = 0.95;
/// Relative tolerance between the kernel's minimum and the probe's, as a share of the probe's.
const KERNEL_TOLERANCE_SHARE: f64 = 0.20;
/// Absolute tolerance that is added to it, ms.
const KERNEL_TOLERANCE_MS: f64 = 2.0;

/// Round trips of all replicas.
#[derive(Debug, Clone)]
pub struct RoundTrips {
    replicas: Vec<ReplicaRtt>,
    half_life_ms: f64,
    timeout_ms: f64,
}

/// State of the link to one replica.
#[derive(Debug, Clone, Default)]
struct ReplicaRtt {
    probes: DecayingMean,
    /// Last probes, ms, losses as the timeout; oldest first.
    window: VecDeque<f64>,
    /// Quantile, computed when a probe arrives because every decision reads it.
    p95_ms: Option<f64>,
    /// True when the last probe was lost; no kernel estimate is used then.
    lost: bool,
    kernel: DecayingMean,
    kernel_min_ms: f64,
}

impl RoundTrips {
    /// Creates the state of a fleet of `replicas`. `half_life_ms`: age at which a measurement counts half;
    /// `timeout_ms`: value of a lost probe.
    #[must_use]
    pub fn new(replicas: usize, half_life_ms: f64, timeout_ms: f64) -> Self {
        Self { replicas: vec![ReplicaRtt::default(); replicas], half_life_ms, timeout_ms }
    }

    /// Applies probes and kernel estimates; other events have no effect. Figures that are negative or not finite are
    /// are ignored.
    pub fn apply(&mut self, event: &FleetEvent) {
        match *event {
            FleetEvent::Probe { replica, at, rtt_ms } => {
                let (half_life_ms, timeout_ms) = (self.half_life_ms, self.timeout_ms);
                self.link(replica).probe(at, rtt_ms, half_life_ms, timeout_ms);
            }
            FleetEvent::KernelRtt { replica, at, smoothed_ms, min_ms } => {
                if plausible(smoothed_ms) && plausible(min_ms) {
                    let half_life_ms = self.half_life_ms;
                    let link = self.link(replica);
                    link.kernel.push(at, smoothed_ms, half_life_ms);
                    link.kernel_min_ms = min_ms;
                }
            }
            // Losses while the replica was away say nothing about the link; a probe follows at once. Without losses the
            // history is kept: it may come from an earlier run, or from before a short interruption.
            FleetEvent::Up { replica } => {
                let timeout_ms = self.timeout_ms;
                let link = self.link(replica);
                if link.window.iter().any(|ms| *ms >= timeout_ms) {
                    *link = ReplicaRtt::default();
                }
            }
            FleetEvent::Report { .. }
            | FleetEvent::Models { .. }
            | FleetEvent::Down { .. }
            | FleetEvent::Restarted { .. } => {}
        }
    }

    fn link(&mut self, replica: ReplicaId) -> &mut ReplicaRtt {
        &mut self.replicas[replica.index()]
    }

    /// Fills `rtt_ms`, `rtt_p95_ms` and `rtt_source`. `None` before the first probe: the kernel alone is not trusted.
    /// Figures need no expiry: each probe comes back or is lost, so they are renewed while probing goes on.
    pub fn fill(&self, at: UnixMicros, candidates: &mut Candidates) {
        for row in 0..candidates.len() {
            let link = &self.replicas[candidates.replica[row].index()];
            let (rtt_ms, source) = link.smoothed_ms(at, self.half_life_ms);
            candidates.rtt_ms[row] = rtt_ms;
            candidates.rtt_p95_ms[row] = link.p95_ms;
            candidates.rtt_source[row] = source;
        }
    }

    /// Round trip to one replica, ms; `None` before the first probe.
    #[must_use]
    pub fn current_ms(&self, at: UnixMicros, replica: ReplicaId) -> Option<f64> {
        self.replicas[replica.index()].smoothed_ms(at, self.half_life_ms).0
    }
}

impl ReplicaRtt {
    fn probe(&mut self, at: UnixMicros, rtt_ms: Option<f64>, half_life_ms: f64, timeout_ms: f64) {
        let value = match rtt_ms {
            Some(rtt_ms) if plausible(rtt_ms) => rtt_ms,
            // An implausible figure is a fault of the clock, not a loss: ignore the probe altogether.
            Some(_) => return,
            None => timeout_ms,
        };
        self.lost = rtt_ms.is_none();
        self.probes.push(at, value, half_life_ms);
        if self.window.len() == WINDOW_PROBES {
            self.window.pop_front();
        }
        self.window.push_back(value);
        let mut sorted: Vec<f64> = self.window.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        self.p95_ms = quantile(&sorted, QUANTILE);
    }

    fn smoothed_ms(&self, at: UnixMicros, half_life_ms: f64) -> (Option<f64>, RttSource) {
        let Some(probed_ms) = self.probes.mean() else { return (None, RttSource::Unknown) };
        // A kernel estimate is preferred while it is fresh, the link is not losing probes, and both measure the same
        // link.
        if let Some(kernel_ms) = self.kernel.mean()
            && !self.lost
            && at.millis_since(self.kernel.newest()) <= half_life_ms
            && self.kernel_agrees()
        {
            return (Some(kernel_ms), RttSource::Kernel);
        }
        (Some(probed_ms), RttSource::Probe)
    }

    fn kernel_agrees(&self) -> bool {
        let least_ms = self.window.iter().copied().fold(f64::INFINITY, f64::min);
        (self.kernel_min_ms - least_ms).abs() <= KERNEL_TOLERANCE_SHARE * least_ms + KERNEL_TOLERANCE_MS
    }
}

fn plausible(ms: f64) -> bool {
    ms.is_finite() && ms >= 0.0
}

#[cfg(test)]
mod tests;
