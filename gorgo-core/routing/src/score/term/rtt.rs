//! Network cost: the round trip to each replica on a warm connection, ms.
//!
//! Reads `rtt_ms` or `rtt_p95_ms` (`feature::rtt`). Source: GORGO paper, network term. A replica that was never
//! measured is unknown, never 0 ms: that would make it the cheapest.

use crate::model::{Candidates, ParamSpec, ParamType, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "rtt",
    unit: Some(Unit::Millis),
    summary: "round trip between router and replica on a warm connection",
    spreads: false,
    params: &[ParamSpec {
        name: "statistic",
        ty: ParamType::Text { default: Some("mean"), choices: &["mean", "p95"] },
        unit: "",
        help: "the smoothed round trip, or the 95th percentile of recent ones",
    }],
    build: |params, _| Ok(Box::new(RttTerm { tail: params.text("statistic") == Some("p95") })),
};

#[derive(Debug)]
struct RttTerm {
    tail: bool,
}

impl CostTerm for RttTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::RTT
    }

    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        out.copy_from_slice(if self.tail { &candidates.rtt_p95_ms } else { &candidates.rtt_ms });
    }
}
