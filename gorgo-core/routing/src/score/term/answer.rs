//! Writing: the time that the rest of an answer of mean length takes at a replica, ms: `n̂·(a + b·D)`.
//!
//! Reads `answer_tokens`, `itl_alone_ms`, `itl_ms_per_request`, `inflight`. For policies that favour end-to-end time:
//! the term's weight is the price of a ms of the answer relative to a ms of the wait for its first token.

use crate::model::{Candidates, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "answer",
    unit: Some(Unit::Millis),
    summary: "predicted time from the first to the last token of an answer of mean length",
    spreads: true,
    params: &[],
    build: |_, _| Ok(Box::new(AnswerTerm)),
};

#[derive(Debug)]
struct AnswerTerm;

impl CostTerm for AnswerTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::SERVICE.union(RequiredFacts::LOAD)
    }

    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        for (row, signal) in out.iter_mut().enumerate() {
            let gap = candidates.itl_ms_per_request[row] * f64::from(candidates.inflight[row]);
            *signal = Some(candidates.answer_tokens * (candidates.itl_alone_ms[row] + gap));
        }
    }
}
