//! `rates`: a row per change of a learned rate.

#[cfg(test)]
use super::sample::*;
use super::{HistoryTable, RetentionRule};
use crate::write::batch::Batch;
use crate::write::loss::RowLoss;
use crate::write::statement::{BatchStatements, InsertStatement, insert};
#[cfg(test)]
use gorgo_routing::model::RateKind;
use gorgo_routing::model::{RateRecord, StoreRecord};

pub(super) const TABLE: HistoryTable = HistoryTable {
    name: "rates",
    retention: RetentionRule::ByAge(
        "DELETE FROM rates WHERE (replica_id, kind, at_us) IN (SELECT replica_id, kind, at_us FROM rates \
         WHERE replica_id IN (SELECT replica_id FROM replicas) AND kind IN (SELECT kind FROM rate_kinds) \
         AND at_us < ?1 LIMIT ?2)",
    ),
    loss: |record| row(record).map(|row| RowLoss::at(row.at.micros(), 1)),
    write,
    #[cfg(test)]
    checks: super::Checks { inserts: &[&INSERT], filled_later: &[], others: &[], sample },
};

const INSERT: InsertStatement = insert!(rates(replica_id, kind, at_us, value, low, high, samples));

fn row(record: &StoreRecord) -> Option<&RateRecord> {
    if let StoreRecord::Rate(rate) = record { Some(rate) } else { None }
}

fn write(batch: &Batch<'_>, to: &mut BatchStatements) {
    to.insert(&INSERT, batch.records.iter().filter_map(row), |to, row| {
        to.maybe("replica_id", batch.numbers.replica(row.replica));
        to.code("kind", Some(row.kind));
        to.int("at_us", row.at.micros());
        // Exact, not in thousandths: a rate of 0.02 ms per token would keep two digits only.
        to.real("value", row.value);
        to.real("low", row.low);
        to.real("high", row.high);
        to.unsigned("samples", row.samples);
    });
}

#[cfg(test)]
fn sample() -> BoxedStrategy<StoreRecord> {
    let figure = || -1e9..1e9_f64;
    let all = (replica(), select(&RateKind::ALL[..]), at(), figure(), figure(), figure(), count());
    let record = |(replica, kind, at, value, low, high, samples)| {
        StoreRecord::Rate(RateRecord { replica, kind, at, value, low, high, samples })
    };
    all.prop_map(record).boxed()
}
