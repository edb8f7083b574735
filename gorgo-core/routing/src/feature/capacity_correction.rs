//! How large each replica's cache really is, as a multiple of what is believed: the index is a mirror of it, and one of
//! the wrong size promises what was evicted, or does not know what is there.
//!
//! ×0.97 whenever the engine had less than 70 % of a predicted hit that was at least half the prompt and had long not
//! been used; ×1.01 whenever a hit among the least recently used of a full mirror was confirmed. Other misses say nothing
//! of size: an engine with hybrid attention has nothing of a prompt that merely begins like another, and no engine evicts
//! what was used a moment ago; taken for evictions, they would shrink the mirror until hits are lost. Where no capacity is known at all, the steps start from what the mirror holds at the
//! first miss. Source: design study, section 3, "Mirror capacity".

use crate::model::ReplicaId;

const SHRINK: f64 = 0.97;
const GROW: f64 = 1.01;
/// Below this share of what was predicted it was a miss.
const MISSED: f64 = 0.7;
/// Shorter promises say nothing: a chat template is cached everywhere.
const LEAST_TOKENS: u32 = 256;
/// The engine's own figure is never that wrong.
const FACTORS: [f64; 2] = [0.05, 4.0];

/// One finding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Finding {
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Tokens that the index promised.
    pub predicted: u32,
    /// Tokens that the engine had.
    pub actual: u32,
    /// Whether they had not been used for at least half the time that the mirror reaches back.
    pub old: bool,
    /// Whether they were among the least recently used of a full mirror.
    pub near_tail: bool,
}

/// The multiples of all replicas.
#[derive(Debug, Clone)]
pub struct Mirror {
    factors: Vec<f64>,
}

impl Mirror {
    /// For a fleet of `replicas`: sizes are believed.
    #[must_use]
    pub fn new(replicas: usize) -> Self {
        Self { factors: vec![1.0; replicas] }
    }

    /// Takes in a finding. Gives back the step to take, if any: the mirror becomes so many times as large.
    pub fn record(&mut self, replica: ReplicaId, finding: Finding) -> Option<f64> {
        if finding.predicted < LEAST_TOKENS {
            return None;
        }
        let missed = f64::from(finding.actual) < MISSED * f64::from(finding.predicted);
        let continues = u64::from(finding.predicted) * 2 >= u64::from(finding.prompt);
        let step = match missed {
            true if finding.old && continues => SHRINK,
            false if finding.near_tail => GROW,
            _ => return None,
        };
        let factor = &mut self.factors[replica.index()];
        let before = *factor;
        *factor = (before * step).clamp(FACTORS[0], FACTORS[1]);
        (*factor != before).then_some(step)
    }

    /// Goes on from the multiple that an earlier run found.
    ///
    /// # Errors
    /// What cannot be; nothing changes then.
    pub fn go_on_from(&mut self, replica: ReplicaId, factor: f64) -> Result<(), &'static str> {
        if !(FACTORS[0]..=FACTORS[1]).contains(&factor) {
            return Err("a multiple of the cache's size is out of its range");
        }
        *self.factors.get_mut(replica.index()).ok_or("it is of a replica that is not there")? = factor;
        Ok(())
    }

    /// How many times as large as believed.
    #[must_use]
    pub fn factor(&self, replica: ReplicaId) -> f64 {
        self.factors[replica.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: ReplicaId = ReplicaId(0);

    fn finding(predicted: u32, actual: u32, near_tail: bool) -> Finding {
        Finding { prompt: 1_000, predicted, actual, old: true, near_tail }
    }

    #[test]
    fn misses_that_say_nothing_of_size_leave_it() {
        let mut mirror = Mirror::new(1);
        let recent = Finding { old: false, ..finding(1_000, 0, false) };
        let begins_alike = Finding { prompt: 2_001, ..finding(1_000, 0, false) };
        assert_eq!((mirror.record(R, recent), mirror.record(R, begins_alike)), (None, None));
        assert_eq!(mirror.factor(R), 1.0);
    }

    #[test]
    fn misses_shrink_it_and_late_hits_let_it_grow() {
        let mut mirror = Mirror::new(2);
        assert_eq!(mirror.record(R, finding(1_000, 699, false)), Some(0.97));
        assert_eq!(mirror.record(R, finding(1_000, 700, false)), None);
        assert_eq!(mirror.record(R, finding(1_000, 700, true)), Some(1.01));
        assert_eq!(mirror.record(R, finding(255, 0, true)), None);
        assert!((mirror.factor(R) - 0.97 * 1.01).abs() < 1e-12);
        assert_eq!(mirror.factor(ReplicaId(1)), 1.0);
    }

    #[test]
    fn within_bounds() {
        let mut mirror = Mirror::new(1);
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
