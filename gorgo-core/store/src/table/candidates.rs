//! `candidates`: a row per replica that a decision chose among, of the first attempt and of later ones. The row
//! contains signals and costs of the first eight term slots; `candidate_terms` has the rest.

#[cfg(test)]
use super::sample::*;
use super::{HistoryTable, with_decision};
use crate::write::batch::Batch;
use crate::write::loss::{RowLoss, moment_of};
use crate::write::statement::{BatchStatements, InsertStatement, StatementParameters, insert};
use gorgo_routing::model::{CandidateRecord, DecisionId, StoreRecord, VOID_MILLI};
#[cfg(test)]
use gorgo_routing::model::{ReplicaId, RttSource};

pub(super) const TABLE: HistoryTable = HistoryTable {
    name: "candidates",
    retention: with_decision!(candidates),
    loss: |record| {
        let (at_us, rows) = match record {
            StoreRecord::Decision(decision) => (decision.received.micros(), &decision.candidates),
            StoreRecord::Candidates { decision, rows, .. } => (moment_of(*decision), rows),
            _ => return None,
        };
        // One row of this table per candidate, whatever the number of terms.
        Some(RowLoss::at(at_us, rows.len()))
    },
    write,
    #[cfg(test)]
    checks: super::Checks { inserts: &[&INSERT_4, &INSERT_8], filled_later: &[], others: &[], sample },
};

/// INSERT for policies of up to four terms, with fewer parameters to bind.
const INSERT_4: InsertStatement = insert!(candidates(
    decision_id,
    attempt,
    replica_id,
    position,
    excluded_by,
    cost_milli,
    rtt_us,
    rtt_source,
    cached_tokens,
    queued_tokens,
    queued_uncached_tokens,
    inflight,
    report_age_ms,
    s1_milli,
    s2_milli,
    s3_milli,
    s4_milli,
    c1_milli,
    c2_milli,
    c3_milli,
    c4_milli,
));

const INSERT_8: InsertStatement = insert!(candidates(
    decision_id,
    attempt,
    replica_id,
    position,
    excluded_by,
    cost_milli,
    rtt_us,
    rtt_source,
    cached_tokens,
    queued_tokens,
    queued_uncached_tokens,
    inflight,
    report_age_ms,
    s1_milli,
    s2_milli,
    s3_milli,
    s4_milli,
    s5_milli,
    s6_milli,
    s7_milli,
    s8_milli,
    c1_milli,
    c2_milli,
    c3_milli,
    c4_milli,
    c5_milli,
    c6_milli,
    c7_milli,
    c8_milli,
));

const SIGNALS: [&str; 8] =
    ["s1_milli", "s2_milli", "s3_milli", "s4_milli", "s5_milli", "s6_milli", "s7_milli", "s8_milli"];
const COSTS: [&str; 8] =
    ["c1_milli", "c2_milli", "c3_milli", "c4_milli", "c5_milli", "c6_milli", "c7_milli", "c8_milli"];

/// Candidate with the columns of its row that are not in its record.
#[derive(Debug, Clone, Copy)]
pub(super) struct CandidateRow<'r> {
    pub(super) decision: DecisionId,
    pub(super) attempt: u16,
    position: i64,
    pub(super) row: &'r CandidateRecord,
}

/// Iterates over the candidates of a record, in the order in which the decision saw them.
pub(super) fn of(record: &StoreRecord) -> impl Iterator<Item = CandidateRow<'_>> {
    let (decision, attempt, rows) = match record {
        // A decision's record has the candidates of the first attempt; later attempts have their own records.
        StoreRecord::Decision(decision) => (decision.decision, 1, decision.candidates.as_slice()),
        StoreRecord::Candidates { decision, attempt, rows } => (*decision, *attempt, rows.as_slice()),
        _ => (DecisionId(0), 0, [].as_slice()),
    };
    (0..).zip(rows).map(move |(position, row)| CandidateRow { decision, attempt, position, row })
}

fn write(batch: &Batch<'_>, to: &mut BatchStatements) {
    // Candidates are most of the rows of a history: binding eight NULLs less in each is worth a second statement.
    let few = |candidate: &CandidateRow<'_>| candidate.row.signals_milli.len() <= 4;
    // A closure, because the records are iterated once per statement.
    let all = || batch.records.iter().flat_map(of);
    to.insert(&INSERT_4, all().filter(few), |to, row| bind(batch, to, row, 4));
    to.insert(&INSERT_8, all().filter(|row| !few(row)), |to, row| bind(batch, to, row, 8));
}

fn bind(batch: &Batch<'_>, to: &mut StatementParameters, candidate: &CandidateRow<'_>, slots: usize) {
    let row = candidate.row;
    // In the order of both INSERTs, which differ only in the number of slots.
    to.int("decision_id", candidate.decision.0);
    to.int("attempt", candidate.attempt);
    to.maybe("replica_id", batch.numbers.replica(row.replica));
    to.int("position", candidate.position);
    // NULL also for a constraint whose name came after the limit of names.
    to.maybe("excluded_by", batch.numbers.constraint(row.excluded_by.as_ref()));
    to.int("cost_milli", row.cost_milli);
    to.maybe("rtt_us", row.rtt_us);
    to.code("rtt_source", Some(row.rtt_source));
    to.int("cached_tokens", row.cached_tokens);
    to.unsigned("queued_tokens", row.queued_tokens);
    to.unsigned("queued_uncached_tokens", row.queued_uncached_tokens);
    to.int("inflight", row.inflight);
    to.maybe("report_age_ms", row.report_age_ms);
    // Slots beyond the policy's terms and terms without a signal are both NULL.
    for (columns, values) in [(&SIGNALS, &row.signals_milli), (&COSTS, &row.costs_milli)] {
        for (slot, column) in columns.iter().take(slots).enumerate() {
            to.maybe(column, values.get(slot).copied().filter(|milli| *milli != VOID_MILLI));
        }
    }
}

/// Generates a later attempt of a request, with ten terms.
#[cfg(test)]
pub(super) fn sample() -> BoxedStrategy<StoreRecord> {
    let rows = subsequence(vec![0_u16, 1, 2], 1..=3).prop_shuffle().prop_flat_map(|replicas| {
        replicas.into_iter().map(|replica| sample_row(ReplicaId(replica), 10)).collect::<Vec<_>>()
    });
    let record = |(decision, attempt, rows)| StoreRecord::Candidates { decision, attempt, rows };
    (decision_id(), 2..9_u16, rows).prop_map(record).boxed()
}

#[cfg(test)]
pub(super) fn sample_row(replica: ReplicaId, terms: usize) -> impl Strategy<Value = CandidateRecord> {
    let names = option::of(select(vec!["health", "concentration", "min-share"]));
    let facts = (names, any::<i64>(), option::of(any::<i64>()), select(&RttSource::ALL[..]), any::<u32>());
    let loads = (count(), count(), any::<u32>(), option::of(any::<i64>()));
    let values = (vec(any::<i64>(), terms), vec(any::<i64>(), terms));
    (facts, loads, values).prop_map(move |(facts, loads, values)| CandidateRecord {
        replica,
        excluded_by: facts.0.map(Into::into),
        cost_milli: facts.1,
        rtt_us: facts.2,
        rtt_source: facts.3,
        cached_tokens: facts.4,
        queued_tokens: loads.0,
        queued_uncached_tokens: loads.1,
        inflight: loads.2,
        report_age_ms: loads.3,
        signals_milli: values.0,
        costs_milli: values.1,
    })
}
