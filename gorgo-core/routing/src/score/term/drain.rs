//! Time to work off the queue, ms: the queued uncached tokens of this router's requests without a first token, divided
//! by the throughput that the engine reports.
//!
//! Reads `queued_uncached_tokens`, `engine_throughput`. Source: SMG, `least_load`: queued tokens ÷ throughput, where an
//! engine that reports nothing counts as 2,000 tokens/s. The gauge counts generated tokens while the queue has prompt
//! tokens, so the time is nominal; the baseline is defined that way.

use crate::model::{Candidates, ParamSpec, ParamType, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "drain",
    unit: Some(Unit::Millis),
    summary: "queued uncached tokens ÷ the engine's reported throughput",
    spreads: true,
    params: &[ParamSpec {
        name: "nominal_tokens_per_second",
        ty: ParamType::Number { default: Some(2_000.0), min: 1.0, max: 1e9 },
        unit: "tokens/s",
        help: "throughput of an engine that reports none, or 0 because it is idle",
    }],
    build: |params, _| {
        Ok(Box::new(DrainTerm { nominal: params.number("nominal_tokens_per_second").unwrap_or(2_000.0) }))
    },
};

#[derive(Debug)]
struct DrainTerm {
    nominal: f64,
}

impl CostTerm for DrainTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::LOAD.union(RequiredFacts::REPORT)
    }

    #[expect(clippy::cast_precision_loss, reason = "queued tokens stay far below 2^53")]
    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        for (row, signal) in out.iter_mut().enumerate() {
            let throughput = candidates.engine_throughput[row].filter(|rate| *rate >= 1.0).unwrap_or(self.nominal);
            *signal = Some(candidates.queued_uncached_tokens[row] as f64 / throughput * 1e3);
        }
    }
}
