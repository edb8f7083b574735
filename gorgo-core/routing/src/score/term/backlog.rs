//! Waiting: the prefill work that this router has sent to a replica and that a request sent now would wait for, ms.
//!
//! Reads `backlog_ms` (`feature::backlog`, a virtual clock corrected by each first token).

use crate::model::{Candidates, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "backlog",
    unit: Some(Unit::Millis),
    summary: "prefill work ahead of the request at the replica, by a virtual clock",
    spreads: true,
    params: &[],
    build: |_, _| Ok(Box::new(BacklogTerm)),
};

#[derive(Debug)]
struct BacklogTerm;

impl CostTerm for BacklogTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::BACKLOG
    }

    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        for (signal, backlog) in out.iter_mut().zip(&candidates.backlog_ms) {
            *signal = Some(*backlog);
        }
    }
}
