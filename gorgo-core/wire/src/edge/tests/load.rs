//! Load is counted while a request runs, and released once, however it ends.

use std::sync::atomic::Ordering;

use gorgo_routing::model::{ApiPath, ErrorClass};

use super::fixture::*;

#[tokio::test]
async fn requests_aborted_at_any_moment_leave_no_load_behind() {
    // The request contains the engine's behaviour, so that all kinds run at the same time.
    let engine = ScriptedEngine::start(|asked| match asked.text() {
        text if text.contains("silent") => vec![ScriptStep::Hang],
        text if text.contains("head") => vec![sse_head(), ScriptStep::Hang],
        text if text.contains("middle") => vec![sse_head(), chunk(&event(r#"{"content":"a"}"#)), ScriptStep::Hang],
        _ => good_stream(asked),
    })
    .await;
    let bench = DataPlaneFixture::start(&[engine.address, engine.address]).await;
    let mut leaving = Vec::new();
    for model in ["silent", "head", "middle", "silent", "head", "middle"] {
        for _ in 0..10 {
            let mut client = bench.client().await;
            client.post(CHAT, &format!("{{\"model\":\"{model}\",\"stream\":true}}")).await;
            leaving.push(client);
            // A client that never finishes its upload.
            let mut client = bench.client().await;
            client.write(format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{{")).await;
            leaving.push(client);
        }
        assert!(bench.ask(CHAT, STREAM).await.body.ends_with(DONE));
    }
    engine.wait_for_requests(66).await;
    drop(leaving);
    engine.wait_for_disconnects(60).await;
    let outcomes = bench.rows.outcomes_are(126).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.error.is_none()).count(), 6);
    assert_eq!(outcomes.iter().filter(|outcome| outcome.error == Some(ErrorClass::ClientGone)).count(), 120);
    assert_eq!(bench.load(), 0);
    assert_eq!(bench.fake.decoding.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn every_path_is_load_and_is_spread() {
    let engine = ScriptedEngine::start(|_| vec![ScriptStep::Hang]).await;
    for path in ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/generate", "/v1/unknown"] {
        let bench = DataPlaneFixture::start(&[engine.address, engine.address]).await;
        let asked = engine.asked().len();
        let mut clients = Vec::new();
        for _ in 0..20 {
            let mut client = bench.client().await;
            client.post(path, PLAIN).await;
            clients.push(client);
        }
        engine.wait_for_requests(asked + 20).await;
        let loads: Vec<i64> = bench.fake.loads.iter().map(|load| load.load(Ordering::SeqCst)).collect();
        assert_eq!(loads, [10, 10], "{path}");
        assert!(bench.rows.decisions().iter().all(|row| row.path == ApiPath::from_path(path)));
    }
}

#[tokio::test]
async fn the_prefill_is_over_at_the_first_token() {
    let gate = TestLatch::new();
    let first = gate.clone();
    let engine = ScriptedEngine::start(move |_| {
        vec![sse_head(), ScriptStep::Await(first.clone()), chunk(&event(r#"{"content":"a"}"#)), ScriptStep::Hang]
    })
    .await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    let mut client = bench.client().await;
    client.post(CHAT, STREAM).await;
    engine.wait_for_requests(1).await;
    assert_eq!((bench.load(), bench.fake.decoding.load(Ordering::SeqCst)), (1, 0));
    gate.open();
    client.until("\"a\"").await;
    assert_eq!((bench.load(), bench.fake.decoding.load(Ordering::SeqCst)), (1, 1));
    drop(client);
    let outcome = bench.rows.outcome().await;
    assert!(outcome.ttft_us.is_some());
    assert_eq!((bench.load(), bench.fake.decoding.load(Ordering::SeqCst)), (0, 0));
}
