//! `candidate_terms`: a row per term of a candidate beyond the eighth.

use super::candidates::{self, CandidateRow};
use super::{HistoryTable, with_decision};
use crate::write::batch::Batch;
use crate::write::loss::{RowLoss, moment_of};
use crate::write::statement::{BatchStatements, InsertStatement, insert};
use gorgo_routing::model::{CandidateRecord, StoreRecord, TERM_SLOTS, VOID_MILLI};

pub(super) const TABLE: HistoryTable = HistoryTable {
    name: "candidate_terms",
    retention: with_decision!(candidate_terms),
    loss: |record| match record {
        StoreRecord::Decision(decision) => {
            Some(RowLoss::at(decision.received.micros(), terms_of(&decision.candidates)))
        }
        StoreRecord::Candidates { decision, rows, .. } => Some(RowLoss::at(moment_of(*decision), terms_of(rows))),
        _ => None,
    },
    write,
    #[cfg(test)]
    checks: super::Checks { inserts: &[&INSERT], filled_later: &[], others: &[], sample: candidates::sample },
};

const INSERT: InsertStatement =
    insert!(candidate_terms(decision_id, attempt, replica_id, slot, signal_milli, cost_milli));

fn terms_of(candidates: &[CandidateRecord]) -> usize {
    candidates.iter().map(|candidate| candidate.signals_milli.len().saturating_sub(TERM_SLOTS)).sum()
}

/// A term beyond the eighth.
struct TermRow<'r> {
    candidate: CandidateRow<'r>,
    slot: i64,
    signal_milli: i64,
    cost_milli: i64,
}

fn terms(of: CandidateRow<'_>) -> impl Iterator<Item = TermRow<'_>> {
    // Numbered before the skip, so that a slot keeps its number in the policy.
    let slots = (1..).zip(of.row.signals_milli.iter().zip(&of.row.costs_milli)).skip(TERM_SLOTS);
    // A missing row already means that the term gave no signal: none needs to be written.
    let slots = slots.filter(|(_, (signal_milli, _))| **signal_milli != VOID_MILLI);
    slots.map(move |(slot, (signal_milli, cost_milli))| TermRow {
        candidate: of,
        slot,
        signal_milli: *signal_milli,
        cost_milli: *cost_milli,
    })
}

fn write(batch: &Batch<'_>, to: &mut BatchStatements) {
    to.insert(&INSERT, batch.records.iter().flat_map(candidates::of).flat_map(terms), |to, term| {
        to.int("decision_id", term.candidate.decision.0);
        to.int("attempt", term.candidate.attempt);
        to.maybe("replica_id", batch.numbers.replica(term.candidate.row.replica));
        to.int("slot", term.slot);
        to.int("signal_milli", term.signal_milli);
        to.int("cost_milli", term.cost_milli);
    });
}
