//! 99th percentile of time to first token, ms.
//!
//! Nothing is decided on fewer than 100 samples per arm.

use super::{ObjectiveKind, single::SingleStatistic};
use crate::tune::cohort::Statistic;

pub(super) const KIND: ObjectiveKind = ObjectiveKind {
    kind: "ttft-p99",
    unit: "ms",
    summary: "99th percentile of time to first token",
    params: &[],
    build: |_| Ok(Box::new(SingleStatistic { statistics: &[Statistic::TtftP99], sign: 1.0 })),
};
