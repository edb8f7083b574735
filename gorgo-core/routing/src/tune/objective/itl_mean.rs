//! Mean gap between two tokens, ms.
//!
//! The requests' mean gaps, averaged: the fluency of answers.

use super::{ObjectiveKind, single::SingleStatistic};
use crate::tune::cohort::Statistic;

pub(super) const KIND: ObjectiveKind = ObjectiveKind {
    kind: "itl-mean",
    unit: "ms",
    summary: "mean gap between two tokens",
    params: &[],
    build: |_| Ok(Box::new(SingleStatistic { statistics: &[Statistic::ItlMean], sign: 1.0 })),
};
