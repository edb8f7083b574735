//! `gaps`: a row per table and batch with lost rows. Made from losses, not from records.

use super::{HistoryTable, RetentionRule, TABLES};
use crate::write::batch::Batch;
use crate::write::statement::{BatchStatements, InsertStatement, insert};

pub(super) const TABLE: HistoryTable = HistoryTable {
    name: "gaps",
    retention: RetentionRule::ByAge(
        "DELETE FROM gaps WHERE gap_id IN (SELECT gap_id FROM gaps WHERE to_us < ?1 LIMIT ?2)",
    ),
    // Losses that cannot be written return to the queue, so that they are never lost themselves.
    loss: |_| None,
    write,
    #[cfg(test)]
    checks: super::Checks {
        inserts: &[&INSERT],
        filled_later: &["gap_id"],
        others: &[],
        sample: super::decisions::sample,
    },
};

const INSERT: InsertStatement = insert!(gaps(run_id, table_name, from_us, to_us, rows));

fn write(batch: &Batch<'_>, to: &mut BatchStatements) {
    to.insert(&INSERT, batch.losses.iter(), |to, (table, loss)| {
        to.int("run_id", batch.numbers.run());
        to.text("table_name", TABLES[*table].name);
        to.int("from_us", loss.from_us);
        to.int("to_us", loss.to_us);
        to.unsigned("rows", loss.rows);
    });
}
