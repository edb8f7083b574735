//! Tokens generated per second of request time, to be maximised: the score is its negative.
//!
//! Arrivals alone decide how many tokens a fleet makes per second of the clock, so that would compare nothing; how fast
//! the requests of an arm get theirs does.

use super::{ObjectiveKind, single::Single};
use crate::tune::cohort::Statistic;

pub(super) const KIND: ObjectiveKind = ObjectiveKind {
    kind: "throughput",
    unit: "tokens/s",
    summary: "tokens per second of request time, maximised",
    params: &[],
    build: |_| Ok(Box::new(Single { statistics: &[Statistic::TokensPerSecond], sign: -1.0 })),
};
