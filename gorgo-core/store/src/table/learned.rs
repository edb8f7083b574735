//! `learned`: the figures learned about each replica, for a restart; new ones replace those stored before.

#[cfg(test)]
use super::sample::*;
use super::{HistoryTable, RetentionRule};
use crate::write::batch::Batch;
use crate::write::loss::RowLoss;
use crate::write::statement::{BatchStatements, InsertStatement, insert_one};
use gorgo_routing::model::{LearnedRecord, StoreRecord};

pub(super) const TABLE: HistoryTable = HistoryTable {
    name: "learned",
    retention: RetentionRule::ByAge(
        "DELETE FROM learned WHERE replica_id IN (SELECT replica_id FROM learned WHERE at_us < ?1 LIMIT ?2)",
    ),
    loss: |record| row(record).map(|row| RowLoss::at(row.at.micros(), 1)),
    write,
    #[cfg(test)]
    checks: super::Checks { inserts: &[&INSERT], filled_later: &[], others: &[], sample },
};

const INSERT: InsertStatement = insert_one!(
    "INSERT",
    learned(replica_id, at_us, state),
    " ON CONFLICT (replica_id) DO UPDATE SET at_us = excluded.at_us, state = excluded.state"
);

fn row(record: &StoreRecord) -> Option<&LearnedRecord> {
    if let StoreRecord::Learned(learned) = record { Some(learned) } else { None }
}

fn write(batch: &Batch<'_>, to: &mut BatchStatements) {
    // Replaces the row of the replica: only the newest state is of use, and `rates` has the history.
    to.insert(&INSERT, batch.records.iter().filter_map(row), |to, row| {
        to.maybe("replica_id", batch.numbers.replica(row.replica));
        to.int("at_us", row.at.micros());
        to.text("state", row.state.as_str());
    });
}

#[cfg(test)]
fn sample() -> BoxedStrategy<StoreRecord> {
    let record = |(replica, at, state)| StoreRecord::Learned(LearnedRecord { replica, at, state });
    (replica(), at(), any::<String>()).prop_map(record).boxed()
}
