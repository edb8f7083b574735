//! Sticks to the cache: while loads are balanced and somebody holds enough of the prompt, only who holds most of it may
//! be picked; else only who has fewest requests in flight (or, with `fallback = "any"` and balanced loads, anybody).
//!
//! Reads `cached_tokens`, `inflight`. It yields to every other constraint: where the holder is ruled out for another
//! reason, costs decide among the others. Sources: SMG `cache_aware` (`min_match` 0.5, `max_difference` 32, `max_ratio`
//! 1.1); as a guard against overload, with `above_mean` 14 and `compare = "match"`: design study, section 3.

use super::{Constraint, ConstraintKind, Scope};
use crate::model::{Needs, Param, ParamType, Params};

pub(super) const KIND: ConstraintKind = ConstraintKind {
    kind: "cache-affinity",
    summary: "only the longest match while loads are balanced, else only the least loaded",
    hard: false,
    params: &[
        Param {
            name: "min_match",
            ty: ParamType::Number { default: Some(0.5), min: 0.0, max: 1.0 },
            unit: "share of the prompt",
            help: "a match of no more than this is none",
        },
        Param {
            name: "max_difference",
            ty: ParamType::Number { default: Some(32.0), min: 0.0, max: 1e6 },
            unit: "requests in flight",
            help: "out of balance when loads differ by more, and by more than `max_ratio`",
        },
        Param {
            name: "max_ratio",
            ty: ParamType::Number { default: Some(1.1), min: 1.0, max: 1e6 },
            unit: "× the least loaded",
            help: "out of balance when loads differ by more, and by more than `max_difference`",
        },
        Param {
            name: "compare",
            ty: ParamType::Text { default: Some("fleet"), choices: &["fleet", "match"] },
            unit: "",
            help: "whose load is compared with the least: the most loaded replica's, or that of who holds the match",
        },
        Param {
            name: "fallback",
            ty: ParamType::Text { default: Some("least-loaded"), choices: &["least-loaded", "any"] },
            unit: "",
            help: "who may be picked where there is no match: only the least loaded, or anybody",
        },
        Param {
            name: "above_mean",
            ty: ParamType::Number { default: Some(0.0), min: 0.0, max: 1e6 },
            unit: "requests in flight per replica",
            help: "nobody is ruled out up to this mean; 0: always in force",
        },
    ],
    build: |params, _| Ok(Box::new(CacheAffinity::new(params))),
};

/// Small enough that any other constraint's violation is larger.
const YIELDS: f64 = 1e-9;

#[derive(Debug)]
struct CacheAffinity {
    min_match: f64,
    max_difference: f64,
    max_ratio: f64,
    of_match: bool,
    any: bool,
    above_mean: f64,
}

impl CacheAffinity {
    fn new(params: &Params) -> Self {
        Self {
            min_match: params.number("min_match").unwrap_or_default(),
            max_difference: params.number("max_difference").unwrap_or_default(),
            max_ratio: params.number("max_ratio").unwrap_or(1.0),
            of_match: params.text("compare") == Some("match"),
            any: params.text("fallback") == Some("any"),
            above_mean: params.number("above_mean").unwrap_or_default(),
        }
    }
}

impl Constraint for CacheAffinity {
    fn needs(&self) -> Needs {
        Needs::PREFIX.and(Needs::LOAD)
    }

    #[expect(clippy::cast_precision_loss, reason = "a fleet has at most 65,536 replicas")]
    fn violation(&self, scope: &Scope<'_>, out: &mut [f64]) {
        let (cached, inflight) = (&scope.candidates.cached_tokens, &scope.candidates.inflight);
        let loads = || scope.rows.iter().map(|row| inflight[*row]);
        let mean = loads().map(f64::from).sum::<f64>() / scope.rows.len().max(1) as f64;
        if self.above_mean > 0.0 && mean <= self.above_mean {
            for row in scope.rows {
                out[*row] = 0.0;
            }
            return;
        }
        let longest = scope.rows.iter().map(|row| cached[*row]).max().unwrap_or(0);
        let least = loads().min().unwrap_or(0);
        let compared = if self.of_match {
            scope.rows.iter().filter(|row| cached[**row] == longest).map(|row| inflight[*row]).min()
        } else {
            loads().max()
        };
        let (compared, lowest) = (f64::from(compared.unwrap_or(0)), f64::from(least));
        let balanced = compared - lowest <= self.max_difference || compared <= self.max_ratio * lowest;
        let matched = f64::from(longest) > self.min_match * f64::from(scope.request.prompt_tokens);
        for row in scope.rows {
            let kept = match (balanced, matched) {
                (true, true) => cached[*row] == longest,
                (true, false) => self.any || inflight[*row] == least,
                (false, _) => inflight[*row] == least,
            };
            out[*row] = if kept { 0.0 } else { YIELDS };
        }
    }
}
