//! The lowest cost; replicas within `tie_margin` of it (in the policy's unit) share the choice evenly. A difference
//! below the noise of the facts is no difference, and the same winner at every tie would attract a herd.

use super::{Picker, PickerKind, count_up_to, lowest_of};
use crate::model::{ParamSpec, ParamType};

pub(super) const KIND: PickerKind = PickerKind {
    kind: "lowest",
    summary: "the lowest cost; ties share evenly",
    reads_costs: true,
    params: &[ParamSpec {
        name: "tie_margin",
        ty: ParamType::Number { default: Some(0.0), min: 0.0, max: 1e9 },
        unit: "the policy's",
        help: "costs up to this much above the lowest count as equal to it",
    }],
    build: |params| Ok(Box::new(Lowest { margin: params.number("tie_margin").unwrap_or(0.0) })),
};

#[derive(Debug)]
struct Lowest {
    margin: f64,
}

impl Picker for Lowest {
    fn distribution(&self, costs: &[f64], allowed: &[usize], out: &mut [f64]) -> u32 {
        let limit = lowest_of(costs, allowed) + self.margin;
        // The lowest row itself always counts, so this is never 0.
        let ties = count_up_to(costs, allowed, limit);
        out.fill(0.0);
        for row in allowed.iter().filter(|row| costs[**row] <= limit) {
            out[*row] = 1.0 / f64::from(ties);
        }
        ties
    }
}
