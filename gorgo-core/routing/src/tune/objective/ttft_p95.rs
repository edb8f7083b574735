//! 95th percentile of time to first token, ms.
//!
//! The paper's objective. Alone it is blind to saturation: prefer `ttft-e2e`, or a concentration constraint beside it.
//! 2,000 and more samples are needed to see 20 % of it.

use super::{ObjectiveKind, single::Single};
use crate::tune::cohort::Statistic;

pub(super) const KIND: ObjectiveKind = ObjectiveKind {
    kind: "ttft-p95",
    unit: "ms",
    summary: "95th percentile of time to first token",
    params: &[],
    build: |_| Ok(Box::new(Single { statistics: &[Statistic::TtftP95], sign: 1.0 })),
};
