//! Real cache size of each replica, as a multiple of what is believed. The index mirrors the cache, and a mirror of the
//! wrong size either promises what was evicted or does not know what is there.
//!
//! ×0.97 whenever the engine had less than 70 % of a predicted hit that was at least half the prompt and had not been
//! used for long; ×1.01 whenever a hit among the least recently used blocks of a full mirror was confirmed. Other
//! misses show nothing about size: an engine with hybrid attention reuses nothing of a prompt that merely begins like
//! another, and no engine evicts what was used a moment ago. Counted as evictions, they would shrink the mirror until
//! hits are lost. Where no capacity is known at all, the steps start from what the mirror holds at the first miss.

use crate::model::ReplicaId;

const SHRINK: f64 = 0.97;
const GROW: f64 = 1.01;
/// Share of the predicted tokens below which a hit counts as missed.
const MISSED: f64 = 0.7;
/// Fewest predicted tokens that count: a chat template is cached everywhere, so short matches prove nothing.
const LEAST_TOKENS: u32 = 256;
/// Range of the multiple: the engine's own figure is never further off.
const FACTORS: [f64; 2] = [0.05, 4.0];

/// Outcome of one predicted hit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HitObservation {
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Tokens that the index promised.
    pub predicted: u32,
    /// Tokens that the engine had.
    pub actual: u32,
    /// True when they had not been used for at least half the time that the mirror reaches back.
    pub long_unused: bool,
    /// True when they were among the least recently used of a full mirror.
    pub near_eviction: bool,
}

/// Multiples of all replicas.
#[derive(Debug, Clone)]
pub struct CapacityCorrection {
    factors: Vec<f64>,
}

impl CapacityCorrection {
    /// Creates the multiples of a fleet of `replicas`, all 1.
    #[must_use]
    pub fn new(replicas: usize) -> Self {
        Self { factors: vec![1.0; replicas] }
    }

    /// Records an observation. Returns the factor by which the mirror must be scaled, if any.
    pub fn record(&mut self, replica: ReplicaId, finding: HitObservation) -> Option<f64> {
        // Too short to tell anything, hit or miss.
        if finding.predicted < LEAST_TOKENS {
            return None;
        }
        let missed = f64::from(finding.actual) < MISSED * f64::from(finding.predicted);
        let continues = u64::from(finding.predicted) * 2 >= u64::from(finding.prompt);
        let step = match missed {
            // Shrinking needs evidence of eviction, growing needs evidence at the tail; all else is ambiguous.
            true if finding.long_unused && continues => SHRINK,
            false if finding.near_eviction => GROW,
            _ => return None,
        };
        let factor = &mut self.factors[replica.index()];
        // At the end of the range nothing changes, and the caller must not scale the index either.
        let before = *factor;
        *factor = (before * step).clamp(FACTORS[0], FACTORS[1]);
        (*factor != before).then_some(step)
    }

    /// Resumes from the multiple that an earlier run found.
    ///
    /// # Errors
    /// The multiple is out of its range, or the fleet has no such replica; nothing changes then.
    pub fn restore(&mut self, replica: ReplicaId, factor: f64) -> Result<(), &'static str> {
        if !(FACTORS[0]..=FACTORS[1]).contains(&factor) {
            return Err("a multiple of the cache's size is out of its range");
        }
        *self.factors.get_mut(replica.index()).ok_or("it belongs to a replica that does not exist")? = factor;
        Ok(())
    }

    /// Real cache size as a multiple of the believed one.
    #[must_use]
    pub fn factor(&self, replica: ReplicaId) -> f64 {
        self.factors[replica.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: ReplicaId = ReplicaId(0);

    fn finding(predicted: u32, actual: u32, near_tail: bool) -> HitObservation {
        HitObservation { prompt: 1_000, predicted, actual, long_unused: true, near_eviction: near_tail }
    }

    #[test]
    fn misses_that_say_nothing_of_size_leave_it() {
        let mut mirror = CapacityCorrection::new(1);
        let recent = HitObservation { long_unused: false, ..finding(1_000, 0, false) };
        let begins_alike = HitObservation { prompt: 2_001, ..finding(1_000, 0, false) };
        assert_eq!((mirror.record(R, recent), mirror.record(R, begins_alike)), (None, None));
        assert_eq!(mirror.factor(R), 1.0);
    }

    #[test]
    fn misses_shrink_it_and_late_hits_let_it_grow() {
        let mut mirror = CapacityCorrection::new(2);
        assert_eq!(mirror.record(R, finding(1_000, 699, false)), Some(0.97));
        assert_eq!(mirror.record(R, finding(1_000, 700, false)), None);
        assert_eq!(mirror.record(R, finding(1_000, 700, true)), Some(1.01));
        assert_eq!(mirror.record(R, finding(255, 0, true)), None);
        assert!((mirror.factor(R) - 0.97 * 1.01).abs() < 1e-12);
        assert_eq!(mirror.factor(ReplicaId(1)), 1.0);
    }

    #[test]
    fn within_bounds() {
        let mut mirror = CapacityCorrection::new(1);
        for _ in 0..1_000 {
            mirror.record(R, finding(1_000, 0, false));
        }
        assert_eq!((mirror.factor(R), mirror.record(R, finding(1_000, 0, false))), (0.05, None));
        for _ in 0..1_000 {
            mirror.record(R, finding(1_000, 1_000, true));
        }
        assert_eq!(mirror.factor(R), 4.0);
    }
}
