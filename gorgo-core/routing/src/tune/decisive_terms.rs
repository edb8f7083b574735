//! Relevance of a tuned term: how often the cheapest replica would be a different one without it.
//!
//! A term in the wrong unit (round trips in seconds beside tokens in hundreds) never changes the arg-min, and no search
//! by factors can cross that plateau: all samples would be wasted. Observed with GORGO on WildChat.

use crate::model::{CandidateRecord, DecisionRecord, VOID_MILLI};

/// Number of decisions behind one figure.
const WINDOW: u32 = 1_000;

/// Cost that a term added; 0 if it had no value.
fn cost_of(row: &CandidateRecord, slot: usize) -> i64 {
    row.costs_milli.get(slot).copied().filter(|cost| *cost != VOID_MILLI).unwrap_or(0)
}

/// Counter of decisions that a term changed.
#[derive(Debug, Clone, Default)]
pub(super) struct DecisiveCounter {
    seen: u32,
    /// Number of changed decisions per dimension.
    changed: Vec<u32>,
}

impl DecisiveCounter {
    /// Counts a decision; `slots` are those of the dimensions. Every thousand decisions it returns the share of them
    /// that each dimension's term changed.
    pub(super) fn observe(&mut self, decision: &DecisionRecord, slots: &[usize]) -> Option<Vec<f64>> {
        self.changed.resize(slots.len(), 0);
        // Excluded replicas could not have been chosen, and with a single one no term can change anything.
        let may = || decision.candidates.iter().filter(|row| row.excluded_by.is_none());
        if may().count() < 2 {
            return None;
        }
        let cheapest = may().min_by_key(|row| row.cost_milli).map(|row| row.replica);
        for (slot, changed) in slots.iter().zip(&mut self.changed) {
            // Exact where the cost is the sum of its terms.
            let without = may().min_by_key(|row| row.cost_milli - cost_of(row, *slot));
            *changed += u32::from(without.map(|row| row.replica) != cheapest);
        }
        self.seen += 1;
        if self.seen < WINDOW {
            return None;
        }
        let shares = self.changed.iter().map(|changed| f64::from(*changed) / f64::from(self.seen)).collect();
        *self = Self::default();
        Some(shares)
    }
}
