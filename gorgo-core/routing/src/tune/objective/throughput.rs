//! Tokens generated per second of request time, to be maximised: the score is its negative.
//!
//! Arrivals alone determine how many tokens a fleet generates per second of the clock, so that would compare nothing.
//! Tokens per second of request time show how fast the requests of an arm were answered.

use super::{ObjectiveKind, single::SingleStatistic};
use crate::tune::cohort::Statistic;

pub(super) const KIND: ObjectiveKind = ObjectiveKind {
    kind: "throughput",
    unit: "tokens/s",
    summary: "tokens per second of request time, maximised",
    params: &[],
    build: |_| Ok(Box::new(SingleStatistic { statistics: &[Statistic::TokensPerSecond], sign: -1.0 })),
};
