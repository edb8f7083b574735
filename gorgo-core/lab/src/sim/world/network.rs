//! Network paths between router and replicas: a mean round trip with drift, spikes, and jitter from request to request.
//!
//! Drift is an Ornstein–Uhlenbeck process of the logarithm, corrected for its effect on the mean, so that the
//! configured round trip stays the mean. The defaults were fitted to the RTT series that the GORGO authors published
//! (σ 0.18 to 0.28, τ 2 to 2.5 min, spikes × 1.2 to 2, jitter 6 %). Frequency and length of spikes are not published
//! and are a guess.
//!
//! A request's round trip is fixed when it is sent; each direction takes half of it.

use std::time::Duration;

use serde::Deserialize;

use super::randomness::{bits, standard_normal, to_unit_interval};
use gorgo_routing::model::UnixMicros;

/// Bytes that a connection sends before it waits for the first acknowledgement: ten segments (RFC 6928).
const FIRST_WINDOW_BYTES: f64 = 14_600.0;
/// Random streams per path; the path's index is in the lower bits.
const DRIFT: u64 = 1 << 32;
const SPIKES: u64 = 2 << 32;
const SIZES: u64 = 3 << 32;
const REQUESTS: u64 = 4 << 32;
const PROBES: u64 = 5 << 32;
const SCRAPES: u64 = 6 << 32;

/// Behaviour of all network paths: `[network]` of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkModel {
    /// Standard deviation of the logarithm of the round trip because of drift; 0: none.
    pub drift_sigma: f64,
    /// Time constant of the drift, s.
    pub drift_secs: f64,
    /// Spikes per hour and path; 0: none.
    pub spikes_per_hour: f64,
    /// Mean length of a spike, s.
    pub spike_secs: f64,
    /// Smallest factor of a spike on the round trip.
    pub spike_least: f64,
    /// Largest factor of a spike on the round trip.
    pub spike_most: f64,
    /// Standard deviation of individual round trips around the current level, as a share of it.
    pub jitter: f64,
    /// Ratio of the round trip that a probe measures to that of requests. The probes of the published series measured
    /// 2.3 to 3 times too much.
    pub probe_factor: f64,
    /// Bandwidth for the upload of prompts, Mbit/s per request; 0: not modelled.
    pub upload_mbps: f64,
    /// Model TCP slow start for each upload: one more round trip per doubling of the window beyond ten segments.
    pub slow_start: bool,
}

impl Default for NetworkModel {
    fn default() -> Self {
        Self {
            drift_sigma: 0.22,
            drift_secs: 135.0,
            spikes_per_hour: 12.0,
            spike_secs: 20.0,
            spike_least: 1.2,
            spike_most: 2.0,
            jitter: 0.06,
            probe_factor: 1.0,
            upload_mbps: 0.0,
            slow_start: false,
        }
    }
}

impl NetworkModel {
    /// Returns paths that never change: each round trip is the mean.
    #[must_use]
    pub fn steady() -> Self {
        Self { drift_sigma: 0.0, spikes_per_hour: 0.0, jitter: 0.0, ..Self::default() }
    }

    /// Returns the first fault, if any: key and text.
    pub(super) fn invalid_reason(&self) -> Option<String> {
        let ranges = [
            ("drift_sigma", self.drift_sigma, 0.0, 2.0),
            ("drift_secs", self.drift_secs, 1.0, 1e6),
            ("spikes_per_hour", self.spikes_per_hour, 0.0, 3600.0),
            ("spike_secs", self.spike_secs, 0.1, 1e5),
            ("spike_least", self.spike_least, 0.1, 100.0),
            ("spike_most", self.spike_most, self.spike_least, 100.0),
            ("jitter", self.jitter, 0.0, 0.5),
            ("probe_factor", self.probe_factor, 0.1, 100.0),
            ("upload_mbps", self.upload_mbps, 0.0, 1e6),
        ];
        // NaN is in no range, so it is found too.
        let bad = ranges.iter().find(|(_, value, low, high)| !(*low..=*high).contains(value));
        bad.map(|(key, value, low, high)| format!("network.{key} is {value}; must be from {low} to {high}"))
    }
}

/// Network path to one replica.
#[derive(Debug)]
pub(super) struct NetworkPath {
    base_ms: f64,
    network: NetworkModel,
    seed: u64,
    replica_index: u64,
    start: UnixMicros,
    /// Factor on the base for each second since the start, computed as far as it was needed.
    levels: Vec<f64>,
    drift: f64,
    spike_left_secs: f64,
    spike: f64,
    /// Factor of active faults.
    pub(super) fault_factor: f64,
}

impl NetworkPath {
    pub(super) fn new(base_ms: f64, network: NetworkModel, seed: u64, place: u64, start: UnixMicros) -> Self {
        // Begins with the spread that the process has in the long run, so early requests meet no calmer network.
        let drift = network.drift_sigma * standard_normal(bits(seed, DRIFT | place, u64::MAX));
        let levels = Vec::new();
        Self {
            base_ms,
            network,
            seed,
            replica_index: place,
            start,
            levels,
            drift,
            spike_left_secs: 0.0,
            spike: 1.0,
            fault_factor: 1.0,
        }
    }

    /// Returns the mean round trip at a time, ms.
    pub(super) fn level_ms(&mut self, at: UnixMicros) -> f64 {
        let second = usize::try_from(at.elapsed_since(self.start).as_secs()).unwrap_or(usize::MAX - 1);
        // All seconds up to this one are computed in order, so that the level does not depend on when it is read.
        while self.levels.len() <= second {
            let level = self.next_level();
            self.levels.push(level);
        }
        self.base_ms * self.levels[second] * self.fault_factor
    }

    fn next_level(&mut self) -> f64 {
        let NetworkModel {
            drift_sigma: sigma, drift_secs, spikes_per_hour, spike_secs, spike_least, spike_most, ..
        } = self.network;
        let second = self.levels.len() as u64;
        // Exact step of 1 s of the Ornstein–Uhlenbeck process: it keeps its standard deviation at sigma.
        let kept = (-1.0 / drift_secs).exp();
        let push = sigma * (1.0 - kept * kept).sqrt();
        self.drift = self.drift * kept + push * standard_normal(bits(self.seed, DRIFT | self.replica_index, second));
        if self.spike_left_secs > 0.0 {
            self.spike_left_secs -= 1.0;
        // One spike at a time: a new one can begin only after the last one has ended.
        } else if to_unit_interval(bits(self.seed, SPIKES | self.replica_index, second)) < spikes_per_hour / 3600.0 {
            let drawn = bits(self.seed, SIZES | self.replica_index, second);
            self.spike = spike_least + (spike_most - spike_least) * to_unit_interval(drawn);
            // Exponentially distributed length; `mix` makes a second number from the bits that chose the size.
            self.spike_left_secs = -spike_secs * (1.0 - to_unit_interval(super::randomness::mix(drawn))).ln();
        }
        let spike = if self.spike_left_secs > 0.0 { self.spike } else { 1.0 };
        // The mean of a lognormal factor is exp(sigma²/2); dividing by it keeps the configured round trip the mean.
        (self.drift - sigma * sigma / 2.0).exp() * spike
    }

    /// Draws the round trip of a message sent now.
    fn drawn_ms(&mut self, at: UnixMicros, stream: u64, number: u64) -> f64 {
        // Drawn by number and not in sequence: a request meets the same jitter whichever policy routes it.
        let jitter = self.network.jitter * standard_normal(bits(self.seed, stream | self.replica_index, number));
        // The normal distribution has no lower bound, but a round trip has.
        self.level_ms(at) * (1.0 + jitter).max(0.5)
    }

    /// Returns the round trip of a request sent now, ms.
    pub(super) fn request_ms(&mut self, at: UnixMicros, request: usize) -> f64 {
        self.drawn_ms(at, REQUESTS, request as u64)
    }

    /// Returns the round trip that a probe sent now measures, ms.
    pub(super) fn probe_ms(&mut self, at: UnixMicros) -> f64 {
        // Probes have no index; their time of sending identifies them.
        self.drawn_ms(at, PROBES, at.0) * self.network.probe_factor
    }

    /// Returns the round trip of a request for the metrics page sent now, ms.
    pub(super) fn scrape_ms(&mut self, at: UnixMicros) -> f64 {
        self.drawn_ms(at, SCRAPES, at.0)
    }

    /// Returns the time that the upload of a body takes in addition to half a round trip, ms.
    pub(super) fn upload_ms(&self, rtt_ms: f64, body_bytes: f64) -> f64 {
        let NetworkModel { upload_mbps, slow_start, .. } = self.network;
        // 1 Mbit/s is 1,000 bits per ms.
        let wire = if upload_mbps > 0.0 { body_bytes * 8.0 / (upload_mbps * 1e3) } else { 0.0 };
        // The window doubles with each round trip: after n of them 2^n − 1 first windows have been acknowledged.
        let windows = if slow_start { (1.0 + body_bytes / FIRST_WINDOW_BYTES).log2().floor() } else { 0.0 };
        wire + windows * rtt_ms
    }
}

/// Converts ms to virtual time, in whole µs.
pub(super) fn micros(millis: f64) -> Duration {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped on the same line")]
    let micros = (millis.clamp(0.0, 1e12) * 1e3).round() as u64;
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> UnixMicros {
        UnixMicros(second * 1_000_000)
    }

    #[test]
    fn the_configured_round_trip_stays_about_the_mean_and_drift_has_its_spread() {
        let network = NetworkModel { spikes_per_hour: 0.0, ..NetworkModel::default() };
        let mut path = NetworkPath::new(100.0, network, 3, 1, UnixMicros(0));
        let levels: Vec<f64> = (0..200_000).map(|second| path.level_ms(at(second)).ln()).collect();
        let mean = levels.iter().map(|level| level.exp()).sum::<f64>() / 200_000.0;
        let middle = levels.iter().sum::<f64>() / 200_000.0;
        let sigma = (levels.iter().map(|level| (level - middle).powi(2)).sum::<f64>() / 200_000.0).sqrt();
        assert!((mean - 100.0).abs() < 3.0, "{mean}");
        assert!((sigma - 0.22).abs() < 0.02, "{sigma}");
    }

    #[test]
    fn spikes_take_their_share_of_time() {
        let network = NetworkModel { drift_sigma: 0.0, ..NetworkModel::default() };
        let mut path = NetworkPath::new(1.0, network, 3, 1, UnixMicros(0));
        let spiked = (0..200_000).filter(|second| path.level_ms(at(*second)) > 1.0).count();
        // 12 per hour of 20 s each, less those that would begin within another: about 6 %.
        assert!((9_000..15_000).contains(&spiked), "{spiked}");
    }

    #[test]
    fn asking_later_or_in_another_order_changes_nothing() {
        let network = NetworkModel::default();
        let (mut one, mut two) = (
            NetworkPath::new(50.0, network, 9, 0, UnixMicros(0)),
            NetworkPath::new(50.0, network, 9, 0, UnixMicros(0)),
        );
        let late = one.request_ms(at(500), 7);
        let _ = two.request_ms(at(3), 1);
        assert!((two.request_ms(at(500), 7) - late).abs() < f64::EPSILON);
        assert!((two.request_ms(at(500), 8) - late).abs() > 1e-6);
    }

    #[test]
    fn uploads_cost_bandwidth_and_windows_only_where_asked() {
        let with = |upload_mbps, slow_start| {
            let network = NetworkModel { upload_mbps, slow_start, ..NetworkModel::steady() };
            NetworkPath::new(100.0, network, 1, 1, UnixMicros(0)).upload_ms(100.0, 50_000.0)
        };
        assert!(with(0.0, false).abs() < 1e-9);
        assert!((with(4.0, false) - 100.0).abs() < 1e-9);
        assert!((with(0.0, true) - 200.0).abs() < 1e-9);
    }

    #[test]
    fn impossible_figures_are_named() {
        assert_eq!(NetworkModel::default().invalid_reason(), None);
        let text = NetworkModel { jitter: f64::NAN, ..NetworkModel::default() }.invalid_reason().unwrap();
        assert_eq!(text, "network.jitter is NaN; must be from 0 to 0.5");
        assert!(NetworkModel { spike_most: 1.0, ..NetworkModel::default() }.invalid_reason().is_some());
    }
}
