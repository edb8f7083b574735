//! A signal written in the policy itself: an expression over the facts of request and candidate, in the unit that the
//! policy states.
//!
//! Reads the facts that the text names ([`FACTS`]), and only those are computed. Where a fact that is needed is unknown,
//! so is the signal, and the term's `unknown` rule applies; a result that is not finite is given as it is, and voided by
//! `policy::decide` like any other. The language: `expr/README.md`.

use crate::expr::{Expression, Stack};
use crate::model::{Candidates, FACT_NAMES, FACT_UNITS, FACTS, Needs, Param, ParamType, Params, RequestView, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "expression",
    unit: None,
    summary: "an expression over the facts of request and candidate, such as rtt_ms + 0.1 * uncached_tokens",
    spreads: true,
    params: &[Param {
        name: "signal",
        ty: ParamType::Text { default: None, choices: &[] },
        unit: "",
        help: "the expression, in the term's unit; required",
    }],
    build: |params, _| Ok(Box::new(Signal::new(params)?)),
};

#[derive(Debug)]
struct Signal {
    text: String,
    expression: Expression,
    needs: Needs,
}

impl Signal {
    fn new(params: &Params) -> Result<Self, String> {
        let text = params.text("signal").ok_or("`signal` is missing")?;
        let expression =
            Expression::compile_in(text, FACT_NAMES, FACT_UNITS, None).map_err(|error| format!("`signal`: {error}"))?;
        let needs = expression.slots().into_iter().map(|slot| FACTS[slot].needs).fold(Needs::NONE, Needs::and);
        Ok(Self { text: text.to_owned(), expression, needs })
    }
}

impl CostTerm for Signal {
    fn needs(&self) -> Needs {
        self.needs
    }

    /// It can rise with load only if it reads any.
    fn spreads(&self) -> Option<bool> {
        Some(self.needs.contains(Needs::LOAD) || self.needs.contains(Needs::REPORT))
    }

    fn check_unit(&self, unit: Unit) -> Result<(), String> {
        let checked = Expression::compile_in(&self.text, FACT_NAMES, FACT_UNITS, Some(unit.name()));
        checked.map(|_| ()).map_err(|error| format!("`signal`: {error}"))
    }

    fn signal(&self, request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        let mut stack = Stack::default();
        for (row, signal) in out.iter_mut().enumerate() {
            let fact = |slot| (FACTS[usize::from(slot)].read)(request, candidates, row);
            *signal = self.expression.eval_with(&mut stack, fact);
        }
    }
}
