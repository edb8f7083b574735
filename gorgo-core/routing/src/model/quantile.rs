//! Quantiles by nearest rank, `ceil(p·n)`: always a measured value, never one interpolated between two.

/// The value at the nearest rank of `p` among sorted values; `None` if there are none.
#[must_use]
pub fn quantile(sorted: &[f64], p: f64) -> Option<f64> {
    sorted.get(nearest_rank(p, sorted.len())).copied()
}

/// Position of the nearest rank of `p` among `count` sorted values, from 0; 0 if there are none.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, and it is clamped")]
pub fn nearest_rank(p: f64, count: usize) -> usize {
    ((p * count as f64).ceil() as usize).clamp(1, count.max(1)) - 1
}
