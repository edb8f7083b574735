//! A fixed number per replica, in the unit that the policy states: a price, a preference, a known offset.
//!
//! Reads no facts. Replicas that `values` does not name get `value`.

use crate::model::{Candidates, ConfigValue, ParamSpec, ParamType, Replica, RequestView, RequiredFacts};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "constant",
    unit: None,
    summary: "a fixed number per replica",
    spreads: false,
    params: &[
        ParamSpec {
            name: "value",
            ty: ParamType::Number { default: Some(0.0), min: -1e9, max: 1e9 },
            unit: "the term's",
            help: "number of every replica that `values` does not name",
        },
        ParamSpec { name: "values", ty: ParamType::Table, unit: "the term's", help: "replica name = number" },
    ],
    build: |params, fleet| Ok(Box::new(ConstantTerm::new(params, fleet)?)),
};

#[derive(Debug)]
struct ConstantTerm {
    other: f64,
    /// By replica id.
    values: Vec<f64>,
}

impl ConstantTerm {
    fn new(params: &crate::model::ParamValues, fleet: &[Replica]) -> Result<Self, String> {
        let other = params.number("value").unwrap_or(0.0);
        let mut values = vec![other; fleet.iter().map(|replica| replica.id.index() + 1).max().unwrap_or(0)];
        let Some(ConfigValue::Table(named)) = params.table("values") else {
            return Ok(Self { other, values });
        };
        for (name, value) in named {
            let number = value.number().filter(|number| number.abs() <= 1e9);
            let Some(number) = number else {
                return Err(format!("`values.{name}` must be a number between -1e9 and 1e9"));
            };
            let Some(replica) = fleet.iter().find(|replica| *replica.name == **name) else {
                return Err(format!("`values.{name}`: no replica of that name"));
            };
            values[replica.id.index()] = number;
        }
        Ok(Self { other, values })
    }
}

impl CostTerm for ConstantTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::NONE
    }

    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        for (signal, replica) in out.iter_mut().zip(&candidates.replica) {
            *signal = Some(self.values.get(replica.index()).copied().unwrap_or(self.other));
        }
    }
}
