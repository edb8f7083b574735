//! 95th percentile of end-to-end time, adjusted for answer length, ms.
//!
//! Reflects saturation, which TTFT alone does not.

use super::{ObjectiveKind, single::SingleStatistic};
use crate::tune::cohort::Statistic;

pub(super) const KIND: ObjectiveKind = ObjectiveKind {
    kind: "e2e-p95",
    unit: "ms",
    summary: "95th percentile of end-to-end time, adjusted for answer length",
    params: &[],
    build: |_| Ok(Box::new(SingleStatistic { statistics: &[Statistic::E2eP95], sign: 1.0 })),
};
