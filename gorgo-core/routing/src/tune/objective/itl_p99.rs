//! 99th percentile of the requests' mean token gaps, ms.
//!
//! Nothing is decided on fewer than 100 samples per arm.

use super::{ObjectiveKind, single::SingleStatistic};
use crate::tune::cohort::Statistic;

pub(super) const KIND: ObjectiveKind = ObjectiveKind {
    kind: "itl-p99",
    unit: "ms",
    summary: "99th percentile of the requests' mean token gaps",
    params: &[],
    build: |_| Ok(Box::new(SingleStatistic { statistics: &[Statistic::ItlP99], sign: 1.0 })),
};
