//! Round trip: any decision, attempt and outcome is read back equal, whatever its values.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::{StoreFixture, id, run_info};
use crate::table::TABLES;
use crate::{HistoryReader, StoredAttempt, StoredDecision};
use gorgo_observe::RecordListener;
use gorgo_routing::model::{
    AttemptRecord, CandidateRecord, DecisionId, DecisionRecord, Generation, OutcomeRecord, PolicyBuildId, ReplicaId,
    ShadowRecord, StoreRecord,
};

/// A request: its decision, an attempt and its outcome, whose ids are assigned later.
fn request() -> impl Strategy<Value = (DecisionRecord, AttemptRecord, OutcomeRecord)> {
    let sample = |name| (TABLES.iter().find(|table| table.name == name).unwrap().checks.sample)();
    let decision = sample("decisions").prop_map(|record| match record {
        StoreRecord::Decision(decision) => *decision,
        other => panic!("{other:?}"),
    });
    let attempt = sample("attempts").prop_map(|record| match record {
        StoreRecord::Attempt(attempt) => attempt,
        other => panic!("{other:?}"),
    });
    let outcome = sample("outcomes").prop_map(|record| match record {
        StoreRecord::Outcome(_, outcome) => *outcome,
        other => panic!("{other:?}"),
    });
    (decision, attempt, outcome)
}

fn replica(name: &str) -> ReplicaId {
    let place = run_info().replicas.iter().position(|replica| replica.name == name).unwrap();
    ReplicaId(u16::try_from(place).unwrap())
}

fn policy(name: &str) -> PolicyBuildId {
    PolicyBuildId(u16::from(name == "wide"))
}

/// Returns the record that a stored decision came from.
fn decision_again(stored: StoredDecision) -> DecisionRecord {
    let candidate = |row: crate::StoredCandidate| CandidateRecord {
        replica: replica(&row.replica),
        excluded_by: row.excluded_by,
        cost_milli: row.cost_milli,
        rtt_us: row.rtt_us,
        rtt_source: row.rtt_source,
        cached_tokens: row.cached_tokens,
        queued_tokens: row.queued_tokens,
        queued_uncached_tokens: row.queued_uncached_tokens,
        inflight: row.inflight,
        report_age_ms: row.report_age_ms,
        signals_milli: row.signals_milli,
        costs_milli: row.costs_milli,
    };
    let shadow = |row: crate::StoredShadow| ShadowRecord {
        policy: policy(&row.policy),
        replica: replica(&row.replica),
        cost_milli: row.cost_milli,
    };
    DecisionRecord {
        decision: stored.decision,
        received: stored.received,
        path: stored.path,
        model: stored.model,
        session_hash: stored.session_hash,
        policy: policy(&stored.policy.name),
        generation: stored.generation,
        arm: stored.arm,
        block: stored.block,
        counted: stored.counted,
        seed: stored.seed,
        replica: stored.replica.map(|name| replica(&name)),
        refusal: stored.refusal,
        propensity: stored.propensity,
        ties: stored.ties,
        prompt_tokens: stored.prompt_tokens,
        parent: stored.parent,
        shared_tokens: stored.shared_tokens,
        body_bytes: stored.body_bytes,
        decide_us: stored.decide_us,
        candidates: stored.candidates.into_iter().map(candidate).collect(),
        shadows: stored.shadows.into_iter().map(shadow).collect(),
    }
}

fn attempt_again(stored: StoredAttempt) -> AttemptRecord {
    AttemptRecord {
        decision: stored.decision,
        attempt: stored.attempt,
        replica: replica(&stored.replica),
        connection: stored.connection,
        connect_us: stored.connect_us,
        sent_us: stored.sent_us,
        first_byte_us: stored.first_byte_us,
        ended_us: stored.ended_us,
        status: stored.status,
        error: stored.error,
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        rng_seed: RngSeed::Fixed(20_261_130),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Up to 130 requests, so that statements of fifty, ten and one row are used, in batches of 60 decisions.
    #[test]
    fn rows_are_read_back_equal(mut requests in vec(request(), 0..130)) {
        for (n, (decision, attempt, outcome)) in (0..).zip(&mut requests) {
            (decision.decision, attempt.decision, outcome.decision) = (id(n), id(n), id(n));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (decisions, attempts, outcomes, lost) = runtime.block_on(async {
            let mut bench = StoreFixture::new();
            bench.settings.flush_decisions = 60;
            let sink = bench.start().await;
            for (decision, attempt, outcome) in requests.clone() {
                sink.record(StoreRecord::Decision(Box::new(decision)));
                sink.record(StoreRecord::Attempt(attempt));
                sink.record(StoreRecord::Outcome(super::ROUTE, Box::new(outcome)));
            }
            sink.finish(super::START).await.unwrap();
            let reader = HistoryReader::open(&bench.path()).await.unwrap();
            let first = DecisionId(0);
            let decisions = reader.decisions(first, 1_000).await.unwrap();
            assert_eq!(reader.newest_decisions(7).await.unwrap(), decisions[decisions.len().saturating_sub(7)..]);
            let attempts = reader.attempts(first, 1_000).await.unwrap();
            let outcomes = reader.outcomes(first, 1_000).await.unwrap();
            (decisions, attempts, outcomes, sink.dropped_rows())
        });
        prop_assert_eq!(lost, 0);
        for stored in &decisions {
            prop_assert_eq!(stored.weights.is_empty(), stored.generation.0 != 0);
            let chosen = stored.row().map(|row| stored.candidates[row].replica.clone());
            prop_assert!(chosen.is_none() || chosen == stored.replica);
        }
        let decisions: Vec<_> = decisions.into_iter().map(decision_again).collect();
        let attempts: Vec<_> = attempts.into_iter().map(attempt_again).collect();
        prop_assert_eq!(decisions, requests.iter().map(|request| request.0.clone()).collect::<Vec<_>>());
        prop_assert_eq!(attempts, requests.iter().map(|request| request.1.clone()).collect::<Vec<_>>());
        prop_assert_eq!(outcomes, requests.iter().map(|request| request.2.clone()).collect::<Vec<_>>());
    }
}

/// The weights of a decision are read back bit for bit, even after a new generation.
#[tokio::test]
async fn weights_come_back_exactly() {
    let bench = StoreFixture::new();
    let values = vec![0.1 + 0.2, f64::MIN_POSITIVE, 1.0 / 3.0];
    let new = gorgo_routing::model::WeightRecord {
        policy: PolicyBuildId(0),
        at: super::at(1),
        generation: Generation(1),
        values: values.clone(),
    };
    let later = DecisionRecord { generation: Generation(1), ..super::decision(1, 0) };
    bench
        .write([
            StoreRecord::Decision(Box::new(super::decision(0, 0))),
            StoreRecord::Weights(new),
            StoreRecord::Decision(Box::new(later)),
        ])
        .await;
    let reader = HistoryReader::open(&bench.path()).await.unwrap();
    let decisions = reader.newest_decisions(10).await.unwrap();
    assert_eq!(*decisions[0].weights, [0.276, 1.0, 0.5]);
    assert_eq!(*decisions[1].weights, *values);
    assert_eq!(
        decisions[1].policy.terms.iter().map(|term| term.name.as_str()).collect::<Vec<_>>(),
        ["rtt", "prefill", "queue"]
    );
}

/// Clients choose model names: long ones are cut, and text that is not ASCII is cut between characters.
#[tokio::test]
async fn a_long_model_name_is_cut() {
    let bench = StoreFixture::new();
    let model = "é".repeat(300);
    bench
        .write([StoreRecord::Decision(Box::new(DecisionRecord { model: Some(model.into()), ..super::decision(0, 0) }))])
        .await;
    let reader = HistoryReader::open(&bench.path()).await.unwrap();
    assert_eq!(reader.newest_decisions(1).await.unwrap()[0].model.as_deref(), Some("é".repeat(100).as_str()));
}
