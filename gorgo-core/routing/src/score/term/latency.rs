//! Smoothed time to first token of requests to each replica, ms.
//!
//! Reads `latency_ms` (`feature::latency`): measured by this router, not the response time of a metrics page. Unknown
//! until a request has completed there.

use crate::model::{Candidates, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "latency",
    unit: Some(Unit::Millis),
    summary: "smoothed time to first token observed at the replica",
    spreads: true,
    params: &[],
    build: |_, _| Ok(Box::new(LatencyTerm)),
};

#[derive(Debug)]
struct LatencyTerm;

impl CostTerm for LatencyTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::LATENCY
    }

    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        out.copy_from_slice(&candidates.latency_ms);
    }
}
