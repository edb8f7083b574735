//! Random numbers with the distributions that workloads need, all from one seeded generator.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, Gamma, StandardNormal, Zipf};

/// Seeded generator of a workload's random numbers.
pub(super) struct WorkloadRng(ChaCha8Rng);

impl WorkloadRng {
    pub(super) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Draws a number from 0 to below 1.
    pub(super) fn uniform(&mut self) -> f64 {
        self.0.random()
    }

    /// Draws a whole number from `least` to `most`.
    pub(super) fn between(&mut self, least: u32, most: u32) -> u32 {
        // The bounds are user-set parameters; an empty range would panic.
        self.0.random_range(least..=most.max(least))
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        let one: f64 = Exp1.sample(&mut self.0);
        one * mean
    }

    /// Draws `exp(mu + sigma·z)`; the median is `exp(mu)`.
    pub(super) fn lognormal(&mut self, mu: f64, sigma: f64) -> f64 {
        let z: f64 = StandardNormal.sample(&mut self.0);
        (mu + sigma * z).exp()
    }

    /// Draws from a gamma distribution with this mean and coefficient of variation; returns the mean itself if there is
    /// no variation.
    pub(super) fn gamma(&mut self, mean: f64, cv: f64) -> f64 {
        // A gamma distribution of shape k has the coefficient of variation 1/√k.
        let shape = 1.0 / (cv * cv);
        match Gamma::new(shape, mean / shape) {
            Ok(gamma) if cv > 1e-6 => gamma.sample(&mut self.0),
            _ => mean,
        }
    }

    /// Draws from a gamma distribution of mean 1 and this shape.
    pub(super) fn unit_gamma(&mut self, shape: f64) -> f64 {
        Gamma::new(shape, 1.0 / shape).map_or(1.0, |gamma| gamma.sample(&mut self.0))
    }

    /// Draws a rank from 0 to below `count` whose probability falls as `1 / (rank + 1)^exponent`.
    pub(super) fn zipf(&mut self, count: u32, exponent: f64) -> u32 {
        let rank = Zipf::new(f64::from(count.max(1)), exponent).map_or(1.0, |zipf| zipf.sample(&mut self.0));
        whole(rank).clamp(1, count.max(1)) - 1
    }
}

/// Rounds to the nearest whole number, at least 0.
pub(super) fn whole(value: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; NaN gives 0")]
    let nearest = value.round() as u32;
    nearest
}

/// Converts seconds, at least 0, to whole µs.
pub(super) fn micros(secs: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; NaN gives 0")]
    let micros = (secs * 1e6).round() as u64;
    micros
}

/// Converts whole µs to ms, exact to the three decimals that a trace file has.
pub(super) fn millis(micros: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "below 2^53 for 285 years")]
    let millis = micros as f64 / 1e3;
    millis
}
