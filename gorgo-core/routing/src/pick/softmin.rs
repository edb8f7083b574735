//! Probability ∝ exp(−cost / temperature): the cheaper, the likelier. The temperature is in the policy's unit; at a
//! cost difference of one temperature the odds are e to 1.

use super::{Picker, PickerKind, count_up_to, lowest_of};
use crate::model::{ParamSpec, ParamType};

pub(super) const KIND: PickerKind = PickerKind {
    kind: "softmin",
    summary: "the cheaper the likelier",
    reads_costs: true,
    params: &[ParamSpec {
        name: "temperature",
        ty: ParamType::Number { default: None, min: 1e-6, max: 1e9 },
        unit: "the policy's",
        help: "cost difference at which the odds are e to 1; required",
    }],
    build: |params| match params.number("temperature") {
        Some(temperature) => Ok(Box::new(Softmin { temperature })),
        None => Err("`temperature` is missing".to_owned()),
    },
};

#[derive(Debug)]
struct Softmin {
    temperature: f64,
}

impl Picker for Softmin {
    fn distribution(&self, costs: &[f64], allowed: &[usize], out: &mut [f64]) -> u32 {
        // Relative to the lowest cost, so that the largest exponent is 0: no overflow, and the sum is at least 1.
        let lowest = lowest_of(costs, allowed);
        out.fill(0.0);
        let mut sum = 0.0;
        for row in allowed {
            out[*row] = ((lowest - costs[*row]) / self.temperature).exp();
            sum += out[*row];
        }
        for row in allowed {
            out[*row] /= sum;
        }
        count_up_to(costs, allowed, lowest)
    }
}
