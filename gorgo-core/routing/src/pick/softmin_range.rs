//! Softmin on costs that are scaled so that the lowest and the highest of the allowed lie 1 apart: probability
//! ∝ exp(−(cost − lowest) / ((highest − lowest) × temperature)). The temperature has no unit, so it fits any policy, and
//! a small difference counts as much as a large one. Equal costs: even. Source: Dynamo KV router, `router_temperature`.

use super::{Picker, PickerKind, count_up_to, lowest_of};
use crate::model::{ParamSpec, ParamType};

pub(super) const KIND: PickerKind = PickerKind {
    kind: "softmin-range",
    summary: "the cheaper the likelier, relative to how far costs lie apart",
    reads_costs: true,
    params: &[ParamSpec {
        name: "temperature",
        ty: ParamType::Number { default: None, min: 1e-6, max: 1e9 },
        unit: "× (highest − lowest cost)",
        help: "cost difference at which the odds are e to 1; required",
    }],
    build: |params| match params.number("temperature") {
        Some(temperature) => Ok(Box::new(SoftminRange { temperature })),
        None => Err("`temperature` is missing".to_owned()),
    },
};

#[derive(Debug)]
struct SoftminRange {
    temperature: f64,
}

impl Picker for SoftminRange {
    fn distribution(&self, costs: &[f64], allowed: &[usize], out: &mut [f64]) -> u32 {
        let lowest = lowest_of(costs, allowed);
        let highest = allowed.iter().map(|row| costs[*row]).fold(f64::NEG_INFINITY, f64::max);
        let range = highest - lowest;
        out.fill(0.0);
        let mut sum = 0.0;
        for row in allowed {
            // With equal costs the range is 0, and dividing by it would give NaN.
            let place = if range > 0.0 { (costs[*row] - lowest) / range } else { 0.0 };
            out[*row] = (-place / self.temperature).exp();
            sum += out[*row];
        }
        for row in allowed {
            out[*row] /= sum;
        }
        count_up_to(costs, allowed, lowest)
    }
}
