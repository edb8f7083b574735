//! `admissions`: a row per attempt that waited at the admission gate.

#[cfg(test)]
use super::sample::*;
use super::{HistoryTable, with_decision};
use crate::write::batch::Batch;
use crate::write::loss::{RowLoss, moment_of};
use crate::write::statement::{BatchStatements, InsertStatement, insert};
#[cfg(test)]
use gorgo_routing::model::AdmissionEnd;
use gorgo_routing::model::{AdmissionRecord, StoreRecord};

pub(super) const TABLE: HistoryTable = HistoryTable {
    name: "admissions",
    retention: with_decision!(admissions),
    loss: |record| row(record).map(|row| RowLoss::at(moment_of(row.decision), 1)),
    write,
    #[cfg(test)]
    checks: super::Checks { inserts: &[&INSERT], filled_later: &[], others: &[], sample },
};

const INSERT: InsertStatement = insert!(admissions(decision_id, attempt, replica_id, moves, wait_us, ended));

fn row(record: &StoreRecord) -> Option<&AdmissionRecord> {
    if let StoreRecord::Hold(hold) = record { Some(hold) } else { None }
}

fn write(batch: &Batch<'_>, to: &mut BatchStatements) {
    to.insert(&INSERT, batch.records.iter().filter_map(row), |to, row| {
        to.int("decision_id", row.decision.0);
        to.int("attempt", row.attempt);
        to.maybe("replica_id", batch.numbers.replica(row.replica));
        to.int("moves", row.moves);
        // A duration, unlike the other `_us` columns of a request, which count from its arrival.
        to.int("wait_us", row.held_us);
        to.code("ended", Some(row.ended));
    });
}

#[cfg(test)]
fn sample() -> BoxedStrategy<StoreRecord> {
    let all = (decision_id(), any::<u16>(), replica(), any::<u16>(), any::<i64>(), select(&AdmissionEnd::ALL[..]));
    let record = |(decision, attempt, replica, moves, held_us, ended)| {
        StoreRecord::Hold(AdmissionRecord { decision, attempt, replica, moves, held_us, ended })
    };
    all.prop_map(record).boxed()
}
