//! 99th percentile of end-to-end time, adjusted for answer length, ms.
//!
//! Nothing is decided on fewer than 100 samples per arm.

use super::{ObjectiveKind, single::SingleStatistic};
use crate::tune::cohort::Statistic;

pub(super) const KIND: ObjectiveKind = ObjectiveKind {
    kind: "e2e-p99",
    unit: "ms",
    summary: "99th percentile of end-to-end time, adjusted for answer length",
    params: &[],
    build: |_| Ok(Box::new(SingleStatistic { statistics: &[Statistic::E2eP99], sign: 1.0 })),
};
