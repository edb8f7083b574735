//! The decode gate: a request waits at the router while its chosen replica has as many in flight as its engine decodes
//! cheaply.
//!
//! It excludes nobody: the policy chooses as ever, and the request waits for whom it chose. Who waits, in what order,
//! and when is `feature::gate`'s; here are the settings. Source: design study, "Late binding, a decode gate": sharp
//! above the engine's graph batch, soft below it, so the batch less two; largest cost gap first with ageing 0.5; prompts
//! with more than 0.1 s of prefill wait while their replica has more than 0.4 s before it.

use super::{Constraint, ConstraintKind, Scope};
use crate::model::{GateRule, Needs, Param, ParamType, Params};

pub(super) const KIND: ConstraintKind = ConstraintKind {
    kind: "gate",
    summary: "wait at the router while the chosen replica has as many in flight as it decodes cheaply; 429 beyond a queue",
    hard: false,
    params: &[
        Param {
            name: "max_in_flight",
            ty: ParamType::Integer { default: None, min: 1, max: 100_000 },
            unit: "requests",
            help: "most in flight per replica; absent: its decode batch - 2, and no gate where that is unknown or never exceeded",
        },
        Param {
            name: "max_queued",
            ty: ParamType::Integer { default: Some(256), min: 0, max: 1_000_000 },
            unit: "requests",
            help: "most that wait for one replica; more get 429 with Retry-After",
        },
        Param {
            name: "hold_cold",
            ty: ParamType::Bool { default: true },
            unit: "",
            help: "prompts with much to prefill wait while their replica has much before them, largest cost gap first",
        },
        Param {
            name: "cold_ms",
            ty: ParamType::Number { default: Some(100.0), min: 0.0, max: 1e6 },
            unit: "ms",
            help: "much to prefill: more than this",
        },
        Param {
            name: "backlog_ms",
            ty: ParamType::Number { default: Some(400.0), min: 1.0, max: 1e6 },
            unit: "ms",
            help: "much before them: a predicted backlog above this",
        },
        Param {
            name: "ageing",
            ty: ParamType::Number { default: Some(0.5), min: 0.01, max: 100.0 },
            unit: "",
            help: "ms of cost gap that a ms of waiting is worth in their order",
        },
    ],
    build: |params, _| Ok(Box::new(Gate::new(params)?)),
};

#[derive(Debug)]
struct Gate {
    rule: GateRule,
}

impl Gate {
    fn new(params: &Params) -> Result<Self, String> {
        let missing = |name: &str| format!("`{name}` is missing");
        let number = |name: &'static str| params.number(name).ok_or_else(|| missing(name));
        Ok(Self {
            rule: GateRule {
                max_in_flight: params.integer("max_in_flight").map(whole),
                max_queued: params.integer("max_queued").map(whole).ok_or_else(|| missing("max_queued"))?,
                hold_cold: params.bool("hold_cold"),
                cold_ms: number("cold_ms")?,
                backlog_ms: number("backlog_ms")?,
                ageing: number("ageing")?,
            },
        })
    }
}

/// A whole parameter; its range was checked.
fn whole(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Constraint for Gate {
    fn needs(&self) -> Needs {
        Needs::LOAD.and(Needs::REPORT).and(Needs::RTT).and(Needs::SERVICE).and(Needs::BACKLOG)
    }

    fn gate(&self) -> Option<GateRule> {
        Some(self.rule)
    }

    fn violation(&self, scope: &Scope<'_>, out: &mut [f64]) {
        for row in scope.rows {
            out[*row] = 0.0;
        }
    }
}
