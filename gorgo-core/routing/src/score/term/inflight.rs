//! Requests in flight: this router's own at each replica, or with `reported` the larger of these and the engine's
//! running requests, which includes those of other routers.
//!
//! Reads `inflight` (`feature::load`), `engine_running` (`feature::report`), the latter updated by what this router
//! sent and saw end since, unless `as_reported`. Always known: without a fresh report, the router's own count is used.

use crate::model::{Candidates, ParamSpec, ParamType, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "inflight",
    unit: Some(Unit::Requests),
    summary: "this router's requests in flight at the replica",
    spreads: true,
    params: &[
        ParamSpec {
            name: "reported",
            ty: ParamType::Bool { default: false },
            unit: "",
            help: "use the engine's running requests where they are more",
        },
        ParamSpec {
            name: "as_reported",
            ty: ParamType::Bool { default: false },
            unit: "",
            help: "with `reported`: use the report as it is, without the requests sent and ended since",
        },
    ],
    build: |params, _| {
        Ok(Box::new(InflightTerm { reported: params.bool("reported"), as_reported: params.bool("as_reported") }))
    },
};

#[derive(Debug)]
struct InflightTerm {
    reported: bool,
    as_reported: bool,
}

impl CostTerm for InflightTerm {
    fn needs(&self) -> RequiredFacts {
        if self.reported { RequiredFacts::LOAD.union(RequiredFacts::REPORT) } else { RequiredFacts::LOAD }
    }

    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        for (row, signal) in out.iter_mut().enumerate() {
            let own = f64::from(candidates.inflight[row]);
            let running = candidates.running(row, self.as_reported).filter(|_| self.reported).unwrap_or(0.0);
            *signal = Some(own.max(running));
        }
    }
}
