//! Random numbers of the kinds that workloads are made of, all from one seeded generator.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, Gamma, StandardNormal, Zipf};

/// The generator.
pub(super) struct Draw(ChaCha8Rng);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// From 0 to below 1.
    pub(super) fn uniform(&mut self) -> f64 {
        self.0.random()
    }

    /// A whole number from `least` to `most`.
    pub(super) fn between(&mut self, least: u32, most: u32) -> u32 {
        self.0.random_range(least..=most.max(least))
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        let one: f64 = Exp1.sample(&mut self.0);
        one * mean
    }

    /// `exp(mu + sigma·z)`: the median is `exp(mu)`.
    pub(super) fn lognormal(&mut self, mu: f64, sigma: f64) -> f64 {
        let z: f64 = StandardNormal.sample(&mut self.0);
        (mu + sigma * z).exp()
    }

    /// Gamma with that mean and coefficient of variation; the mean itself where there is no variation.
    pub(super) fn gamma(&mut self, mean: f64, cv: f64) -> f64 {
        let shape = 1.0 / (cv * cv);
        match Gamma::new(shape, mean / shape) {
            Ok(gamma) if cv > 1e-6 => gamma.sample(&mut self.0),
            _ => mean,
        }
    }

    /// Gamma of mean 1 and that shape.
    pub(super) fn unit_gamma(&mut self, shape: f64) -> f64 {
        Gamma::new(shape, 1.0 / shape).map_or(1.0, |gamma| gamma.sample(&mut self.0))
    }

    /// A rank from 0 to below `count` whose probability falls as `1 / (rank + 1)^exponent`.
    pub(super) fn zipf(&mut self, count: u32, exponent: f64) -> u32 {
        let rank = Zipf::new(f64::from(count.max(1)), exponent).map_or(1.0, |zipf| zipf.sample(&mut self.0));
        whole(rank).clamp(1, count.max(1)) - 1
    }
}

/// The nearest whole number from 0 up.
pub(super) fn whole(value: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; NaN gives 0")]
    let nearest = value.round() as u32;
    nearest
}

/// Seconds from 0 up → whole µs.
pub(super) fn micros(secs: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; NaN gives 0")]
    let micros = (secs * 1e6).round() as u64;
    micros
}

/// Whole µs → ms, exact to the three decimals that a trace file has.
pub(super) fn millis(micros: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "below 2^53 for 285 years")]
    let millis = micros as f64 / 1e3;
    millis
}
