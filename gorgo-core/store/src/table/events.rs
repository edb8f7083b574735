//! `events`: a row per event that an operator should be able to look up.

#[cfg(test)]
use super::sample::*;
use super::{HistoryTable, RetentionRule};
use crate::write::batch::Batch;
use crate::write::loss::RowLoss;
use crate::write::statement::{BatchStatements, InsertStatement, insert};
#[cfg(test)]
use gorgo_routing::model::EventKind;
use gorgo_routing::model::{EventRecord, StoreRecord};

pub(super) const TABLE: HistoryTable = HistoryTable {
    name: "events",
    retention: RetentionRule::ByAge(
        "DELETE FROM events WHERE event_id IN (SELECT event_id FROM events WHERE at_us < ?1 LIMIT ?2)",
    ),
    loss: |record| row(record).map(|row| RowLoss::at(row.at.micros(), 1)),
    write,
    #[cfg(test)]
    checks: super::Checks { inserts: &[&INSERT], filled_later: &["event_id"], others: &[], sample },
};

const INSERT: InsertStatement = insert!(events(run_id, at_us, kind, replica_id, text));

fn row(record: &StoreRecord) -> Option<&EventRecord> {
    if let StoreRecord::Event(event) = record { Some(event) } else { None }
}

fn write(batch: &Batch<'_>, to: &mut BatchStatements) {
    to.insert(&INSERT, batch.records.iter().filter_map(row), |to, row| {
        to.int("run_id", batch.numbers.run());
        to.int("at_us", row.at.micros());
        to.code("kind", Some(row.kind));
        // NULL for events of the whole process.
        to.maybe("replica_id", row.replica.and_then(|replica| batch.numbers.replica(replica)));
        to.text("text", row.text.as_str());
    });
}

#[cfg(test)]
fn sample() -> BoxedStrategy<StoreRecord> {
    let record = |(at, kind, replica, text)| StoreRecord::Event(EventRecord { at, kind, replica, text });
    (at(), select(&EventKind::ALL[..]), option::of(replica()), any::<String>()).prop_map(record).boxed()
}
