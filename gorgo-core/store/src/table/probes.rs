//! `probes`: a row per probe, with its round trip, or lost.

#[cfg(test)]
use super::sample::*;
use super::{HistoryTable, RetentionRule};
use crate::write::batch::Batch;
use crate::write::loss::RowLoss;
use crate::write::statement::{BatchStatements, InsertStatement, insert};
use gorgo_routing::model::{ProbeRecord, StoreRecord};

pub(super) const TABLE: HistoryTable = HistoryTable {
    name: "probes",
    retention: RetentionRule::ByAge(
        "DELETE FROM probes WHERE (replica_id, at_us) IN (SELECT replica_id, at_us FROM probes \
         WHERE replica_id IN (SELECT replica_id FROM replicas) AND at_us < ?1 LIMIT ?2)",
    ),
    loss: |record| row(record).map(|row| RowLoss::at(row.at.micros(), 1)),
    write,
    #[cfg(test)]
    checks: super::Checks { inserts: &[&INSERT], filled_later: &[], others: &[], sample },
};

const INSERT: InsertStatement = insert!(probes(replica_id, at_us, rtt_us, lost));

fn row(record: &StoreRecord) -> Option<&ProbeRecord> {
    if let StoreRecord::Probe(probe) = record { Some(probe) } else { None }
}

fn write(batch: &Batch<'_>, to: &mut BatchStatements) {
    to.insert(&INSERT, batch.records.iter().filter_map(row), |to, row| {
        to.maybe("replica_id", batch.numbers.replica(row.replica));
        to.int("at_us", row.at.micros());
        to.maybe("rtt_us", row.rtt_us);
        // Redundant with NULL, so that queries can sum it.
        to.int("lost", row.rtt_us.is_none());
    });
}

#[cfg(test)]
fn sample() -> BoxedStrategy<StoreRecord> {
    let record = |(replica, at, rtt_us)| StoreRecord::Probe(ProbeRecord { replica, at, rtt_us });
    (replica(), at(), option::of(any::<i64>())).prop_map(record).boxed()
}
