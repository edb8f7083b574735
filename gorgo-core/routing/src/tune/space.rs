//! The box of weights that is searched, in logarithms.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// One weight that may move.
#[derive(Debug, Clone, PartialEq)]
pub struct Dimension {
    /// Its term's slot in the policy.
    pub slot: usize,
    /// Its term's name.
    pub name: String,
    /// Where it starts.
    pub init: f64,
    /// Smallest allowed, above 0.
    pub min: f64,
    /// Largest allowed.
    pub max: f64,
}

impl Dimension {
    /// The nearest allowed weight.
    #[must_use]
    pub const fn clip(&self, weight: f64) -> f64 {
        weight.max(self.min).min(self.max)
    }
}

/// All weights that may move, in slot order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Space {
    /// Each of them.
    pub dimensions: Vec<Dimension>,
}

impl Space {
    /// Where they start.
    #[must_use]
    pub fn init(&self) -> Vec<f64> {
        self.dimensions.iter().map(|dimension| dimension.init).collect()
    }

    /// `exp(ln x + step)` within the box.
    #[must_use]
    pub fn moved(&self, from: &[f64], step: &[f64]) -> Vec<f64> {
        let each = self.dimensions.iter().zip(from).zip(step);
        each.map(|((dimension, from), step)| dimension.clip((from.ln() + step).exp())).collect()
    }

    /// Whether these are one weight per dimension within its bounds.
    #[must_use]
    pub fn holds(&self, point: &[f64]) -> bool {
        point.len() == self.dimensions.len()
            && self.dimensions.iter().zip(point).all(|(dimension, x)| *x >= dimension.min && *x <= dimension.max)
    }

    /// The dimensions whose weight lies within 1 % of a bound.
    pub fn at_bound<'a>(&'a self, point: &'a [f64]) -> impl Iterator<Item = (&'a Dimension, f64)> {
        let near = |a: f64, b: f64| (a / b).ln().abs() < 0.01;
        let each = self.dimensions.iter().zip(point.iter().copied());
        each.filter(move |(dimension, x)| near(*x, dimension.min) || near(*x, dimension.max))
    }
}

/// The randomness of step `step` of a seed: the same whatever was drawn before, so that a resumed search draws what
/// the one that was cut would have drawn.
#[must_use]
pub fn randomness(seed: u64, step: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(step);
    random
}

/// A number in (0, 1).
#[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
pub fn uniform(random: &mut ChaCha8Rng) -> f64 {
    ((random.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

/// A standard normal number (Box and Muller).
pub fn normal(random: &mut ChaCha8Rng) -> f64 {
    let (radius, angle) = (uniform(random), uniform(random));
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}
