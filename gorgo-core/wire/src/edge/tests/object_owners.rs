//! Stateful APIs: an id goes to the engine that holds it.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::fixture::*;
use gorgo_routing::model::ErrorClass;

/// Engine that creates responses whose ids begin with its name, and knows only those.
async fn keeper(name: &'static str) -> ScriptedEngine {
    ScriptedEngine::start(move |asked| {
        let id = format!("resp_{name}");
        if asked.head.starts_with("POST") {
            let known = !asked.text().contains("previous_response_id") || asked.text().contains(&id);
            return whole(if known { 200 } else { 404 }, &format!("{{\"id\":\"{id}\",\"object\":\"response\"}}"));
        }
        let path = asked.head.split(' ').nth(1).unwrap();
        if path.contains(&id) { whole(200, &format!("{{\"id\":\"{id}\"}}")) } else { whole(404, "{\"error\":{}}") }
    })
    .await
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n")
}

#[tokio::test]
async fn a_response_is_continued_where_it_is_held() {
    let (first, second) = (keeper("one").await, keeper("two").await);
    let bench = DataPlaneFixture::start(&[first.address, second.address]).await;
    // The fake router prefers the first; the second holds this one, which was not learned yet.
    let found = bench.raw(get("/v1/responses/resp_two")).await;
    assert_eq!((found.status, found.header("x-gorgo-replica")), (200, Some("e2")));
    let continued = bench.ask("/v1/responses", r#"{"model":"m","previous_response_id":"resp_two"}"#).await;
    assert_eq!((continued.status, continued.header("x-gorgo-replica")), (200, Some("e2")));
    let again = bench.raw(get("/v1/responses/resp_two/input_items")).await;
    assert_eq!((again.status, again.header("x-gorgo-replica")), (200, Some("e2")));
    // A response of the first engine is learned from its own body.
    assert_eq!(bench.ask("/v1/responses", r#"{"model":"m"}"#).await.header("x-gorgo-replica"), Some("e1"));
    assert_eq!(bench.raw(get("/v1/responses/resp_one")).await.status, 200);
    assert_eq!((first.asked().len(), second.asked().len()), (3, 3));
    // No replica has it: the engine's own 404, after all were tried.
    let lost = bench.raw(get("/v1/responses/resp_lost")).await;
    assert_eq!((lost.status, lost.body.as_str()), (404, "{\"error\":{}}"));
    assert_eq!((first.asked().len(), second.asked().len()), (4, 4));
    let outcomes = bench.rows.outcomes_are(6).await;
    assert_eq!(outcomes[5].error, Some(ErrorClass::ClientError));
    assert_eq!(bench.load(), 0);
}

#[tokio::test]
async fn what_one_replica_holds_is_not_asked_of_another() {
    let made = ScriptedEngine::start(|asked| {
        if asked.text().contains("previous") { whole(503, "{}") } else { whole(200, "{\"id\":\"resp_one\"}") }
    })
    .await;
    let other = keeper("two").await;
    let bench = DataPlaneFixture::start(&[made.address, other.address]).await;
    bench.ask("/v1/responses", r#"{"model":"m"}"#).await;
    let answer = bench.ask("/v1/responses", r#"{"model":"m","previous_response_id":"resp_one"}"#).await;
    assert_eq!((answer.status, answer.header("x-gorgo-replica")), (503, Some("e1")));
    assert!(other.asked().is_empty());
}

#[tokio::test]
async fn a_packed_stream_crosses_as_it_is_and_is_read() {
    let text = [event(r#"{"content":"a"}"#).as_str(), FINISH, USAGE, DONE].concat();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    let packed = encoder.finish().unwrap();
    for (cut, error) in [(0, None), (packed.len() / 2, Some(ErrorClass::UpstreamAborted))] {
        let sent = packed[..packed.len() - cut].to_vec();
        let engine = ScriptedEngine::start(move |_| {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n";
            let framed = [format!("{:x}\r\n", sent.len()).as_bytes(), &sent, b"\r\n0\r\n\r\n"].concat();
            vec![send(head), ScriptStep::Send(framed)]
        })
        .await;
        let bench = DataPlaneFixture::start(&[engine.address]).await;
        let answer = bench.ask(CHAT, r#"{"model":"m","stream":true,"stream_options":{}}"#).await;
        assert_eq!(answer.header("content-encoding"), Some("gzip"));
        assert_eq!(answer.complete, error.is_none());
        let outcome = bench.rows.outcome().await;
        assert_eq!(outcome.error, error);
        if error.is_none() {
            assert!(outcome.ttft_us.is_some());
            assert_eq!(outcome.prompt_tokens, Some(9));
        }
    }
}
