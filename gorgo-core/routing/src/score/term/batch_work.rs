//! Work × batch: prompt tokens to compute, this request's and the queued ones, times the size of the batch with this
//! request.
//!
//! `(uncached + queued uncached) × (in flight + 1)`. Reads `cached_tokens`, `queued_uncached_tokens`, `inflight`. A
//! product needs no weights: a factor on either side makes no difference. Source: LMetric, arXiv 2603.15202.

use crate::model::{Candidates, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "batch-work",
    unit: Some(Unit::One),
    summary: "prompt tokens to compute × requests that would be served together",
    spreads: true,
    params: &[],
    build: |_, _| Ok(Box::new(BatchWorkTerm)),
};

#[derive(Debug)]
struct BatchWorkTerm;

impl CostTerm for BatchWorkTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::PREFIX.union(RequiredFacts::LOAD)
    }

    #[expect(clippy::cast_precision_loss, reason = "queued tokens stay far below 2^53")]
    fn signal(&self, request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        for (row, signal) in out.iter_mut().enumerate() {
            let tokens = u64::from(candidates.uncached_tokens(request, row)) + candidates.queued_uncached_tokens[row];
            // A prompt that is cached everywhere still has its last token to compute; with 0 the batch size would have
            // no effect.
            *signal = Some(tokens.max(1) as f64 * (f64::from(candidates.inflight[row]) + 1.0));
        }
    }
}
