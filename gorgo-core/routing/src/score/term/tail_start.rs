//! Start of the tail of recent TTFT, ms; the same for every replica. The cost `tail-aware` reads it: a predicted
//! TTFT beyond it costs `weight` times its excess more. In a `sum` it makes no difference.
//!
//! Reads `tail_start_ms` (`feature::ttft_quantile`, the running 88 % quantile). It is a term so that the value that a
//! decision was made with is stored in its row and the decision can be repeated.

use crate::model::{Candidates, ParamSpec, ParamType, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "tail-start",
    unit: Some(Unit::Millis),
    summary: "88 % quantile of recent times to first token, for the cost `tail-aware`",
    spreads: false,
    params: &[ParamSpec {
        name: "initial_ms",
        ty: ParamType::Number { default: Some(1_000.0), min: 1.0, max: 600_000.0 },
        unit: "ms",
        help: "signal until enough requests were seen",
    }],
    build: |params, _| Ok(Box::new(TailStartTerm { initial_ms: params.number("initial_ms").unwrap_or(1_000.0) })),
};

#[derive(Debug)]
struct TailStartTerm {
    initial_ms: f64,
}

impl CostTerm for TailStartTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::SERVICE
    }

    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        out.fill(Some(candidates.tail_start_ms.unwrap_or(self.initial_ms)));
    }
}
