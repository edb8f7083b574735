//! Prefill cost: the prompt tokens that a replica would have to compute because they are not in its KV cache.
//!
//! Reads `cached_tokens` (`feature::prefix`). Source: GORGO paper, prefill term U(r, i). Always known: a prompt that
//! the index has not seen is uncached.

use crate::model::{Candidates, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "prefill",
    unit: Some(Unit::Tokens),
    summary: "prompt tokens that are not in the replica's KV cache",
    spreads: false,
    params: &[],
    build: |_, _| Ok(Box::new(PrefillTerm)),
};

#[derive(Debug)]
struct PrefillTerm;

impl CostTerm for PrefillTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::PREFIX
    }

    fn signal(&self, request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        for (row, signal) in out.iter_mut().enumerate() {
            *signal = Some(f64::from(candidates.uncached_tokens(request, row)));
        }
    }
}
