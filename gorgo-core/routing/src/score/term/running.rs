//! Running requests by the engine's last report, updated by what this router sent and saw end since; or with
//! `as_reported` not updated, as in the routers whose baselines need it.
//!
//! Reads `engine_running`, `inflight_since_report`: between two reports every decision of a burst would see the same old
//! number. Unknown where the engine does not report it or the last report is too old.

use crate::model::{Candidates, ParamSpec, ParamType, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "running",
    unit: Some(Unit::Requests),
    summary: "running requests by the engine's last report",
    spreads: true,
    params: &[ParamSpec {
        name: "as_reported",
        ty: ParamType::Bool { default: false },
        unit: "",
        help: "use the report as it is, without the requests sent and ended since",
    }],
    build: |params, _| Ok(Box::new(RunningTerm { as_reported: params.bool("as_reported") })),
};

#[derive(Debug)]
struct RunningTerm {
    as_reported: bool,
}

impl CostTerm for RunningTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::REPORT.union(RequiredFacts::LOAD)
    }

    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        for (row, signal) in out.iter_mut().enumerate() {
            *signal = candidates.running(row, self.as_reported);
        }
    }
}
