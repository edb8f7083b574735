//! `weights`: a row per term and generation of weights that a policy used.

#[cfg(test)]
use super::sample::*;
use super::{HistoryTable, RetentionRule};
use crate::write::batch::Batch;
use crate::write::loss::RowLoss;
use crate::write::statement::{BatchStatements, InsertStatement, insert};
use gorgo_routing::model::StoreRecord;
#[cfg(test)]
use gorgo_routing::model::{Generation, WeightRecord};

pub(super) const TABLE: HistoryTable = HistoryTable {
    name: "weights",
    // A minute before the oldest decision that stays: the minute covers decisions in progress when the weights ended.
    retention: RetentionRule::OnceEnded("DELETE FROM weights WHERE to_us < ?1 - 60000000"),
    loss: |record| match record {
        StoreRecord::Weights(weights) => Some(RowLoss::at(weights.at.micros(), weights.values.len())),
        _ => None,
    },
    write,
    #[cfg(test)]
    checks: super::Checks { inserts: &[&INSERT], filled_later: &["to_us"], others: &[CLOSE], sample },
};

pub(crate) const INSERT: InsertStatement = insert!(weights(run_id, policy_id, generation_id, slot, from_us, value));

/// Ends the weights of a policy that are valid so far. `from_us < ?1`: never those that begin at the same time.
pub(crate) const CLOSE: &str =
    "UPDATE weights SET to_us = ?1 WHERE run_id = ?2 AND policy_id = ?3 AND to_us IS NULL AND from_us < ?1";

fn write(batch: &Batch<'_>, to: &mut BatchStatements) {
    // One by one, in order: two generations in one batch must each end the one before.
    for record in batch.records {
        let StoreRecord::Weights(weights) = record else { continue };
        let (run, policy, from_us) = (batch.numbers.run(), batch.numbers.policy(weights.policy), weights.at.micros());
        to.other(CLOSE, |to| {
            to.int("to_us", from_us);
            to.int("run_id", run);
            to.maybe("policy_id", policy);
        });
        to.insert(&INSERT, (1_i64..).zip(&weights.values), |to, (slot, value)| {
            to.int("run_id", run);
            to.maybe("policy_id", policy);
            to.unsigned("generation_id", weights.generation.0);
            to.int("slot", *slot);
            to.int("from_us", from_us);
            to.real("value", **value);
        });
    }
}

/// Generates weights of a later generation than the one that the run began with.
#[cfg(test)]
fn sample() -> BoxedStrategy<StoreRecord> {
    let record = |(policy, at, generation, values)| {
        StoreRecord::Weights(WeightRecord { policy, at, generation: Generation(generation), values })
    };
    (policy(), at(), 1..=i64::MAX.cast_unsigned(), vec(-1e9..1e9_f64, 1..9)).prop_map(record).boxed()
}
