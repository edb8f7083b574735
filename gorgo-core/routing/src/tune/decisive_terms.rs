//! Whether a tuned term matters at all: how often the cheapest replica would be another one without it.
//!
//! A term in the wrong unit (round trips in seconds beside tokens in hundreds) never changes the arg-min, and no search
//! by factors can cross that plateau: the samples would be spent on nothing. Source: GORGO on WildChat.

use crate::model::{CandidateRecord, DecisionRecord, VOID_MILLI};

/// Decisions that one figure is of.
const WINDOW: u32 = 1_000;

/// What a term added; nothing where it said nothing.
fn cost_of(row: &CandidateRecord, slot: usize) -> i64 {
    row.costs_milli.get(slot).copied().filter(|cost| *cost != VOID_MILLI).unwrap_or(0)
}

/// Counts decisions that a term decided.
#[derive(Debug, Clone, Default)]
pub(super) struct Decisive {
    seen: u32,
    /// Per dimension.
    changed: Vec<u32>,
}

impl Decisive {
    /// Takes in a decision; `slots` are those of the dimensions. Every thousand decisions it gives the share of them
    /// that each dimension's term changed.
    pub(super) fn take(&mut self, decision: &DecisionRecord, slots: &[usize]) -> Option<Vec<f64>> {
        self.changed.resize(slots.len(), 0);
        let may = || decision.candidates.iter().filter(|row| row.excluded_by.is_none());
        if may().count() < 2 {
            return None;
        }
        let cheapest = may().min_by_key(|row| row.cost_milli).map(|row| row.replica);
        for (slot, changed) in slots.iter().zip(&mut self.changed) {
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
