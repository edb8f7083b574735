//! 95th percentile of time to first token, ms.
//!
//! Objective of the GORGO paper. Alone it is blind to saturation: prefer `ttft-e2e`, or add a concentration constraint.
//! At least 2,000 samples are needed to detect a change of 20 %.

use super::{ObjectiveKind, single::SingleStatistic};
use crate::tune::cohort::Statistic;

pub(super) const KIND: ObjectiveKind = ObjectiveKind {
    kind: "ttft-p95",
    unit: "ms",
    summary: "95th percentile of time to first token",
    params: &[],
    build: |_| Ok(Box::new(SingleStatistic { statistics: &[Statistic::TtftP95], sign: 1.0 })),
};
