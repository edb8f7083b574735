//! `scrapes`: a row per scrape of an engine's metrics page.

#[cfg(test)]
use super::sample::*;
use super::{HistoryTable, RetentionRule};
use crate::write::batch::Batch;
use crate::write::loss::RowLoss;
use crate::write::statement::{BatchStatements, InsertStatement, insert};
use gorgo_routing::model::{ScrapeRecord, StoreRecord};

pub(super) const TABLE: HistoryTable = HistoryTable {
    name: "scrapes",
    retention: RetentionRule::ByAge(
        "DELETE FROM scrapes WHERE (replica_id, at_us) IN (SELECT replica_id, at_us FROM scrapes \
         WHERE replica_id IN (SELECT replica_id FROM replicas) AND at_us < ?1 LIMIT ?2)",
    ),
    loss: |record| row(record).map(|row| RowLoss::at(row.at.micros(), 1)),
    write,
    #[cfg(test)]
    checks: super::Checks { inserts: &[&INSERT], filled_later: &[], others: &[], sample },
};

const INSERT: InsertStatement =
    insert!(scrapes(replica_id, at_us, ok, running, waiting, kv_used_tokens, kv_used_milli, throughput_milli));

fn row(record: &StoreRecord) -> Option<&ScrapeRecord> {
    if let StoreRecord::Scrape(scrape) = record { Some(scrape) } else { None }
}

fn write(batch: &Batch<'_>, to: &mut BatchStatements) {
    to.insert(&INSERT, batch.records.iter().filter_map(row), |to, row| {
        to.maybe("replica_id", batch.numbers.replica(row.replica));
        to.int("at_us", row.at.micros());
        to.int("ok", row.ok);
        // A page that could not be read leaves all figures NULL: unknown is not zero.
        to.count("running", row.running);
        to.count("waiting", row.waiting);
        to.count("kv_used_tokens", row.kv_used_tokens);
        to.milli("kv_used_milli", row.kv_used_share);
        to.milli("throughput_milli", row.throughput);
    });
}

#[cfg(test)]
fn sample() -> BoxedStrategy<StoreRecord> {
    let figure = || option::of(any::<f64>());
    let figures = (figure(), figure(), figure(), figure(), figure());
    let record = |(replica, at, ok, figures): (_, _, _, (_, _, _, _, _))| ScrapeRecord {
        replica,
        at,
        ok,
        running: figures.0,
        waiting: figures.1,
        kv_used_tokens: figures.2,
        kv_used_share: figures.3,
        throughput: figures.4,
    };
    (replica(), at(), any::<bool>(), figures).prop_map(move |all| StoreRecord::Scrape(record(all))).boxed()
}
