//! Only replicas for which an expression over the facts of request and candidate is not 0.
//!
//! Reads the facts that the texts name ([`FACTS`]). Where one that `allow` needs is unknown, or its result is no number,
//! `unknown` decides: by default the replica is allowed, since a missing report would else rule out the whole fleet.
//! With `relax` the excluded ones come back when nobody would be left: those first for which `violation` is least, all
//! of them where it is not written. The language: `expr/README.md`.

use super::{Constraint, ConstraintKind, Scope};
use crate::expr::{Expression, Stack};
use crate::model::{FACT_NAMES, FACT_UNITS, FACTS, Needs, Param, ParamType, Params};

pub(super) const KIND: ConstraintKind = ConstraintKind {
    kind: "expression",
    summary: "only replicas for which an expression over the facts is not 0, such as kv_used_share < 0.9",
    hard: false,
    params: &[
        Param {
            name: "allow",
            ty: ParamType::Text { default: None, choices: &[] },
            unit: "",
            help: "the expression: 0 excludes, any other number allows; required",
        },
        Param {
            name: "unknown",
            ty: ParamType::Text { default: Some("allow"), choices: &["allow", "exclude"] },
            unit: "",
            help: "what becomes of a replica for which a fact that `allow` needs is unknown",
        },
        Param {
            name: "relax",
            ty: ParamType::Bool { default: true },
            unit: "",
            help: "let them back in when nobody would be left; false: never",
        },
        Param {
            name: "violation",
            ty: ParamType::Text { default: None, choices: &[] },
            unit: "",
            help: "an expression above 0: how far an excluded replica is over, the least comes back first; 1 where absent or unknown",
        },
    ],
    build: |params, _| Ok(Box::new(Allow::new(params)?)),
};

/// How far over its limit an excluded replica is where nothing better is known: twice.
const OVER: f64 = 1.0;

#[derive(Debug)]
struct Allow {
    allow: Expression,
    violation: Option<Expression>,
    needs: Needs,
    unknown_allowed: bool,
    relax: bool,
}

impl Allow {
    fn new(params: &Params) -> Result<Self, String> {
        let compiled = |key: &str| {
            let text = params.text(key)?;
            let expression = Expression::compile_in(text, FACT_NAMES, FACT_UNITS, None);
            Some(expression.map_err(|error| format!("`{key}`: {error}")))
        };
        let allow = compiled("allow").ok_or("`allow` is missing")??;
        let violation = compiled("violation").transpose()?;
        let relax = params.bool("relax");
        if let Some(always) = allow.constant() {
            let does = if always == 0.0 { "excludes every replica" } else { "excludes nobody" };
            return Err(format!("`allow`: column 1: this is always {always} and {does}; name a fact"));
        }
        if violation.is_some() && !relax {
            return Err("`violation`: without `relax` nobody asks how far over a replica is".to_owned());
        }
        let slots = [Some(&allow), violation.as_ref()].into_iter().flatten().flat_map(Expression::slots);
        let needs = slots.map(|slot| FACTS[slot].needs).fold(Needs::NONE, Needs::and);
        Ok(Self { allow, violation, needs, unknown_allowed: params.text("unknown") != Some("exclude"), relax })
    }
}

impl Constraint for Allow {
    fn needs(&self) -> Needs {
        self.needs
    }

    fn hard(&self) -> Option<bool> {
        Some(!self.relax)
    }

    fn violation(&self, scope: &Scope<'_>, out: &mut [f64]) {
        let mut stack = Stack::default();
        for row in scope.rows {
            let fact = |slot| (FACTS[usize::from(slot)].read)(scope.request, scope.candidates, *row);
            let allow = self.allow.eval_with(&mut stack, fact).filter(|result| !result.is_nan());
            let allowed = allow.map_or(self.unknown_allowed, |result| result != 0.0);
            out[*row] = if allowed {
                0.0
            } else if !self.relax {
                f64::INFINITY
            } else {
                let violation = self.violation.as_ref().and_then(|text| text.eval_with(&mut stack, fact));
                violation.filter(|over| over.is_finite() && *over > 0.0).unwrap_or(OVER)
            };
        }
    }
}
