//! Limits the queued prompt tokens per replica.
//!
//! Reads `queued_*` (`feature::load`). A replica below the limit takes the next request however long it is, so that a
//! prompt longer than the limit can be served.

use super::{Constraint, ConstraintKind, ConstraintScope};
use crate::model::{ParamSpec, ParamType, ParamValues, RequiredFacts};

pub(super) const KIND: ConstraintKind = ConstraintKind {
    kind: "max-queued-tokens",
    summary: "at most `max_tokens` queued prompt tokens per replica",
    hard: false,
    params: &[
        ParamSpec {
            name: "max_tokens",
            ty: ParamType::Integer { default: None, min: 1, max: 1_000_000_000 },
            unit: "tokens",
            help: "a replica with this many is full; required",
        },
        ParamSpec {
            name: "counts",
            ty: ParamType::Text { default: Some("uncached"), choices: &["prompt", "uncached"] },
            unit: "",
            help: "all prompt tokens, or only those that were not cached",
        },
    ],
    build: |params, _| Ok(Box::new(MaxQueuedTokens::new(params)?)),
};

#[derive(Debug)]
struct MaxQueuedTokens {
    limit: f64,
    uncached: bool,
}

impl MaxQueuedTokens {
    fn new(params: &ParamValues) -> Result<Self, String> {
        match params.number("max_tokens") {
            Some(limit) => Ok(Self { limit, uncached: params.text("counts") != Some("prompt") }),
            None => Err("`max_tokens` is missing".to_owned()),
        }
    }
}

impl Constraint for MaxQueuedTokens {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::LOAD
    }

    #[expect(clippy::cast_precision_loss, reason = "queued tokens stay far below 2^53")]
    fn violation(&self, scope: &ConstraintScope<'_>, out: &mut [f64]) {
        let candidates = scope.candidates;
        let column = if self.uncached { &candidates.queued_uncached_tokens } else { &candidates.queued_tokens_first };
        for row in scope.rows {
            // With one more token it would be over the limit, as in `max-inflight`.
            out[*row] = ((column[*row] as f64 + 1.0) / self.limit - 1.0).max(0.0);
        }
    }
}
