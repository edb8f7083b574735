//! Harm to others: the time that a request takes from all those served at a replica, ms, because its prefill delays
//! their tokens. Without it the nearest replica looks best until its answers slow to a crawl.
//!
//! `E = D·(θ1·u + φ) + n̂·b·D`, times `1 + (D̄ / crowd)²`: all requests in flight there (D) stop while the prompt is
//! computed (and for φ, the fixed part of a prefill batch), and each token of the n̂ that will follow slows them by b.
//! The fuller the fleet (D̄, mean in flight), the more it counts. The term's weight is the price μ of a ms of others.
//! Reads `inflight`, `service_*`, `likely_uncached_tokens`, `itl_ms_per_request`, `answer_tokens`.

use crate::model::{Candidates, ParamSpec, ParamType, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "stall",
    unit: Some(Unit::Millis),
    summary: "time that the request takes from all those served at the replica",
    spreads: true,
    params: &[
        ParamSpec {
            name: "batch_ms",
            ty: ParamType::Number { default: Some(60.0), min: 0.0, max: 10_000.0 },
            unit: "ms",
            help: "fixed time of a prefill batch; simulations with 30 to 100 showed no difference",
        },
        ParamSpec {
            name: "crowd_requests",
            ty: ParamType::Number { default: Some(10.0), min: 0.1, max: 1e6 },
            unit: "requests",
            help: "mean requests in flight per replica at which the harm counts twice",
        },
    ],
    build: |params, _| {
        Ok(Box::new(StallTerm {
            batch_ms: params.number("batch_ms").unwrap_or_default(),
            crowd: params.number("crowd_requests").unwrap_or(f64::INFINITY),
        }))
    },
};

#[derive(Debug)]
struct StallTerm {
    batch_ms: f64,
    crowd: f64,
}

impl CostTerm for StallTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::SERVICE.union(RequiredFacts::PREFIX).union(RequiredFacts::LOAD)
    }

    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        let crowded = 1.0 + (candidates.mean_inflight() / self.crowd).powi(2);
        for (row, signal) in out.iter_mut().enumerate() {
            let prefill = candidates.service_ms_per_token[row] * candidates.likely_uncached_tokens[row];
            let decode = candidates.answer_tokens * candidates.itl_ms_per_request[row];
            *signal = Some(crowded * f64::from(candidates.inflight[row]) * (prefill + self.batch_ms + decode));
        }
    }
}
