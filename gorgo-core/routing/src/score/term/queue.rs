//! Queue cost: the prompt tokens of this router's requests that wait or run at a replica.
//!
//! Reads `queued_*` (`feature::load`): counted at dispatch and released exactly once, so that the requests of a burst
//! see each other. The paper's queue is `prompt` until `completion`; the default is the work that a new request has to
//! wait for: the uncached tokens of requests without a first token yet.

use crate::model::{Candidates, ParamSpec, ParamType, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "queue",
    unit: Some(Unit::Tokens),
    summary: "prompt tokens of this router's requests that wait or run at the replica",
    spreads: true,
    params: &[
        ParamSpec {
            name: "counts",
            ty: ParamType::Text { default: Some("uncached"), choices: &["prompt", "uncached"] },
            unit: "",
            help: "all prompt tokens, or only those that were not cached",
        },
        ParamSpec {
            name: "release",
            ty: ParamType::Text { default: Some("first-token"), choices: &["completion", "first-token"] },
            unit: "",
            help: "when a request stops counting",
        },
    ],
    build: |params, _| {
        Ok(Box::new(QueueTerm {
            uncached: params.text("counts") != Some("prompt"),
            until_first_token: params.text("release") != Some("completion"),
        }))
    },
};

#[derive(Debug)]
struct QueueTerm {
    uncached: bool,
    until_first_token: bool,
}

impl CostTerm for QueueTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::LOAD
    }

    #[expect(clippy::cast_precision_loss, reason = "queued tokens stay far below 2^53")]
    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        let column = match (self.uncached, self.until_first_token) {
            (true, true) => &candidates.queued_uncached_tokens,
            (true, false) => &candidates.queued_uncached_tokens_completion,
            (false, true) => &candidates.queued_tokens_first,
            (false, false) => &candidates.queued_tokens,
        };
        for (signal, tokens) in out.iter_mut().zip(column) {
            *signal = Some(*tokens as f64);
        }
    }
}
