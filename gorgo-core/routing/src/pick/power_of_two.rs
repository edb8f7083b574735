//! The cheaper of two different random replicas. Source: Mitzenmacher, "The power of two choices in randomized load
//! balancing", 2001; the cost that decides is the policy's.
//!
//! The probabilities are exact: of the n(n−1)/2 pairs a replica wins those with a more expensive one, and half of those
//! with an equally expensive one.

use super::{Picker, PickerKind, count_up_to, lowest_of};

pub(super) const KIND: PickerKind = PickerKind {
    kind: "power-of-two",
    summary: "the cheaper of two replicas taken at random",
    reads_costs: true,
    params: &[],
    build: |_| Ok(Box::new(PowerOfTwo)),
};

#[derive(Debug)]
struct PowerOfTwo;

impl Picker for PowerOfTwo {
    #[expect(clippy::cast_precision_loss, reason = "a fleet has at most 65,536 replicas")]
    fn distribution(&self, costs: &[f64], allowed: &[usize], out: &mut [f64]) -> u32 {
        out.fill(0.0);
        let count = allowed.len();
        // A single replica forms no pair.
        if let [only] = allowed {
            out[*only] = 1.0;
            return 1;
        }
        let pairs = (count * count.saturating_sub(1)) as f64 / 2.0;
        let mut order = allowed.to_vec();
        // Sorted by cost, each group of equal costs beats everything after it.
        order.sort_unstable_by(|a, b| costs[*a].total_cmp(&costs[*b]));
        let mut dearer = count;
        for equal in order.chunk_by(|a, b| costs[*a] == costs[*b]) {
            dearer -= equal.len();
            let wins = dearer as f64 + (equal.len() - 1) as f64 / 2.0;
            for row in equal {
                out[*row] = wins / pairs;
            }
        }
        count_up_to(costs, allowed, lowest_of(costs, allowed))
    }
}
