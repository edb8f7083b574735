//! `index_snapshots`: the newest snapshot of each replica's part of the prefix index; a new one replaces it.

#[cfg(test)]
use super::sample::*;
use super::{HistoryTable, RetentionRule};
use crate::write::batch::Batch;
use crate::write::loss::RowLoss;
use crate::write::statement::{BatchStatements, InsertStatement, insert_one};
use gorgo_routing::model::StoreRecord;
#[cfg(test)]
use gorgo_routing::model::{EngineEpoch, IndexRecord};

pub(super) const TABLE: HistoryTable = HistoryTable {
    name: "index_snapshots",
    retention: RetentionRule::ByAge(
        "DELETE FROM index_snapshots WHERE (replica_id, taken_at_us) IN (SELECT replica_id, taken_at_us \
         FROM index_snapshots WHERE replica_id IN (SELECT replica_id FROM replicas) AND taken_at_us < ?1 LIMIT ?2)",
    ),
    loss: |record| match record {
        StoreRecord::Index(index) => Some(RowLoss::at(index.at.micros(), 1)),
        _ => None,
    },
    write,
    #[cfg(test)]
    checks: super::Checks { inserts: &[&INSERT], filled_later: &[], others: &[DROP_OLDER], sample },
};

const INSERT: InsertStatement =
    insert_one!("INSERT OR REPLACE", index_snapshots(replica_id, taken_at_us, engine_epoch, engine_tokens, blocks), "");
const DROP_OLDER: &str = "DELETE FROM index_snapshots WHERE replica_id = ? AND taken_at_us < ?";

fn write(batch: &Batch<'_>, to: &mut BatchStatements) {
    for record in batch.records {
        let StoreRecord::Index(index) = record else { continue };
        // One by one, so that each snapshot removes the ones before it, even those of the same batch.
        let (replica, at_us) = (batch.numbers.replica(index.replica), index.at.micros());
        to.insert(&INSERT, [index], |to, index| {
            to.maybe("replica_id", replica);
            to.int("taken_at_us", at_us);
            to.maybe("engine_epoch", index.engine.started_ms);
            to.real("engine_tokens", index.engine.prompt_tokens);
            to.blob("blocks", &index.blocks);
        });
        // In the same transaction as the INSERT: a crash leaves the old snapshot or the new one, never none.
        to.other(DROP_OLDER, |to| {
            to.maybe("replica_id", replica);
            to.int("taken_at_us", at_us);
        });
    }
}

#[cfg(test)]
fn sample() -> BoxedStrategy<StoreRecord> {
    let engine = (option::of(any::<i64>()), option::of(0.0..1e12_f64));
    let record = |(replica, at, (started_ms, prompt_tokens), blocks)| {
        let engine = EngineEpoch { started_ms, prompt_tokens };
        StoreRecord::Index(Box::new(IndexRecord { replica, at, engine, blocks }))
    };
    (replica(), at(), engine, vec(any::<u8>(), 0..200)).prop_map(record).boxed()
}
