//! Any allowed replica, with equal probability. Reads no costs.

use super::{Picker, PickerKind, count_up_to, lowest_of};

pub(super) const KIND: PickerKind = PickerKind {
    kind: "random",
    summary: "any allowed replica, evenly",
    reads_costs: false,
    params: &[],
    build: |_| Ok(Box::new(Random)),
};

#[derive(Debug)]
struct Random;

impl Picker for Random {
    #[expect(clippy::cast_precision_loss, reason = "a fleet has at most 65,536 replicas")]
    fn distribution(&self, costs: &[f64], allowed: &[usize], out: &mut [f64]) -> u32 {
        out.fill(0.0);
        for row in allowed {
            out[*row] = 1.0 / allowed.len() as f64;
        }
        count_up_to(costs, allowed, lowest_of(costs, allowed))
    }
}
