//! Retries at another replica before the first byte, within the budget, and never after.

use gorgo_routing::model::{ConnectionReuse, ErrorClass, ReplicaId, StoreRecord};

use super::fixture::*;

#[tokio::test]
async fn a_refused_connection_goes_elsewhere_with_the_whole_body_beyond_any_budget() {
    let engine = ScriptedEngine::start(good_stream).await;
    let nowhere = ScriptedEngine::nowhere().await;
    let bench =
        DataPlaneFixture::start_with(&[nowhere, engine.address], |settings| settings.failover.budget_share = 0.0).await;
    let long = format!("{{\"model\":\"m\",\"stream\":true,\"text\":\"{}\"}}", "x".repeat(5 << 20));
    let answer = bench.ask(CHAT, &long).await;
    assert_eq!((answer.status, answer.header("x-gorgo-replica")), (200, Some("e2")));
    assert!(engine.asked()[0].text().ends_with(&long[1..]));
    for _ in 0..30 {
        assert!(bench.ask(CHAT, STREAM).await.body.ends_with(DONE));
    }
    assert!(bench.rows.outcomes_are(31).await.iter().all(|outcome| outcome.error.is_none()));
    let attempts = bench.rows.attempts();
    // After three of them the replica is ejected.
    assert_eq!(attempts.len(), 34);
    for pair in attempts[..6].chunks(2) {
        assert_eq!((pair[0].attempt, pair[0].replica, pair[0].error), (1, ReplicaId(0), Some(ErrorClass::Connect)));
        assert_eq!((pair[0].connection, pair[0].status, pair[0].sent_us), (None, None, None));
        assert_eq!((pair[1].attempt, pair[1].replica, pair[1].error), (2, ReplicaId(1), None));
    }
    let later = bench.rows.all().iter().filter(|row| matches!(row, StoreRecord::Candidates { attempt: 2, .. })).count();
    assert_eq!(later, 3);
    assert_eq!(bench.load(), 0);
}

#[tokio::test]
async fn failures_before_the_first_byte_go_elsewhere() {
    let full = "data: {\"error\": {\"message\": \"queue full\", \"code\": 503}}\n\n";
    let ways: Vec<(Vec<ScriptStep>, ErrorClass)> = vec![
        (vec![ScriptStep::Close], ErrorClass::UpstreamClosed),
        (vec![ScriptStep::Reset], ErrorClass::UpstreamClosed),
        (vec![send("nonsense\r\n\r\n"), ScriptStep::Hang], ErrorClass::UpstreamProtocol),
        (vec![sse_head(), ScriptStep::Close], ErrorClass::UpstreamAborted),
        (vec![sse_head(), last_chunk()], ErrorClass::UpstreamAborted),
        (vec![sse_head(), chunk(full), chunk(DONE), last_chunk()], ErrorClass::UpstreamErrorEvent),
        (whole(502, "{}"), ErrorClass::UpstreamStatus),
        (whole(503, "{}"), ErrorClass::UpstreamStatus),
        (whole(504, "{}"), ErrorClass::UpstreamStatus),
        (vec![ScriptStep::Hang], ErrorClass::FirstByteTimeout),
    ];
    for (steps, class) in ways {
        let bad = ScriptedEngine::start(move |_| steps.clone()).await;
        let good = ScriptedEngine::start(good_stream).await;
        let bench = DataPlaneFixture::start_with(&[bad.address, good.address], |settings| {
            settings.server.first_byte_timeout_ms = 1_000
        })
        .await;
        let answer = bench.ask(CHAT, STREAM).await;
        assert_eq!(answer.status, 200, "{class:?}");
        assert!(answer.body.ends_with(DONE) && !answer.body.contains("error"));
        assert_eq!(bench.rows.outcome().await.error, None);
        let classes: Vec<_> = bench.rows.attempts().iter().map(|row| row.error).collect();
        assert_eq!(classes, [Some(class), None]);
        assert_eq!((bad.asked().len(), good.asked().len()), (1, 1));
        assert_eq!(bench.load(), 0);
    }
}

#[tokio::test]
async fn without_another_replica_the_client_learns_what_happened() {
    let answers: Vec<(Vec<ScriptStep>, u16, ErrorClass)> = vec![
        (vec![ScriptStep::Close], 502, ErrorClass::UpstreamClosed),
        (whole(503, "{\"busy\":1}"), 503, ErrorClass::UpstreamStatus),
        (whole(500, "{\"busy\":1}"), 500, ErrorClass::UpstreamStatus),
    ];
    for (steps, status, class) in answers {
        let engine = ScriptedEngine::start(move |_| steps.clone()).await;
        let bench = DataPlaneFixture::start(&[engine.address]).await;
        let answer = bench.ask(CHAT, PLAIN).await;
        assert_eq!(answer.status, status);
        assert!(answer.body.contains(if status == 502 { "upstream_closed" } else { "{\"busy\":1}" }));
        let outcome = bench.rows.outcome().await;
        assert_eq!((outcome.status, outcome.error), (Some(status), Some(class)));
        assert_eq!(engine.asked().len(), 1);
        assert_eq!(bench.load(), 0);
    }
    let bench = DataPlaneFixture::start(&[ScriptedEngine::nowhere().await]).await;
    let answer = bench.ask(CHAT, PLAIN).await;
    assert_eq!(answer.status, 502);
    assert!(answer.body.contains("upstream_unreachable"));
}

#[tokio::test]
async fn client_errors_and_500_are_passed_on_and_never_repeated() {
    for status in [400, 401, 404, 413, 422, 429, 500] {
        let engine = ScriptedEngine::start(move |_| whole(status, "{\"error\":{\"message\":\"no\"}}")).await;
        let bench = DataPlaneFixture::start(&[engine.address, engine.address]).await;
        let answer = bench.ask(CHAT, PLAIN).await;
        assert_eq!((answer.status, answer.body.as_str()), (status, "{\"error\":{\"message\":\"no\"}}"));
        assert_eq!(engine.asked().len(), 1);
        bench.rows.outcome().await;
    }
}

#[tokio::test]
async fn the_budget_ends_a_storm_of_retries() {
    let bad = ScriptedEngine::start(|_| whole(503, "{}")).await;
    let bench = DataPlaneFixture::start(&[bad.address, bad.address]).await;
    for _ in 0..40 {
        assert_eq!(bench.ask(CHAT, PLAIN).await.status, 503);
    }
    bench.rows.outcomes_are(40).await;
    assert_eq!(bad.asked().len(), 50);
    assert_eq!(bench.load(), 0);
}

#[tokio::test]
async fn one_attempt_means_one() {
    let bad = ScriptedEngine::start(|_| whole(503, "{}")).await;
    let bench =
        DataPlaneFixture::start_with(&[bad.address, bad.address], |settings| settings.failover.max_attempts = 1).await;
    assert_eq!(bench.ask(CHAT, PLAIN).await.status, 503);
    assert_eq!(bad.asked().len(), 1);
    let attempt = bench.rows.attempts().remove(0);
    assert_eq!((attempt.connection, attempt.status), (Some(ConnectionReuse::Fresh), Some(503)));
}
