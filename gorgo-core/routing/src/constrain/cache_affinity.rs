//! Sticks to the cache: while loads are balanced and a replica has enough of the prompt cached, only the one with the
//! most may be picked; else only the one with fewest requests in flight (or, with `fallback = "any"` and balanced
//! loads, any).
//!
//! Reads `cached_tokens`, `inflight`. It yields to every other constraint: where the replica with the longest match is
//! excluded by another one, costs decide among the rest. Sources: SMG `cache_aware` (`min_match` 0.5, `max_difference`
//! 32, `max_ratio` 1.1). With `above_mean` and `compare = "match"` it serves as a guard against overload, as in
//! `predicted-latency`.

use super::{Constraint, ConstraintKind, ConstraintScope};
use crate::model::{ParamSpec, ParamType, ParamValues, RequiredFacts};

pub(super) const KIND: ConstraintKind = ConstraintKind {
    kind: "cache-affinity",
    summary: "only the longest match while loads are balanced, else only the least loaded",
    hard: false,
    params: &[
        ParamSpec {
            name: "min_match",
            ty: ParamType::Number { default: Some(0.5), min: 0.0, max: 1.0 },
            unit: "share of the prompt",
            help: "matches up to this share are ignored",
        },
        ParamSpec {
            name: "max_difference",
            ty: ParamType::Number { default: Some(32.0), min: 0.0, max: 1e6 },
            unit: "requests in flight",
            help: "out of balance when loads differ by more, and by more than `max_ratio`",
        },
        ParamSpec {
            name: "max_ratio",
            ty: ParamType::Number { default: Some(1.1), min: 1.0, max: 1e6 },
            unit: "× the least loaded",
            help: "out of balance when loads differ by more, and by more than `max_difference`",
        },
        ParamSpec {
            name: "compare",
            ty: ParamType::Text { default: Some("fleet"), choices: &["fleet", "match"] },
            unit: "",
            help: "load that is compared with the least: the most loaded replica's, or that of the replica with the match",
        },
        ParamSpec {
            name: "fallback",
            ty: ParamType::Text { default: Some("least-loaded"), choices: &["least-loaded", "any"] },
            unit: "",
            help: "without a match: only the least loaded replica may be picked, or any",
        },
        ParamSpec {
            name: "above_mean",
            ty: ParamType::Number { default: Some(0.0), min: 0.0, max: 1e6 },
            unit: "requests in flight per replica",
            help: "no replica is excluded up to this mean; 0: always in force",
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
    fn new(params: &ParamValues) -> Self {
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
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::PREFIX.union(RequiredFacts::LOAD)
    }

    #[expect(clippy::cast_precision_loss, reason = "a fleet has at most 65,536 replicas")]
    fn violation(&self, scope: &ConstraintScope<'_>, out: &mut [f64]) {
        let (cached, inflight) = (&scope.candidates.cached_tokens, &scope.candidates.inflight);
        let loads = || scope.rows.iter().map(|row| inflight[*row]);
        let mean = loads().map(f64::from).sum::<f64>() / scope.rows.len().max(1) as f64;
        // Below this load the policy's own costs are trusted.
        if self.above_mean > 0.0 && mean <= self.above_mean {
            for row in scope.rows {
                out[*row] = 0.0;
            }
            return;
        }
        let longest = scope.rows.iter().map(|row| cached[*row]).max().unwrap_or(0);
        let least = loads().min().unwrap_or(0);
        // With several holders of the longest match, the least loaded one decides: it is the one that could take the request.
        let compared = if self.of_match {
            scope.rows.iter().filter(|row| cached[**row] == longest).map(|row| inflight[*row]).min()
        } else {
            loads().max()
        };
        let (compared, lowest) = (f64::from(compared.unwrap_or(0)), f64::from(least));
        // Out of balance only if both limits are exceeded: on an idle fleet any ratio is large, on a full one any difference.
        let balanced = compared - lowest <= self.max_difference || compared <= self.max_ratio * lowest;
        let matched = f64::from(longest) > self.min_match * f64::from(scope.request.prompt_tokens);
        for row in scope.rows {
            // Out of balance, load decides even if the prompt is cached.
            let kept = match (balanced, matched) {
                (true, true) => cached[*row] == longest,
                (true, false) => self.any || inflight[*row] == least,
                (false, _) => inflight[*row] == least,
            };
            out[*row] = if kept { 0.0 } else { YIELDS };
        }
    }
}
