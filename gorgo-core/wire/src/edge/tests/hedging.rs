//! Hedging: a second replica for a first byte that is late.

use gorgo_routing::model::{EngineKind, ErrorClass, EventKind, ReplicaId, StoreRecord};

use super::fixture::*;

/// Engine that hangs before its first byte until the router disconnects.
async fn hung() -> ScriptedEngine {
    ScriptedEngine::start(|_| vec![ScriptStep::Hang]).await
}

/// Hedges as soon as possible: nothing is known, so after 0.1 × one second.
fn soon_raced(settings: &mut FixtureSettings) {
    settings.failover.hedge.after = 0.1;
    settings.failover.hedge.min_ms = 0;
    settings.engine = EngineKind::OpenAi;
}

fn classes(bench: &DataPlaneFixture) -> Vec<(u16, ReplicaId, Option<ErrorClass>)> {
    let mut rows: Vec<_> = bench.rows.attempts().iter().map(|row| (row.attempt, row.replica, row.error)).collect();
    rows.sort_by_key(|row| row.0);
    rows
}

fn events(bench: &DataPlaneFixture, kind: EventKind) -> usize {
    bench.rows.all().iter().filter(|row| matches!(row, StoreRecord::Event(event) if event.kind == kind)).count()
}

#[tokio::test]
async fn a_late_first_byte_is_raced_and_the_loser_is_aborted() {
    let (late, good) = (hung().await, ScriptedEngine::start(good_stream).await);
    let bench = DataPlaneFixture::start_with(&[late.address, good.address], soon_raced).await;
    let answer = bench.ask(CHAT, STREAM).await;
    assert_eq!((answer.status, answer.header("x-gorgo-replica")), (200, Some("e2")));
    assert!(answer.body.ends_with(DONE));
    late.wait_for_disconnects(1).await;
    let outcome = bench.rows.outcome().await;
    assert_eq!(outcome.error, None);
    assert_eq!(classes(&bench), [(1, ReplicaId(0), Some(ErrorClass::LostHedge)), (2, ReplicaId(1), None)]);
    assert_eq!(bench.load(), 0);
    // The elapsed time is learned, so that a replica which always loses does not look fast.
    let endings = bench.fake.endings.lock().clone();
    let late = endings.iter().find(|ending| ending.usage == gorgo_routing::model::TokenUsage::default()).unwrap();
    assert!(late.ttft_ms.unwrap() >= 99.0, "{endings:?}");
}

#[tokio::test]
async fn the_late_one_may_still_win() {
    let gate = TestLatch::new();
    let (opens, other) = (gate.clone(), hung().await);
    let late = ScriptedEngine::start(move |asked| {
        let mut steps = vec![ScriptStep::Await(opens.clone())];
        steps.extend(good_stream(asked));
        steps
    })
    .await;
    let bench = DataPlaneFixture::start_with(&[late.address, other.address], soon_raced).await;
    let mut client = bench.client().await;
    client.post(CHAT, STREAM).await;
    other.wait_for_requests(1).await;
    gate.open();
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.header("x-gorgo-replica")), (200, Some("e1")));
    other.wait_for_disconnects(1).await;
    bench.rows.outcome().await;
    assert_eq!(classes(&bench), [(1, ReplicaId(0), None), (2, ReplicaId(1), Some(ErrorClass::LostHedge))]);
    assert_eq!(bench.load(), 0);
}

#[tokio::test]
async fn a_rival_that_fails_leaves_the_late_one_its_chance_and_both_may_fail() {
    for late_wins in [true, false] {
        let gate = TestLatch::new();
        let opens = gate.clone();
        let late = ScriptedEngine::start(move |asked| {
            let mut steps = vec![ScriptStep::Await(opens.clone())];
            steps.extend(if late_wins { good_stream(asked) } else { whole(503, "{}") });
            steps
        })
        .await;
        let bad = ScriptedEngine::start(|_| vec![ScriptStep::Close]).await;
        let bench = DataPlaneFixture::start_with(&[late.address, bad.address], soon_raced).await;
        let mut client = bench.client().await;
        client.post(CHAT, STREAM).await;
        bad.wait_for_requests(1).await;
        gate.open();
        let answer = client.answer().await;
        bench.rows.outcome().await;
        let rows = classes(&bench);
        if late_wins {
            assert_eq!(answer.status, 200);
            assert_eq!(rows, [(1, ReplicaId(0), None), (2, ReplicaId(1), Some(ErrorClass::UpstreamClosed))]);
        } else {
            assert!(answer.status == 502 || answer.status == 503, "{answer:?}");
            assert_eq!(rows.iter().filter(|row| row.2.is_some()).count(), 2);
        }
        assert_eq!(bench.load(), 0);
    }
}

#[tokio::test]
async fn a_client_that_leaves_ends_both() {
    let engines = [hung().await, hung().await];
    let bench = DataPlaneFixture::start_with(&[engines[0].address, engines[1].address], soon_raced).await;
    let mut client = bench.client().await;
    client.post(CHAT, STREAM).await;
    engines[0].wait_for_requests(1).await;
    engines[1].wait_for_requests(1).await;
    drop(client);
    engines[0].wait_for_disconnects(1).await;
    engines[1].wait_for_disconnects(1).await;
    assert_eq!(bench.rows.outcome().await.error, Some(ErrorClass::ClientGone));
    assert!(classes(&bench).iter().all(|row| row.2 == Some(ErrorClass::ClientGone)));
    assert_eq!(bench.load(), 0);
}

#[tokio::test]
async fn plain_answers_and_single_attempts_are_never_raced() {
    for (body, attempts) in [(PLAIN, 2), (STREAM, 1)] {
        let engines = [hung().await, hung().await];
        let bench = DataPlaneFixture::start_with(&[engines[0].address, engines[1].address], |settings| {
            soon_raced(settings);
            settings.failover.max_attempts = attempts;
            settings.failover.budget_share = 0.0;
            settings.server.first_byte_timeout_ms = 400;
        })
        .await;
        let first = bench.data.clock.now();
        let _ = bench.ask(CHAT, body).await;
        assert!(bench.data.clock.now().millis_since(first) >= 399.0);
        bench.rows.outcome().await;
        assert!(classes(&bench).iter().all(|row| row.2 == Some(ErrorClass::FirstByteTimeout)));
        assert_eq!(engines[0].asked().len(), 1);
    }
}

#[tokio::test]
async fn a_silent_replica_is_held_back_and_what_waits_there_is_let_go() {
    let (silent, good) = (hung().await, ScriptedEngine::start(good_stream).await);
    let bench = DataPlaneFixture::start_with(&[silent.address, good.address], soon_raced).await;
    for _ in 0..3 {
        assert!(bench.ask(CHAT, STREAM).await.body.ends_with(DONE));
    }
    bench.rows.outcomes_are(3).await;
    assert_eq!(events(&bench, EventKind::ReplicaDown), 1);
    for _ in 0..20 {
        assert_eq!(bench.ask(CHAT, STREAM).await.header("x-gorgo-replica"), Some("e2"));
    }
    assert_eq!(silent.asked().len(), 3);
    assert_eq!(bench.load(), 0);
}
