//! Notices that the world changed: a Page–Hinkley test on what the incumbent's TTFT is beyond what the size of the
//! requests explains.
//!
//! Residuals of ln TTFT are averaged by 64, since single ones are noise; the first twenty means say what is normal. After
//! that the sums of what lies more than half a standard deviation above (and below) normal are kept; one that rises by
//! more than twelve from its lowest is a lasting change.

use super::cohort::count;
use super::sample::Sample;

const BATCH: usize = 64;
const TRAINING: usize = 20;
const TOLERATED: f64 = 0.5;
const LIMIT: f64 = 12.0;

/// What is remembered of the incumbent's samples.
#[derive(Debug, Clone, Default)]
pub(super) struct Drift {
    /// Samples of the batch: size, ln TTFT.
    batch: Vec<(f64, f64)>,
    /// Sums for the slope on size, over training batches: deviations squared, and times those of ln TTFT.
    sums: (f64, f64),
    /// Batch means of the training: size, ln TTFT.
    training: Vec<(f64, f64)>,
    normal: Option<Normal>,
}

#[derive(Debug, Clone, Copy)]
struct Normal {
    slope: f64,
    level: f64,
    deviation: f64,
    rise: f64,
    fall: f64,
}

impl Drift {
    /// Forgets all: after a change of weights normal is something else.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Takes in a sample of the incumbent. True: the world changed; what is normal is learned anew.
    pub(super) fn take(&mut self, sample: &Sample) -> bool {
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
            for (size, ttft) in &batch {
                self.sums.0 += (size - x) * (size - x);
                self.sums.1 += (size - x) * (ttft - y);
            }
            self.training.push((x, y));
            self.learn();
            return false;
        };
        let off = (y - normal.slope * x - normal.level) / normal.deviation;
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
        self.normal = Some(Normal { slope, level, deviation: variance.sqrt().max(1e-3), rise: 0.0, fall: 0.0 });
    }
}
