//! `generation_scores`: a row per statistic and arm of a generation that ended.

use super::{HistoryTable, RetentionRule, generations};
use crate::write::batch::Batch;
use crate::write::loss::RowLoss;
use crate::write::statement::{BatchStatements, InsertStatement, insert};
use gorgo_routing::model::StoreRecord;

pub(super) const TABLE: HistoryTable = HistoryTable {
    name: "generation_scores",
    retention: RetentionRule::Never,
    loss: |record| match record {
        StoreRecord::Generation(generation) => {
            Some(RowLoss::at(generations::moment(generation), generation.scores.len()))
        }
        _ => None,
    },
    write,
    #[cfg(test)]
    checks: super::Checks { inserts: &[&INSERT], filled_later: &[], others: &[], sample: generations::sample },
};

const INSERT: InsertStatement =
    insert!(generation_scores(policy_id, generation_id, arm, statistic, value, low, high, samples));

fn write(batch: &Batch<'_>, to: &mut BatchStatements) {
    // Per record, because the rows need the generation that their scores belong to.
    for record in batch.records {
        let StoreRecord::Generation(generation) = record else { continue };
        to.insert(&INSERT, &generation.scores, |to, score| {
            to.maybe("policy_id", batch.numbers.policy(generation.policy));
            to.unsigned("generation_id", generation.generation.0);
            to.int("arm", score.arm);
            to.text("statistic", score.statistic);
            to.real("value", score.value);
            to.real("low", score.low);
            to.real("high", score.high);
            to.unsigned("samples", score.samples);
        });
    }
}
