//! Round trip between the router and each replica, ms: what a request on a warm connection pays.
//!
//! The probe on its own warm connection is the truth. The kernel's estimate for live connections (`TCP_INFO`) is
//! fresher and free, but is believed only where its minimum lies within 20 % + 2 ms of the probe's minimum: else
//! something between (a proxy, a load balancer, a simulated link) terminates TCP, and the kernel measures the way to
//! that. A lost probe counts as the time-out, since leaving losses out would make a dying link look good.
//! Source: contract, "RTT"; the reference left time-outs out and averaged per sample.

use std::collections::VecDeque;

use super::decaying_mean::DecayingMean;
use crate::model::{At, Candidates, Event, ReplicaId, RttSource, quantile};

/// Probes the quantile and the minimum look back over: about a minute at the default interval of 2 s.
const WINDOW_PROBES: usize = 32;
/// The quantile kept as `rtt_p95_ms`.
const QUANTILE: f64 = 0.95;
/// How far the kernel's minimum may lie from the probe's: this share of the probe's …
const KERNEL_TOLERANCE_SHARE: f64 = 0.20;
/// … plus this, ms.
const KERNEL_TOLERANCE_MS: f64 = 2.0;

/// Round trips of all replicas.
#[derive(Debug, Clone)]
pub struct Rtt {
    replicas: Vec<Link>,
    half_life_ms: f64,
    timeout_ms: f64,
}

/// What is known of the way to one replica.
#[derive(Debug, Clone, Default)]
struct Link {
    probes: DecayingMean,
    /// The last probes, ms, losses as the time-out; oldest first.
    window: VecDeque<f64>,
    /// Computed when a probe arrives, read at every decision.
    p95_ms: Option<f64>,
    /// Whether the last probe was lost: then no kernel estimate may say otherwise.
    lost: bool,
    kernel: DecayingMean,
    kernel_min_ms: f64,
}

impl Rtt {
    /// For a fleet of `replicas`. `half_life_ms`: age at which a measurement counts half; `timeout_ms`: what a lost
    /// probe counts as.
    #[must_use]
    pub fn new(replicas: usize, half_life_ms: f64, timeout_ms: f64) -> Self {
        Self { replicas: vec![Link::default(); replicas], half_life_ms, timeout_ms }
    }

    /// Takes in probes and kernel estimates; other events are nothing to it. Figures that are not finite or negative
    /// are ignored.
    pub fn apply(&mut self, event: &Event) {
        match *event {
            Event::Probe { replica, at, rtt_ms } => {
                let (half_life_ms, timeout_ms) = (self.half_life_ms, self.timeout_ms);
                self.link(replica).probe(at, rtt_ms, half_life_ms, timeout_ms);
            }
            Event::KernelRtt { replica, at, smoothed_ms, min_ms } => {
                if plausible(smoothed_ms) && plausible(min_ms) {
                    let half_life_ms = self.half_life_ms;
                    let link = self.link(replica);
                    link.kernel.push(at, smoothed_ms, half_life_ms);
                    link.kernel_min_ms = min_ms;
                }
            }
            // What was lost while it was away says nothing about the way to it; a probe follows at once. What an earlier
            // run measured, and whatever came back, does.
            Event::Up { replica } => {
                let timeout_ms = self.timeout_ms;
                let link = self.link(replica);
                if link.window.iter().any(|ms| *ms >= timeout_ms) {
                    *link = Link::default();
                }
            }
            Event::Report { .. } | Event::Models { .. } | Event::Down { .. } | Event::Restarted { .. } => {}
        }
    }

    fn link(&mut self, replica: ReplicaId) -> &mut Link {
        &mut self.replicas[replica.index()]
    }

    /// Fills `rtt_ms`, `rtt_p95_ms`, `rtt_source`. `None` before the first probe: the kernel alone is not believed.
    /// The last figures stand while no probe comes; each probe comes back or is lost, so they cannot grow old unseen.
    pub fn read(&self, at: At, candidates: &mut Candidates) {
        for row in 0..candidates.len() {
            let link = &self.replicas[candidates.replica[row].index()];
            let (rtt_ms, source) = link.smoothed(at, self.half_life_ms);
            candidates.rtt_ms[row] = rtt_ms;
            candidates.rtt_p95_ms[row] = link.p95_ms;
            candidates.rtt_source[row] = source;
        }
    }

    /// The round trip to one replica, ms; `None` before the first probe.
    #[must_use]
    pub fn current_ms(&self, at: At, replica: ReplicaId) -> Option<f64> {
        self.replicas[replica.index()].smoothed(at, self.half_life_ms).0
    }
}

impl Link {
    fn probe(&mut self, at: At, rtt_ms: Option<f64>, half_life_ms: f64, timeout_ms: f64) {
        let value = match rtt_ms {
            Some(rtt_ms) if plausible(rtt_ms) => rtt_ms,
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

    fn smoothed(&self, at: At, half_life_ms: f64) -> (Option<f64>, RttSource) {
        let Some(probed_ms) = self.probes.mean() else { return (None, RttSource::Unknown) };
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
