//! Mean time to first token, ms.
//!
//! The mean: a slow tail counts in proportion to how slow it is.

use super::{ObjectiveKind, single::SingleStatistic};
use crate::tune::cohort::Statistic;

pub(super) const KIND: ObjectiveKind = ObjectiveKind {
    kind: "ttft-mean",
    unit: "ms",
    summary: "mean time to first token",
    params: &[],
    build: |_| Ok(Box::new(SingleStatistic { statistics: &[Statistic::TtftMean], sign: 1.0 })),
};
