//! A signal written in the policy itself: an expression over the facts of request and candidate, in the unit that the
//! policy states.
//!
//! Reads the facts that the text names ([`FACTS`](crate::model::FACTS)). Where a fact that is needed is unknown,
//! so is the signal, and the term's `unknown` rule applies; a result that is not finite is returned as it is, and
//! voided by `policy::decide` like any other. The language: `expr/README.md`.

use crate::expr::{EvalStack, Expression};
use crate::model::{
    Candidates, FACT_NAMES, FACT_UNITS, FactReader, ParamSpec, ParamType, ParamValues, Replica, RequestView,
    RequiredFacts, TEXT_FACT_NAMES, Unit,
};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "expression",
    unit: None,
    summary: "an expression over the facts of request and candidate, such as rtt_ms + 0.1 * uncached_tokens",
    spreads: true,
    params: &[ParamSpec {
        name: "signal",
        ty: ParamType::Text { default: None, choices: &[] },
        unit: "",
        help: "the expression, in the term's unit; required",
    }],
    build: |params, fleet| Ok(Box::new(ExpressionTerm::new(params, fleet)?)),
};

#[derive(Debug)]
struct ExpressionTerm {
    text: String,
    expression: Expression,
    facts: FactReader,
}

impl ExpressionTerm {
    fn new(params: &ParamValues, fleet: &[Replica]) -> Result<Self, String> {
        let text = params.text("signal").ok_or("`signal` is missing")?;
        let expression = compile(text, None)?;
        let comparisons = expression.comparisons().iter().map(|of| (of.name, &*of.text));
        let facts = FactReader::new(&expression.slots(), comparisons, fleet);
        Ok(Self { text: text.to_owned(), facts: facts.map_err(|error| format!("`signal`: {error}"))?, expression })
    }
}

fn compile(text: &str, unit: Option<&str>) -> Result<Expression, String> {
    Expression::compile_with_texts(text, FACT_NAMES, FACT_UNITS, TEXT_FACT_NAMES, unit)
        .map_err(|error| format!("`signal`: {error}"))
}

impl CostTerm for ExpressionTerm {
    fn needs(&self) -> RequiredFacts {
        self.facts.needs()
    }

    /// An expression can rise with load only if it reads any.
    fn spreads(&self) -> Option<bool> {
        Some(self.facts.reads_load())
    }

    fn check_unit(&self, unit: Unit) -> Result<(), String> {
        compile(&self.text, Some(unit.name())).map(|_| ())
    }

    fn signal(&self, request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        let facts = self.facts.of(request, candidates);
        let mut stack = EvalStack::default();
        for (row, signal) in out.iter_mut().enumerate() {
            *signal = self.expression.eval_with(&mut stack, |slot| facts.read(slot, row));
        }
    }
}
