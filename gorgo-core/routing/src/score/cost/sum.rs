//! The sum of the weighted signals, in the policy's unit. Source: GORGO paper, the TTFT cost.

use crate::score::{CostFunction, CostKind};

pub(super) const KIND: CostKind = CostKind {
    kind: "sum",
    summary: "weight × signal, added up in term order",
    params: &[],
    build: |_, _| Ok(Box::new(SumCost)),
};

#[derive(Debug)]
struct SumCost;

impl CostFunction for SumCost {
    fn total(&self, _signals: &[f64], _weights: &[f64], weighted: &[f64]) -> f64 {
        // A fold from +0.0, not `Iterator::sum`, whose start (−0.0) is not guaranteed; the order of additions is.
        weighted.iter().fold(0.0, |total, cost| total + cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_in_term_order_and_gives_plain_zero_for_no_terms() {
        assert_eq!(SumCost.total(&[9.0; 3], &[1.0; 3], &[1e16, 1.0, -1e16]), 0.0);
        assert_eq!(SumCost.total(&[9.0; 3], &[1.0; 3], &[1e16, -1e16, 1.0]), 1.0);
        assert!(SumCost.total(&[], &[], &[]).is_sign_positive());
    }
}
