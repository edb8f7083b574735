//! One statistic and nothing else; its sign gives the direction that is better.

use super::Objective;
use crate::tune::cohort::{Statistic, StatisticValues};

#[derive(Debug)]
pub(super) struct SingleStatistic {
    /// Exactly one statistic.
    pub(super) statistics: &'static [Statistic],
    /// 1 to minimise, -1 to maximise.
    pub(super) sign: f64,
}

impl Objective for SingleStatistic {
    fn statistics(&self) -> &[Statistic] {
        self.statistics
    }

    fn score(&self, own: &StatisticValues, _reference: &StatisticValues) -> f64 {
        self.statistics.iter().map(|statistic| self.sign * own[*statistic as usize]).sum()
    }
}
