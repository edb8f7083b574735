//! Median time to first token, ms.
//!
//! The median: blind to the tail.

use super::{ObjectiveKind, single::SingleStatistic};
use crate::tune::cohort::Statistic;

pub(super) const KIND: ObjectiveKind = ObjectiveKind {
    kind: "ttft-p50",
    unit: "ms",
    summary: "median time to first token",
    params: &[],
    build: |_| Ok(Box::new(SingleStatistic { statistics: &[Statistic::TtftP50], sign: 1.0 })),
};
