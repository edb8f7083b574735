//! Computing: the time from the start of a request's prefill at a replica to its first token, ms: `θ0 + θ1·u + θ3·d`.
//!
//! Reads `service_*` (learned per replica from requests that met no backlog), `likely_uncached_tokens` (u) and
//! `decoding` (d). With the round trip and the backlog it makes the predicted time to first token.

use crate::model::{Candidates, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "compute",
    unit: Some(Unit::Millis),
    summary: "predicted time from the start of the request's prefill to its first token",
    spreads: false,
    params: &[],
    build: |_, _| Ok(Box::new(ComputeTerm)),
};

#[derive(Debug)]
struct ComputeTerm;

impl CostTerm for ComputeTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::SERVICE.union(RequiredFacts::PREFIX).union(RequiredFacts::LOAD)
    }

    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        for (row, signal) in out.iter_mut().enumerate() {
            let prefill = candidates.service_ms_per_token[row] * candidates.likely_uncached_tokens[row];
            let decoding = candidates.service_ms_per_decoding[row] * f64::from(candidates.decoding[row]);
            *signal = Some(candidates.service_fixed_ms[row] + prefill + decoding);
        }
    }
}
