//! Turns: distance of each available replica from the one whose turn it is. The lowest distance is round-robin.
//!
//! Reads the request's `turn` and the available replicas. Turns go by replica id, so that the order of rows does not
//! matter; a replica that is not available has no turn, and its neighbours do not get twice as many requests.

use crate::model::{Candidates, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "turn",
    unit: Some(Unit::One),
    summary: "number of turns until the replica has its turn",
    spreads: true,
    params: &[],
    build: |_, _| Ok(Box::new(TurnTerm)),
};

#[derive(Debug)]
struct TurnTerm;

impl CostTerm for TurnTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::NONE
    }

    #[expect(clippy::cast_precision_loss, reason = "a place in a fleet of at most 65,536")]
    fn signal(&self, request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        let rows = candidates.replica.iter().zip(&candidates.available);
        let mut turns: Vec<_> = rows.filter(|(_, available)| **available).map(|(replica, _)| *replica).collect();
        turns.sort_unstable();
        let count = turns.len().max(1);
        let now = usize::try_from(request.decision_number % count as u64).unwrap_or(0);
        for (signal, replica) in out.iter_mut().zip(&candidates.replica) {
            let place = turns.binary_search(replica).unwrap_or_else(|next| next % count);
            *signal = Some(((place + count - now) % count) as f64);
        }
    }
}
