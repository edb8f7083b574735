//! Search space: a box of weights, in logarithms.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Weight that may change.
#[derive(Debug, Clone, PartialEq)]
pub struct TunedWeight {
    /// Slot of its term in the policy.
    pub slot: usize,
    /// Name of its term.
    pub name: String,
    /// Initial value.
    pub init: f64,
    /// Smallest allowed value, above 0.
    pub min: f64,
    /// Largest allowed value.
    pub max: f64,
}

impl TunedWeight {
    /// Nearest allowed weight.
    #[must_use]
    pub const fn clamp(&self, weight: f64) -> f64 {
        weight.max(self.min).min(self.max)
    }
}

/// All weights that may change, in slot order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SearchSpace {
    /// Dimensions of the box.
    pub dimensions: Vec<TunedWeight>,
}

impl SearchSpace {
    /// Initial weights.
    #[must_use]
    pub fn init(&self) -> Vec<f64> {
        self.dimensions.iter().map(|dimension| dimension.init).collect()
    }

    /// Point `exp(ln x + step)`, clipped to the box.
    #[must_use]
    pub fn step_from(&self, from: &[f64], step: &[f64]) -> Vec<f64> {
        let each = self.dimensions.iter().zip(from).zip(step);
        each.map(|((dimension, from), step)| dimension.clamp((from.ln() + step).exp())).collect()
    }

    /// Returns true if `point` has one weight per dimension, each within its bounds.
    #[must_use]
    pub fn contains(&self, point: &[f64]) -> bool {
        point.len() == self.dimensions.len()
            && self.dimensions.iter().zip(point).all(|(dimension, x)| *x >= dimension.min && *x <= dimension.max)
    }

    /// Dimensions whose weight lies within 1 % of a bound.
    pub fn at_bound<'a>(&'a self, point: &'a [f64]) -> impl Iterator<Item = (&'a TunedWeight, f64)> {
        let near = |a: f64, b: f64| (a / b).ln().abs() < 0.01;
        let each = self.dimensions.iter().zip(point.iter().copied());
        each.filter(move |(dimension, x)| near(*x, dimension.min) || near(*x, dimension.max))
    }
}

/// Random numbers for step `step` of a seed: independent of earlier draws, so that a resumed search draws the same as
/// one that was never interrupted.
#[must_use]
pub fn step_rng(seed: u64, step: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(step);
    random
}

/// Uniform random number in (0, 1).
#[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
pub fn uniform(random: &mut ChaCha8Rng) -> f64 {
    // Half a step off zero, because `normal` takes the logarithm.
    ((random.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

/// Standard normal random number (Box–Muller transform).
pub fn normal(random: &mut ChaCha8Rng) -> f64 {
    let (radius, angle) = (uniform(random), uniform(random));
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}
