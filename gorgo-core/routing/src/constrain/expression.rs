//! Only replicas for which an expression over the facts of request and candidate is not 0.
//!
//! Reads the facts that the texts name ([`FACTS`](crate::model::FACTS)). Where a fact that `allow` needs is unknown, or
//! its result is not a number, `unknown` decides: by default the replica is allowed, since a missing report would
//! otherwise exclude the whole fleet. With `relax` the excluded ones come back when no replica would be left: those
//! with the least `violation` first, or all of them if it is not given. The language: `expr/README.md`.

use super::{Constraint, ConstraintKind, ConstraintScope};
use crate::expr::{EvalStack, Expression};
use crate::model::{
    FACT_NAMES, FACT_UNITS, FactReader, ParamSpec, ParamType, ParamValues, Replica, RequiredFacts, TEXT_FACT_NAMES,
};

pub(super) const KIND: ConstraintKind = ConstraintKind {
    kind: "expression",
    summary: "only replicas for which an expression over the facts is not 0, such as kv_used_share < 0.9",
    hard: false,
    params: &[
        ParamSpec {
            name: "allow",
            ty: ParamType::Text { default: None, choices: &[] },
            unit: "",
            help: "the expression: 0 excludes, any other number allows; required",
        },
        ParamSpec {
            name: "unknown",
            ty: ParamType::Text { default: Some("allow"), choices: &["allow", "exclude"] },
            unit: "",
            help: "allow or exclude a replica for which a fact that `allow` needs is unknown",
        },
        ParamSpec {
            name: "relax",
            ty: ParamType::Bool { default: true },
            unit: "",
            help: "let excluded replicas back in when none would be left; false: never",
        },
        ParamSpec {
            name: "violation",
            ty: ParamType::Text { default: None, choices: &[] },
            unit: "",
            help: "an expression above 0: how far an excluded replica is over its limit; the least comes back first; 1 where absent or unknown",
        },
    ],
    build: |params, fleet| Ok(Box::new(ExpressionConstraint::new(params, fleet)?)),
};

/// Assumed violation of an excluded replica where nothing better is known: twice its limit.
const OVER: f64 = 1.0;

/// An expression and the facts that it reads.
#[derive(Debug)]
struct Reading {
    expression: Expression,
    facts: FactReader,
}

impl Reading {
    fn new(key: &str, text: &str, fleet: &[Replica]) -> Result<Self, String> {
        let expression = Expression::compile_with_texts(text, FACT_NAMES, FACT_UNITS, TEXT_FACT_NAMES, None)
            .map_err(|error| format!("`{key}`: {error}"))?;
        let comparisons = expression.comparisons().iter().map(|of| (of.name, &*of.text));
        let facts = FactReader::new(&expression.slots(), comparisons, fleet);
        Ok(Self { facts: facts.map_err(|error| format!("`{key}`: {error}"))?, expression })
    }
}

#[derive(Debug)]
struct ExpressionConstraint {
    allow: Reading,
    violation: Option<Reading>,
    unknown_allowed: bool,
    relax: bool,
}

impl ExpressionConstraint {
    fn new(params: &ParamValues, fleet: &[Replica]) -> Result<Self, String> {
        let compiled = |key: &str| params.text(key).map(|text| Reading::new(key, text, fleet));
        let allow = compiled("allow").ok_or("`allow` is missing")??;
        let violation = compiled("violation").transpose()?;
        let relax = params.bool("relax");
        // A constant rule excludes all or none, which is never meant.
        if let Some(always) = allow.expression.constant() {
            let does = if always == 0.0 { "excludes every replica" } else { "excludes none" };
            return Err(format!("`allow`: column 1: this is always {always} and {does}; name a fact"));
        }
        if violation.is_some() && !relax {
            return Err("`violation`: has no effect with `relax = false`; remove one of them".to_owned());
        }
        Ok(Self { allow, violation, unknown_allowed: params.text("unknown") != Some("exclude"), relax })
    }
}

impl Constraint for ExpressionConstraint {
    fn needs(&self) -> RequiredFacts {
        let violation = self.violation.as_ref().map_or(RequiredFacts::NONE, |reading| reading.facts.needs());
        self.allow.facts.needs().union(violation)
    }

    fn hard(&self) -> Option<bool> {
        Some(!self.relax)
    }

    fn violation(&self, scope: &ConstraintScope<'_>, out: &mut [f64]) {
        // On the stack of the thread: no allocation per decision.
        let mut stack = EvalStack::default();
        let facts = self.allow.facts.of(scope.request, scope.candidates);
        let over = self.violation.as_ref().map(|text| (text, text.facts.of(scope.request, scope.candidates)));
        for row in scope.rows {
            let allow = self.allow.expression.eval_with(&mut stack, |slot| facts.read(slot, *row));
            // NaN is neither 0 nor another number, so it counts as unknown.
            let allow = allow.filter(|result| !result.is_nan());
            let allowed = allow.map_or(self.unknown_allowed, |result| result != 0.0);
            out[*row] = if allowed {
                0.0
            } else if !self.relax {
                f64::INFINITY
            } else {
                let violation = over
                    .as_ref()
                    .and_then(|(text, facts)| text.expression.eval_with(&mut stack, |slot| facts.read(slot, *row)));
                // A violation that is not a positive number would let the replica pass as within the limit.
                violation.filter(|over| over.is_finite() && *over > 0.0).unwrap_or(OVER)
            };
        }
    }
}
