//! Generation throughput, tokens per second, by the engine's last report. A *lower* cost for the busier engine needs a
//! negative weight; that is the baseline `throughput` of the literature, which packs load instead of spreading it.
//!
//! Reads `engine_throughput`. Unknown where the engine does not report it or the last report is too old.

use crate::model::{Candidates, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "throughput",
    unit: Some(Unit::TokensPerSecond),
    summary: "generation throughput by the engine's last report; a negative weight prefers more",
    spreads: false,
    params: &[],
    build: |_, _| Ok(Box::new(ThroughputTerm)),
};

#[derive(Debug)]
struct ThroughputTerm;

impl CostTerm for ThroughputTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::REPORT
    }

    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        out.copy_from_slice(&candidates.engine_throughput);
    }
}
