//! The share of a prompt that is not in a replica's KV cache, 0 to 1.
//!
//! Reads `cached_tokens`. Unlike `prefill` it does not distinguish a long prompt from a short one. Source: llm-d /
//! Gateway API Inference Extension, `prefix-cache-scorer` (1 − matched blocks ÷ all).

use crate::model::{Candidates, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "miss-share",
    unit: Some(Unit::Share),
    summary: "share of the prompt that is not in the replica's KV cache, 0 to 1",
    spreads: false,
    params: &[],
    build: |_, _| Ok(Box::new(MissShareTerm)),
};

#[derive(Debug)]
struct MissShareTerm;

impl CostTerm for MissShareTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::PREFIX
    }

    fn signal(&self, request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        let all = f64::from(request.prompt_tokens.max(1));
        for (row, signal) in out.iter_mut().enumerate() {
            *signal = Some(f64::from(candidates.uncached_tokens(request, row)) / all);
        }
    }
}
