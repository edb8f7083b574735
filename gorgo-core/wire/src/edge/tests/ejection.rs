//! Ejection of replicas for how requests end there, and their return.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gorgo_routing::model::{ErrorClass, EventKind, ReplicaId, StoreRecord};

use super::fixture::*;

fn events(bench: &DataPlaneFixture) -> Vec<(EventKind, String)> {
    let rows = bench.rows.all().into_iter();
    rows.filter_map(|row| match row {
        StoreRecord::Event(event) if event.kind != EventKind::MissingSignal => Some((event.kind, event.text)),
        _ => None,
    })
    .collect()
}

#[tokio::test]
async fn a_replica_that_fails_is_avoided_for_a_while_and_then_tried_by_one() {
    let well = Arc::new(AtomicBool::new(false));
    let engine = {
        let well = Arc::clone(&well);
        ScriptedEngine::start(
            move |asked| if well.load(Ordering::Relaxed) { good_stream(asked) } else { whole(503, "{}") },
        )
        .await
    };
    let good = ScriptedEngine::start(good_stream).await;
    let bench = DataPlaneFixture::start(&[engine.address, good.address]).await;
    for _ in 0..30 {
        assert!(bench.ask(CHAT, STREAM).await.body.ends_with(DONE));
    }
    assert_eq!(engine.asked().len(), 3, "after three failures nobody is sent there");
    well.store(true, Ordering::Relaxed);
    // Probes find it healthy before the ejection is over.
    bench.data.liveness.ejections().probes_recovered(ReplicaId(0));
    assert_eq!(bench.ask(CHAT, STREAM).await.header("x-gorgo-replica"), Some("e1"));
    bench.rows.outcomes_are(31).await;
    let events = events(&bench);
    assert_eq!(
        events,
        [
            (
                EventKind::ReplicaDown,
                "replica e1 is ejected for 2 s: requests to it failed (upstream-status)".to_owned()
            ),
            (EventKind::ReplicaUp, "replica e1 recovered; its share grows slowly".to_owned()),
        ]
    );
    assert_eq!(bench.load(), 0);
}

#[tokio::test]
async fn client_errors_hold_nobody_back() {
    let engine = ScriptedEngine::start(|asked| {
        let status = asked.text();
        let status = status.split("\"n\":").nth(1).and_then(|rest| rest.get(..3)).unwrap().parse().unwrap();
        whole(status, "{}")
    })
    .await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    for status in [400, 401, 404, 413, 422, 429] {
        for _ in 0..10 {
            let body = format!("{{\"model\":\"m\",\"n\":{status}}}");
            assert_eq!(bench.ask(CHAT, &body).await.status, status);
        }
    }
    assert_eq!(bench.ask(CHAT, r#"{"model":"m","n":200}"#).await.status, 200);
    bench.rows.outcomes_are(61).await;
    assert_eq!(events(&bench), []);
}

#[tokio::test]
async fn the_last_one_left_is_still_asked() {
    let engine = ScriptedEngine::start(|_| whole(503, "{\"busy\":1}")).await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    for _ in 0..10 {
        assert_eq!(bench.ask(CHAT, PLAIN).await.body, "{\"busy\":1}");
    }
    assert_eq!(engine.asked().len(), 10);
}

#[tokio::test]
async fn a_wish_to_be_left_alone_is_obeyed_at_once() {
    let busy =
        ScriptedEngine::start(|_| vec![send("HTTP/1.1 503 Busy\r\nretry-after: 20\r\ncontent-length: 2\r\n\r\n{}")])
            .await;
    let good = ScriptedEngine::start(good_stream).await;
    let bench = DataPlaneFixture::start(&[busy.address, good.address]).await;
    for _ in 0..10 {
        assert_eq!(bench.ask(CHAT, STREAM).await.status, 200);
    }
    assert_eq!(busy.asked().len(), 1);
}

#[tokio::test]
async fn a_full_engine_that_says_how_long_is_left_alone_and_the_request_goes_elsewhere() {
    let full = "HTTP/1.1 429 Full\r\nretry-after: 20\r\ncontent-length: 2\r\n\r\n{}";
    let busy = ScriptedEngine::start(move |_| vec![send(full)]).await;
    let good = ScriptedEngine::start(good_stream).await;
    let bench = DataPlaneFixture::start(&[busy.address, good.address]).await;
    for _ in 0..10 {
        assert_eq!(bench.ask(CHAT, STREAM).await.status, 200);
    }
    assert_eq!(busy.asked().len(), 1);
    // No other replica is left: the client gets the response as it is.
    let alone = DataPlaneFixture::start(&[busy.address]).await;
    let answer = alone.ask(CHAT, STREAM).await;
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("20")));
    // The limit of a client's own key says nothing about the replica: other clients still use it.
    let limited = ScriptedEngine::start(move |_| vec![send(full)]).await;
    let other = ScriptedEngine::start(good_stream).await;
    let bench = DataPlaneFixture::start(&[limited.address, other.address]).await;
    for key in ["authorization: Bearer k", "x-api-key: k", "authorization: Bearer k", "x-api-key: k"] {
        let length = STREAM.len();
        let head = format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\n{key}\r\ncontent-length: {length}\r\n\r\n");
        assert_eq!(bench.raw(format!("{head}{STREAM}")).await.status, 200);
    }
    assert!(events(&bench).is_empty(), "no replica is ejected: {:?}", events(&bench));
}

#[tokio::test]
async fn streams_that_break_count_although_they_began_well() {
    let breaks =
        ScriptedEngine::start(|_| vec![sse_head(), chunk(&event("{\"content\":\"a\"}")), ScriptStep::Reset]).await;
    let good = ScriptedEngine::start(good_stream).await;
    let bench = DataPlaneFixture::start(&[breaks.address, good.address]).await;
    for _ in 0..10 {
        bench.ask(CHAT, STREAM).await;
    }
    let outcomes = bench.rows.outcomes_are(10).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.error == Some(ErrorClass::UpstreamAborted)).count(), 3);
    assert_eq!(breaks.asked().len(), 3);
}

#[tokio::test]
async fn connections_that_fail_are_no_attempts_as_long_as_somebody_is_left() {
    let engine = ScriptedEngine::start(good_stream).await;
    let mut addresses = Vec::new();
    for _ in 0..5 {
        addresses.push(ScriptedEngine::nowhere().await);
    }
    addresses.push(engine.address);
    let bench = DataPlaneFixture::start(&addresses).await;
    for _ in 0..4 {
        assert_eq!(bench.ask(CHAT, STREAM).await.header("x-gorgo-replica"), Some("e6"));
    }
    assert_eq!(bench.rows.attempts().iter().filter(|row| row.error == Some(ErrorClass::Connect)).count(), 15);
    assert_eq!(bench.load(), 0);
}
