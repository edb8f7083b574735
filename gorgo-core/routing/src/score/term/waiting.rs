//! Waiting requests, by the engine's last report.
//!
//! Reads `engine_waiting`. Unknown where the engine does not report it or the last report is too old.

use crate::model::{Candidates, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "waiting",
    unit: Some(Unit::Requests),
    summary: "waiting requests by the engine's last report",
    spreads: true,
    params: &[],
    build: |_, _| Ok(Box::new(WaitingTerm)),
};

#[derive(Debug)]
struct WaitingTerm;

impl CostTerm for WaitingTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::REPORT
    }

    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        out.copy_from_slice(&candidates.engine_waiting);
    }
}
