//! `shadows`: a row per shadow policy and decision.

use super::{HistoryTable, with_decision};
use crate::write::batch::Batch;
use crate::write::loss::RowLoss;
use crate::write::statement::{BatchStatements, InsertStatement, insert};
use gorgo_routing::model::{DecisionId, ShadowRecord, StoreRecord};

pub(super) const TABLE: HistoryTable = HistoryTable {
    name: "shadows",
    retention: with_decision!(shadows),
    // Shadows travel in the decision's record, and are lost with it.
    loss: |record| match record {
        StoreRecord::Decision(decision) => Some(RowLoss::at(decision.received.micros(), decision.shadows.len())),
        _ => None,
    },
    write,
    #[cfg(test)]
    checks: super::Checks { inserts: &[&INSERT], filled_later: &[], others: &[], sample: super::decisions::sample },
};

const INSERT: InsertStatement = insert!(shadows(decision_id, policy_id, replica_id, cost_milli));

fn rows(record: &StoreRecord) -> impl Iterator<Item = (DecisionId, &ShadowRecord)> {
    let (decision, shadows) = match record {
        StoreRecord::Decision(decision) => (decision.decision, decision.shadows.as_slice()),
        _ => (DecisionId(0), [].as_slice()),
    };
    shadows.iter().map(move |shadow| (decision, shadow))
}

fn write(batch: &Batch<'_>, to: &mut BatchStatements) {
    to.insert(&INSERT, batch.records.iter().flat_map(rows), |to, (decision, row)| {
        to.int("decision_id", decision.0);
        to.maybe("policy_id", batch.numbers.policy(row.policy));
        to.maybe("replica_id", batch.numbers.replica(row.replica));
        to.int("cost_milli", row.cost_milli);
    });
}
