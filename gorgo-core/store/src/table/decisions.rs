//! `decisions`: a row per request, routed or refused.

#[cfg(test)]
use super::sample::*;
use super::{HistoryTable, with_decision};
use crate::write::batch::Batch;
use crate::write::loss::RowLoss;
use crate::write::statement::{BatchStatements, InsertStatement, insert};
#[cfg(test)]
use gorgo_routing::model::{ApiPath, DecisionId, Generation, RefusalReason, ReplicaId, ShadowRecord};
use gorgo_routing::model::{DecisionRecord, StoreRecord};

pub(super) const TABLE: HistoryTable = HistoryTable {
    name: "decisions",
    retention: with_decision!(decisions),
    loss: |record| row(record).map(|row| RowLoss::at(row.received.micros(), 1)),
    write,
    #[cfg(test)]
    checks: super::Checks { inserts: &[&INSERT], filled_later: &[], others: &[], sample },
};

const INSERT: InsertStatement = insert!(decisions(
    decision_id,
    run_id,
    received_at_us,
    path,
    model_id,
    session_hash,
    policy_id,
    generation_id,
    arm,
    block,
    counted,
    seed,
    replica_id,
    refusal,
    propensity,
    ties,
    prompt_tokens,
    parent_decision_id,
    shared_tokens,
    body_bytes,
    decide_us,
));

fn row(record: &StoreRecord) -> Option<&DecisionRecord> {
    if let StoreRecord::Decision(decision) = record { Some(decision) } else { None }
}

fn write(batch: &Batch<'_>, to: &mut BatchStatements) {
    let numbers = batch.numbers;
    // A policy without a number breaks NOT NULL, and its row counts as lost; a model without one only loses its name.
    to.insert(&INSERT, batch.records.iter().filter_map(row), |to, row| {
        to.int("decision_id", row.decision.0);
        to.int("run_id", numbers.run());
        to.int("received_at_us", row.received.micros());
        to.code("path", Some(row.path));
        to.maybe("model_id", numbers.model(row.model.as_ref()));
        // Hashes and seeds are 64 bits: SQLite stores the same bits as a signed number.
        to.int("session_hash", row.session_hash.cast_signed());
        to.maybe("policy_id", numbers.policy(row.policy));
        to.unsigned("generation_id", row.generation.0);
        to.maybe("arm", row.arm);
        to.maybe("block", row.block);
        // NULL outside a trial, where nothing counts or not.
        to.maybe("counted", row.arm.map(|_| i64::from(row.counted)));
        to.int("seed", row.seed.cast_signed());
        to.maybe("replica_id", row.replica.and_then(|replica| numbers.replica(replica)));
        to.code("refusal", row.refusal);
        to.real("propensity", row.propensity);
        to.int("ties", row.ties);
        to.int("prompt_tokens", row.prompt_tokens);
        to.maybe("parent_decision_id", row.parent.map(|parent| parent.0));
        to.int("shared_tokens", row.shared_tokens);
        to.unsigned("body_bytes", row.body_bytes);
        to.int("decide_us", row.decide_us);
    });
}

/// Generates a decision of either policy (3 and 10 terms) among some of the replicas, in any order.
#[cfg(test)]
pub(super) fn sample() -> BoxedStrategy<StoreRecord> {
    let who = (policy(), subsequence(vec![0_u16, 1, 2], 0..=3).prop_shuffle());
    let shape = who.prop_flat_map(|(policy, replicas)| {
        let terms = if policy.0 == 0 { 3 } else { 10 };
        let row = |replica| super::candidates::sample_row(ReplicaId(replica), terms);
        (Just(policy), replicas.into_iter().map(row).collect::<Vec<_>>())
    });
    let request =
        (select(&ApiPath::ALL[..]), option::of("[a-z0-9/.-]{1,40}"), any::<u64>(), any::<u32>(), count(), at());
    let choice = (option::of(replica()), select(&RefusalReason::ALL[..]), 0.0..=1.0_f64, any::<u32>(), any::<u64>());
    let rest = (option::of(any::<i64>()), any::<u32>(), any::<u32>(), count());
    let watched = option::of((policy(), replica(), any::<i64>()));
    let watched = watched.prop_map(|shadow| {
        let shadow = shadow.map(|(policy, replica, cost_milli)| ShadowRecord { policy, replica, cost_milli });
        shadow.into_iter().collect()
    });
    let arm = option::of((0..2_u8, option::of(any::<u32>()), any::<bool>()));
    let all = (decision_id(), shape, request, choice, rest, watched, arm);
    all.prop_map(|(decision, shape, request, choice, rest, shadows, arm)| {
        StoreRecord::Decision(Box::new(DecisionRecord {
            decision,
            received: request.5,
            path: request.0,
            model: request.1.map(Into::into),
            session_hash: request.2,
            policy: shape.0,
            generation: Generation(rest.3),
            arm: arm.map(|arm| arm.0),
            block: arm.and_then(|arm| arm.1),
            counted: arm.is_some_and(|arm| arm.2),
            seed: choice.4,
            replica: choice.0,
            refusal: choice.0.is_none().then_some(choice.1),
            propensity: choice.2,
            ties: choice.3,
            prompt_tokens: request.3,
            parent: rest.0.map(DecisionId),
            shared_tokens: rest.1,
            body_bytes: request.4,
            decide_us: rest.2,
            candidates: shape.1,
            shadows,
        }))
    })
    .boxed()
}
