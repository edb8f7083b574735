//! What goes in comes out: any decision, attempt and outcome is read back equal, whatever its values.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::RngSeed;

use super::{Bench, id, run_info};
use crate::{Reader, StoredAttempt, StoredDecision};
use gorgo_observe::Listener;
use gorgo_routing::model::{
    ApiPath, At, AttemptRecord, CandidateRecord, Connection, DecisionId, DecisionRecord, ErrorClass, Generation,
    OutcomeRecord, PolicyBuildId, Record, Refusal, ReplicaId, RttSource, ShadowRecord,
};

/// Counts that the database can hold: 63 bits.
fn count() -> impl Strategy<Value = u64> {
    0..=i64::MAX.cast_unsigned()
}

fn candidate(replica: ReplicaId, terms: usize) -> impl Strategy<Value = CandidateRecord> {
    let names = option::of(select(vec!["health", "concentration", "min-share"]));
    let facts = (names, any::<i64>(), option::of(any::<i64>()), select(&RttSource::ALL[..]), any::<u32>());
    let loads = (count(), count(), any::<u32>(), option::of(any::<i64>()));
    let values = (vec(any::<i64>(), terms), vec(any::<i64>(), terms));
    (facts, loads, values).prop_map(move |(facts, loads, values)| CandidateRecord {
        replica,
        excluded_by: facts.0.map(Into::into),
        cost_milli: facts.1,
        rtt_us: facts.2,
        rtt_source: facts.3,
        cached_tokens: facts.4,
        queued_tokens: loads.0,
        queued_uncached_tokens: loads.1,
        inflight: loads.2,
        report_age_ms: loads.3,
        signals_milli: values.0,
        costs_milli: values.1,
    })
}

/// A decision of either policy (3 and 10 terms) among some of the replicas, in any order. Its id is given later.
fn decision() -> impl Strategy<Value = DecisionRecord> {
    let who = (0..2_u16, subsequence(vec![0_u16, 1, 2], 0..=3).prop_shuffle());
    let shape = who.prop_flat_map(|(policy, replicas)| {
        let terms = if policy == 0 { 3 } else { 10 };
        let rows: Vec<_> = replicas.into_iter().map(|replica| candidate(ReplicaId(replica), terms)).collect();
        (Just(PolicyBuildId(policy)), rows)
    });
    let request =
        (select(&ApiPath::ALL[..]), option::of("[a-z0-9/.-]{1,40}"), any::<u64>(), any::<u32>(), count(), count());
    let choice = (option::of(0..3_u16), select(&Refusal::ALL[..]), 0.0..=1.0_f64, any::<u32>(), any::<u64>());
    let rest = (option::of(any::<i64>()), any::<u32>(), any::<u32>(), count(), option::of((0..2_u16, any::<i64>())));
    let arm = option::of((0..2_u8, option::of(any::<u32>()), any::<bool>()));
    (shape, request, choice, rest, arm).prop_map(|(shape, request, choice, rest, arm)| DecisionRecord {
        decision: DecisionId(0),
        received: At(request.5),
        path: request.0,
        model: request.1.map(Into::into),
        session_hash: request.2,
        policy: shape.0,
        generation: Generation(rest.3),
        arm: arm.map(|arm| arm.0),
        block: arm.and_then(|arm| arm.1),
        counted: arm.is_some_and(|arm| arm.2),
        seed: choice.4,
        replica: choice.0.map(ReplicaId),
        refusal: choice.0.is_none().then_some(choice.1),
        propensity: choice.2,
        ties: choice.3,
        prompt_tokens: request.3,
        parent: rest.0.map(DecisionId),
        shared_tokens: rest.1,
        body_bytes: request.4,
        decide_us: rest.2,
        candidates: shape.1,
        shadows: rest
            .4
            .map(|(replica, cost_milli)| ShadowRecord {
                policy: PolicyBuildId(replica),
                replica: ReplicaId(replica),
                cost_milli,
            })
            .into_iter()
            .collect(),
    })
}

fn attempt() -> impl Strategy<Value = AttemptRecord> {
    let times = (option::of(any::<i64>()), option::of(any::<i64>()), option::of(any::<i64>()), any::<i64>());
    let ends = (option::of(any::<u16>()), option::of(select(&ErrorClass::ALL[..])));
    (any::<u16>(), 0..3_u16, option::of(select(&Connection::ALL[..])), times, ends).prop_map(
        |(attempt, replica, connection, times, ends)| AttemptRecord {
            decision: DecisionId(0),
            attempt,
            replica: ReplicaId(replica),
            connection,
            connect_us: times.0,
            sent_us: times.1,
            first_byte_us: times.2,
            ended_us: times.3,
            status: ends.0,
            error: ends.1,
        },
    )
}

fn outcome() -> impl Strategy<Value = OutcomeRecord> {
    let time = || option::of(any::<i64>());
    let tokens = || option::of(any::<u32>());
    let ends = (option::of(any::<u16>()), option::of(select(&ErrorClass::ALL[..])));
    let times = (time(), time(), any::<i64>(), time(), time(), time(), option::of(any::<[u32; 8]>()));
    (ends, times, (tokens(), tokens(), tokens(), tokens())).prop_map(|(ends, times, tokens)| OutcomeRecord {
        decision: DecisionId(0),
        status: ends.0,
        error: ends.1,
        ttft_us: times.0,
        first_byte_us: times.1,
        e2e_us: times.2,
        itl_mean_us: times.3,
        itl_p99_us: times.4,
        itl_counts: times.6,
        prompt_tokens: tokens.0,
        cached_tokens: tokens.1,
        completion_tokens: tokens.2,
        predicted_ttft_us: times.5,
        predicted_cached_tokens: tokens.3,
    })
}

fn replica(name: &str) -> ReplicaId {
    let place = run_info().replicas.iter().position(|replica| replica.name == name).unwrap();
    ReplicaId(u16::try_from(place).unwrap())
}

fn policy(name: &str) -> PolicyBuildId {
    PolicyBuildId(u16::from(name == "wide"))
}

/// The record that a stored decision came from.
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
    fn rows_are_read_back_equal(mut requests in vec((decision(), attempt(), outcome()), 0..130)) {
        for (n, (decision, attempt, outcome)) in (0..).zip(&mut requests) {
            (decision.decision, attempt.decision, outcome.decision) = (id(n), id(n), id(n));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (decisions, attempts, outcomes, lost) = runtime.block_on(async {
            let mut bench = Bench::new();
            bench.settings.flush_decisions = 60;
            let sink = bench.start().await;
            for (decision, attempt, outcome) in requests.clone() {
                sink.record(Record::Decision(Box::new(decision)));
                sink.record(Record::Attempt(attempt));
                sink.record(Record::Outcome(super::ROUTE, Box::new(outcome)));
            }
            sink.finish(super::START).await.unwrap();
            let reader = Reader::open(&bench.path()).await.unwrap();
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

/// The weights a decision was made with come back bit for bit, also after a new generation.
#[tokio::test]
async fn weights_come_back_exactly() {
    let bench = Bench::new();
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
            Record::Decision(Box::new(super::decision(0, 0))),
            Record::Weights(new),
            Record::Decision(Box::new(later)),
        ])
        .await;
    let reader = Reader::open(&bench.path()).await.unwrap();
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
    let bench = Bench::new();
    let model = "é".repeat(300);
    bench
        .write([Record::Decision(Box::new(DecisionRecord { model: Some(model.into()), ..super::decision(0, 0) }))])
        .await;
    let reader = Reader::open(&bench.path()).await.unwrap();
    assert_eq!(reader.newest_decisions(1).await.unwrap()[0].model.as_deref(), Some("é".repeat(100).as_str()));
}
