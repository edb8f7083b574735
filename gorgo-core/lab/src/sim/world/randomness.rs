//! Random numbers by key instead of by order: the number for (seed, stream, index) is the same regardless of what was
//! drawn before it, so that two policies meet the same network.

use gorgo_routing::model::mix_bits;

/// Mixes the bits of a number one to one (a step of splitmix64).
pub(super) const fn mix(number: u64) -> u64 {
    mix_bits(number.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

/// Returns the random bits for a key: a stream, and an index in it.
pub(super) const fn bits(seed: u64, stream: u64, number: u64) -> u64 {
    mix(mix(mix(seed) ^ stream) ^ number)
}

/// Converts bits to a number from 0 to below 1.
#[expect(clippy::cast_precision_loss, reason = "53 bits, which f64 holds exactly")]
pub(super) const fn to_unit_interval(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// Converts bits to a standard normal number (Box–Muller transform of two numbers made from them).
pub(super) fn standard_normal(bits: u64) -> f64 {
    // `1 - unit` is above 0, where the logarithm is finite.
    let radius = (-2.0 * (1.0 - to_unit_interval(bits)).ln()).sqrt();
    radius * (std::f64::consts::TAU * to_unit_interval(mix(bits))).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_normal_has_mean_0_and_deviation_1() {
        let drawn: Vec<f64> = (0..20_000).map(|number| standard_normal(bits(1, 2, number))).collect();
        let mean = drawn.iter().sum::<f64>() / 20_000.0;
        let variance = drawn.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
    }

    #[test]
    fn places_differ_by_each_of_their_numbers() {
        let drawn = [bits(1, 2, 3), bits(2, 1, 3), bits(1, 3, 2), bits(0, 2, 3)];
        assert!((1..4).all(|at| !drawn[..at].contains(&drawn[at])), "{drawn:?}");
        assert!((0.0..1.0).contains(&to_unit_interval(u64::MAX)));
    }
}
