//! Detection of lasting changes: a Page–Hinkley test on the part of the incumbent's TTFT that the size of the requests
//! does not explain.
//!
//! Residuals of ln TTFT are averaged over 64 samples, since single ones are noise; the first twenty means define what
//! is normal. After that the test sums deviations of more than half a standard deviation above (and below) normal; a
//! sum that rises by more than twelve from its lowest value is a lasting change.

use super::cohort::count;
use super::sample::TuningSample;

const BATCH: usize = 64;
const TRAINING: usize = 20;
const TOLERATED: f64 = 0.5;
const LIMIT: f64 = 12.0;

/// State of the test.
#[derive(Debug, Clone, Default)]
pub(super) struct DriftDetector {
    /// Samples of the current batch: size, ln TTFT.
    batch: Vec<(f64, f64)>,
    /// Sums for the slope on size, over training batches: squared deviations, and their products with those of ln TTFT.
    sums: (f64, f64),
    /// Batch means of the training: size, ln TTFT.
    training: Vec<(f64, f64)>,
    normal: Option<DriftBaseline>,
}

#[derive(Debug, Clone, Copy)]
struct DriftBaseline {
    slope: f64,
    level: f64,
    deviation: f64,
    rise: f64,
    fall: f64,
}

impl DriftDetector {
    /// Forgets everything, because a change of weights changes what is normal.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Adds a sample of the incumbent. Returns true on a lasting change; then the test learns anew what is normal.
    pub(super) fn observe(&mut self, sample: &TuningSample) -> bool {
        let Some(ttft) = sample.ttft_ms.filter(|ttft| *ttft > 0.0) else { return false };
        self.batch.push((sample.size, ttft.ln()));
        if self.batch.len() < BATCH {
            return false;
        }
        let batch = std::mem::take(&mut self.batch);
        let n = count(batch.len());
        let mean_of = |part: fn(&(f64, f64)) -> f64| batch.iter().map(part).sum::<f64>() / n;
        let (x, y) = (mean_of(|one| one.0), mean_of(|one| one.1));
        let Some(normal) = &mut self.normal else {
            // Deviations within the batch only: differences between batches may be the drift itself.
            for (size, ttft) in &batch {
                self.sums.0 += (size - x) * (size - x);
                self.sums.1 += (size - x) * (ttft - y);
            }
            self.training.push((x, y));
            self.learn();
            return false;
        };
        // In standard deviations, so that one limit fits every fleet.
        let off = (y - normal.slope * x - normal.level) / normal.deviation;
        // Small deviations are deducted, so that noise pulls both sums back to 0.
        normal.rise = (normal.rise + off - TOLERATED).max(0.0);
        normal.fall = (normal.fall - off - TOLERATED).max(0.0);
        let changed = normal.rise > LIMIT || normal.fall > LIMIT;
        if changed {
            self.reset();
        }
        changed
    }

    fn learn(&mut self) {
        if self.training.len() < TRAINING {
            return;
        }
        let slope = if self.sums.0 > 1e-9 { self.sums.1 / self.sums.0 } else { 0.0 };
        let left: Vec<f64> = self.training.iter().map(|(x, y)| y - slope * x).collect();
        let n = count(left.len());
        let level = left.iter().sum::<f64>() / n;
        let variance = left.iter().map(|one| (one - level).powi(2)).sum::<f64>() / (n - 1.0);
        // A floor for the deviation: twenty nearly equal means must not make every batch an outlier.
        self.normal = Some(DriftBaseline { slope, level, deviation: variance.sqrt().max(1e-3), rise: 0.0, fall: 0.0 });
    }
}
