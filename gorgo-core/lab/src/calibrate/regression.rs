//! Linear regression that is robust against outliers: Huber weights on relative residuals, by iteratively reweighted
//! least squares; and the Theil–Sen median of slopes.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Maximum number of columns of a model.
pub(super) const COLUMNS: usize = 16;
/// Huber's constant: 95 % as efficient as least squares if errors are normally distributed.
const HUBER: f64 = 1.345;
/// Median absolute deviation × this = standard deviation, if errors are normally distributed.
const MAD_TO_SD: f64 = 1.4826;

/// Rows of regressors with their targets.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DesignMatrix {
    columns: usize,
    /// Values, row by row.
    values: Vec<f64>,
    targets: Vec<f64>,
}

impl DesignMatrix {
    /// Creates an empty design; `columns` is at most [`COLUMNS`].
    pub(super) fn new(columns: usize) -> Self {
        Self { columns: columns.clamp(1, COLUMNS), values: Vec::new(), targets: Vec::new() }
    }

    /// Adds a row; `values` has one number per column.
    pub(super) fn push(&mut self, values: &[f64], target: f64) {
        let row = values.iter().copied().chain(std::iter::repeat(0.0)).take(self.columns);
        self.values.extend(row);
        self.targets.push(target);
    }

    pub(super) fn rows(&self) -> usize {
        self.targets.len()
    }

    pub(super) fn targets(&self) -> &[f64] {
        &self.targets
    }

    /// Returns the prediction of these coefficients for each row.
    pub(super) fn predicted(&self, coefficients: &[f64]) -> impl Iterator<Item = f64> {
        self.values
            .chunks_exact(self.columns)
            .map(move |row| row.iter().zip(coefficients).map(|(value, coefficient)| value * coefficient).sum())
    }

    /// Fits the coefficients; each row counts as often as `counts` gives. Fewer rounds are needed from a good `start`.
    /// A column without any value gets 0.
    pub(super) fn fit(&self, counts: &[f64], start: Option<&[f64]>, rounds: usize) -> Vec<f64> {
        let typical = median(self.targets.clone()).unwrap_or(1.0).max(1e-9);
        let mut coefficients = match start {
            Some(start) => start.to_vec(),
            None => self.least_squares(counts),
        };
        let mut weights = vec![0.0; self.rows()];
        for _ in 0..rounds {
            // Residuals are relative to the prediction, but to at least a tenth of a typical value: small predictions
            // are not exact enough to divide by.
            let scales: Vec<f64> = self.predicted(&coefficients).map(|value| value.max(typical / 10.0)).collect();
            let residuals: Vec<f64> = self
                .predicted(&coefficients)
                .zip(&self.targets)
                .zip(&scales)
                .map(|((value, target), scale)| (target - value) / scale)
                .collect();
            let deviation = median(residuals.iter().map(|residual| residual.abs()).collect()).unwrap_or(0.0);
            // The deviation is 0 if more than half of the rows fit exactly; a limit of 0 would make their weights NaN.
            let limit = (HUBER * MAD_TO_SD * deviation).max(1e-9);
            for (position, weight) in weights.iter_mut().enumerate() {
                let huber = (limit / residuals[position].abs()).min(1.0);
                // Dividing by the scale squared makes the least squares below minimise relative residuals.
                *weight = counts[position] * huber / scales[position].powi(2);
            }
            coefficients = self.least_squares(&weights);
        }
        coefficients
    }

    /// Solves weighted least squares by the normal equations, with columns scaled to unit size.
    fn least_squares(&self, weights: &[f64]) -> Vec<f64> {
        // Fixed arrays instead of vectors: a fit with intervals calls this hundreds of times.
        let n = self.columns;
        let mut products = [[0.0_f64; COLUMNS]; COLUMNS];
        let mut sums = [0.0_f64; COLUMNS];
        for ((row, target), weight) in self.values.chunks_exact(n).zip(&self.targets).zip(weights) {
            for (i, value) in row.iter().enumerate() {
                let weighted = weight * value;
                sums[i] += weighted * target;
                for (j, other) in row.iter().enumerate().take(i + 1) {
                    products[i][j] += weighted * other;
                }
            }
        }
        // Columns differ by orders of magnitude (1 beside thousands of tokens); scaled ones are well conditioned.
        let sizes: Vec<f64> = (0..n).map(|i| products[i][i].sqrt()).collect();
        // Scale in place; only the lower half is used.
        for i in 0..n {
            for j in 0..=i {
                products[i][j] =
                    if sizes[i] > 0.0 && sizes[j] > 0.0 { products[i][j] / sizes[i] / sizes[j] } else { 0.0 };
            }
            // A small ridge: it makes the coefficient of an empty column 0 and keeps collinear columns solvable.
            products[i][i] += 1e-9;
            sums[i] = if sizes[i] > 0.0 { sums[i] / sizes[i] } else { 0.0 };
        }
        let mut solution = solve(&mut products, &sums, n);
        for (coefficient, size) in solution.iter_mut().zip(&sizes) {
            *coefficient = if *size > 0.0 { *coefficient / size } else { 0.0 };
        }
        solution
    }
}

/// Solves by Cholesky decomposition; the lower half of `matrix` is overwritten with the factor.
fn solve(matrix: &mut [[f64; COLUMNS]; COLUMNS], sums: &[f64; COLUMNS], n: usize) -> Vec<f64> {
    for i in 0..n {
        for j in 0..=i {
            let inner: f64 = (0..j).map(|k| matrix[i][k] * matrix[j][k]).sum();
            let left = matrix[i][j] - inner;
            matrix[i][j] = if i == j { left.max(1e-15).sqrt() } else { left / matrix[j][j] };
        }
    }
    // Forward substitution, then backward.
    let mut solution = vec![0.0; n];
    for i in 0..n {
        let inner: f64 = (0..i).map(|k| matrix[i][k] * solution[k]).sum();
        solution[i] = (sums[i] - inner) / matrix[i][i];
    }
    for i in (0..n).rev() {
        let inner: f64 = (i + 1..n).map(|k| matrix[k][i] * solution[k]).sum();
        solution[i] = (solution[i] - inner) / matrix[i][i];
    }
    solution
}

/// Returns the median (the upper one of two); `None` if there are no values.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    let (_, value, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    Some(*value)
}

/// Returns the median of the slopes between random pairs of points that lie at least `apart` from each other; `None`
/// if there are fewer than 100 such pairs.
pub(super) fn theil_sen(points: &[(f64, f64)], apart: f64, seed: u64) -> Option<f64> {
    const PAIRS: usize = 50_000;
    if points.len() < 2 {
        return None;
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    // A sample of pairs instead of all n² / 2: the median of 50,000 slopes is exact enough.
    let mut slopes = Vec::new();
    for _ in 0..PAIRS {
        let (a, b) = (points[random.random_range(0..points.len())], points[random.random_range(0..points.len())]);
        if (a.0 - b.0).abs() >= apart {
            slopes.push((a.1 - b.1) / (a.0 - b.0));
        }
    }
    if slopes.len() < 100 { None } else { median(slopes) }
}
