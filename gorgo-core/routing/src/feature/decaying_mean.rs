//! Mean in which a sample's weight halves with each half-life of *time*, not after a number of samples: a burst moves
//! it no further than its samples deserve, and old samples do not stay fresh during a pause.

use crate::model::UnixMicros;

/// Σ wᵢ·xᵢ / Σ wᵢ with wᵢ = 2^(−age / half-life). Weights are relative, so the mean moves only with samples.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct DecayingMean {
    mean: f64,
    weight: f64,
    newest: UnixMicros,
}

impl DecayingMean {
    /// Adds one sample. A late sample is weighted by its age, so arrival order hardly matters.
    pub(super) fn push(&mut self, at: UnixMicros, value: f64, half_life_ms: f64) {
        let mut weight = 1.0;
        // `weight` is kept relative to the newest sample, so a newer one fades what is there …
        if at >= self.newest {
            self.weight *= decay(at.millis_since(self.newest), half_life_ms);
            self.newest = at;
        } else {
            // … and an older one enters already faded.
            weight = decay(self.newest.millis_since(at), half_life_ms);
        }
        self.weight += weight;
        // The weight underflows to 0 only for a very old sample into an empty mean; dividing would give NaN.
        if self.weight > 0.0 {
            self.mean += (value - self.mean) * weight / self.weight;
        }
    }

    /// Mean in the samples' unit; `None` before the first sample.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.weight > 0.0).then_some(self.mean)
    }

    /// Time of the newest sample.
    pub(super) const fn newest(&self) -> UnixMicros {
        self.newest
    }
}

fn decay(age_ms: f64, half_life_ms: f64) -> f64 {
    (-age_ms / half_life_ms).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> UnixMicros {
        UnixMicros(1_000_000_000 + ms * 1_000)
    }

    #[test]
    fn the_first_sample_is_the_mean() {
        let mut mean = DecayingMean::default();
        assert_eq!(mean.mean(), None);
        mean.push(at(0), 37.0, 4_000.0);
        assert_eq!(mean.mean(), Some(37.0));
    }

    #[test]
    fn a_sample_one_half_life_old_counts_half() {
        let mut mean = DecayingMean::default();
        mean.push(at(0), 10.0, 4_000.0);
        mean.push(at(4_000), 40.0, 4_000.0);
        // (0.5·10 + 1·40) / 1.5
        assert!((mean.mean().unwrap() - 30.0).abs() < 1e-9);
    }

    #[test]
    fn a_burst_moves_it_no_further_than_its_number() {
        let mut mean = DecayingMean::default();
        mean.push(at(0), 10.0, 4_000.0);
        for _ in 0..9 {
            mean.push(at(0), 20.0, 4_000.0);
        }
        assert!((mean.mean().unwrap() - 19.0).abs() < 1e-9);
    }

    #[test]
    fn a_late_sample_counts_by_its_age() {
        let (mut in_order, mut late) = (DecayingMean::default(), DecayingMean::default());
        in_order.push(at(0), 10.0, 1_000.0);
        in_order.push(at(500), 30.0, 1_000.0);
        late.push(at(500), 30.0, 1_000.0);
        late.push(at(0), 10.0, 1_000.0);
        assert!((in_order.mean().unwrap() - late.mean().unwrap()).abs() < 1e-9);
        assert_eq!(late.newest(), at(500));
    }

    #[test]
    fn a_pause_of_any_length_is_survived() {
        let mut mean = DecayingMean::default();
        mean.push(at(0), 10.0, 1.0);
        mean.push(UnixMicros(u64::MAX), 12.0, 1.0);
        assert_eq!(mean.mean(), Some(12.0));
    }
}
