//! Shutdown: streams finish, or end as errors when the time is over.

use super::fixture::*;
use gorgo_routing::model::ErrorClass;

#[tokio::test]
async fn a_drain_lets_streams_finish_and_closes_the_idle_at_once() {
    let gate = TestLatch::new();
    let last = gate.clone();
    let engine = ScriptedEngine::start(move |asked| {
        let mut steps = good_stream(asked);
        steps.insert(2, ScriptStep::Await(last.clone()));
        steps
    })
    .await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    let mut streams = Vec::new();
    for _ in 0..5 {
        let mut client = bench.client().await;
        client.post(CHAT, STREAM).await;
        client.until("\"a\"").await;
        streams.push(client);
    }
    let mut idle = bench.client().await;
    idle.write("GET /health HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(idle.answer().await.status, 200);
    let mut mute = bench.client().await;
    bench.shutdown.cancel();
    assert!(idle.is_closed().await);
    assert!(mute.is_closed().await);
    assert!(tokio::net::TcpStream::connect(bench.address).await.is_err(), "new connections are refused");
    assert!(!*bench.served.borrow());
    gate.open();
    for mut client in streams {
        let answer = client.answer().await;
        assert!(answer.body.ends_with(DONE) && answer.complete);
        assert!(client.is_closed().await);
    }
    bench.has_served().await;
    assert!(bench.rows.outcomes_are(5).await.iter().all(|outcome| outcome.error.is_none()));
    // Nothing is left running: not a connection, not a pool.
    bench.tracker.close();
    within_limit(bench.tracker.wait()).await;
}

#[tokio::test]
async fn what_does_not_end_in_time_ends_as_an_error() {
    let engine = ScriptedEngine::start(|asked| {
        if asked.text().contains("silent") {
            return vec![ScriptStep::Hang];
        }
        vec![sse_head(), chunk(&event(r#"{"content":"a"}"#)), ScriptStep::Hang]
    })
    .await;
    for second_signal in [false, true] {
        let bench = DataPlaneFixture::start_with(&[engine.address], |settings| {
            settings.server.drain_secs = if second_signal { 3_600 } else { 0 };
        })
        .await;
        let mut stream = bench.client().await;
        stream.post(CHAT, STREAM).await;
        stream.until("\"a\"").await;
        let mut silent = bench.client().await;
        silent.post(CHAT, r#"{"model":"silent"}"#).await;
        let asked = engine.asked().len();
        engine.wait_for_requests(if second_signal { 4 } else { 2 }.max(asked)).await;
        bench.shutdown.cancel();
        if second_signal {
            bench.data.abort_requests();
        }
        let answer = stream.answer().await;
        assert!(answer.body.contains("data: {\"error\":") && answer.body.contains("router_shutdown"));
        let answer = silent.answer().await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        bench.has_served().await;
        let outcomes = bench.rows.outcomes_are(2).await;
        assert!(outcomes.iter().all(|outcome| outcome.error == Some(ErrorClass::Shutdown)));
        assert_eq!(bench.load(), 0);
    }
}

#[tokio::test]
async fn a_client_that_never_reads_does_not_keep_the_process() {
    let engine = ScriptedEngine::start(|_| vec![sse_head(), ScriptStep::Flood]).await;
    let bench = DataPlaneFixture::start_with(&[engine.address], |settings| settings.server.drain_secs = 0).await;
    let mut client = bench.client().await;
    client.post(CHAT, STREAM).await;
    engine.wait_for_requests(1).await;
    client.until("HTTP/1.1 200").await;
    bench.shutdown.cancel();
    bench.has_served().await;
    assert_eq!(bench.rows.outcome().await.error, Some(ErrorClass::Shutdown));
    assert_eq!(bench.load(), 0);
}
