//! Requests that are malformed, too large, compressed, or break off in the middle.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use gorgo_routing::model::{ErrorClass, RefusalReason};

use super::fixture::*;

fn refusals(bench: &DataPlaneFixture) -> Vec<Option<RefusalReason>> {
    bench.rows.decisions().iter().map(|row| row.refusal).collect()
}

#[tokio::test]
async fn bodies_and_headers_cross_byte_for_byte() {
    let strange = concat!(
        r#"{ "model":"m","top_k" : -1,"a":9223372036854775807,"b":1.0,"c":1,"d":{"x":1,"x":2},"#,
        r#""e":"\u00e9é\ud83d\ude00","f":1e400 ,"g":[ ]}"#,
    );
    let answer = r#"{"unknown":{"x":1,"x":2},"n":9223372036854775807 }"#;
    let engine = ScriptedEngine::start(move |_| {
        vec![send(format!(
            "HTTP/1.1 200 OK\r\nx-engine: 1\r\nkeep-alive: timeout=5\r\ncontent-length: {}\r\n\r\n{answer}",
            answer.len()
        ))]
    })
    .await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    let got = bench.ask("/v1/unknown?q=%20a", strange).await;
    assert_eq!((got.status, got.body.as_str()), (200, answer));
    assert_eq!((got.header("x-engine"), got.header("keep-alive")), (Some("1"), None));
    assert_eq!(got.header("content-length"), Some(answer.len().to_string().as_str()));
    let asked = engine.asked().remove(0);
    assert_eq!(asked.text(), strange);
    assert!(asked.head.starts_with("POST /v1/unknown?q=%20a HTTP/1.1\r\n"));
    assert_eq!(asked.header("host"), Some(engine.address.to_string().as_str()));
    assert_eq!(asked.header("x-request-id"), Some(format!("gorgo-{}", got.decision()).as_str()));
}

#[tokio::test]
async fn keys_and_request_ids_are_passed_or_replaced() {
    let engine = ScriptedEngine::start(|_| whole(200, "{}")).await;
    let request = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer client\r\nx-request-id: mine\r\nx-session-id: 12345\r\ncontent-length: {}\r\n\r\n{PLAIN}",
        PLAIN.len()
    );
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    assert_eq!(bench.raw(&request).await.header("x-request-id"), Some("mine"));
    assert_eq!(bench.rows.decisions()[0].session_hash, 5);
    let bench = DataPlaneFixture::start_with(&[engine.address], |settings| {
        settings.key = Some("engine".to_owned());
        settings.server.headers = false;
    })
    .await;
    let answer = bench.raw(&request).await;
    assert_eq!((answer.header("x-gorgo-replica"), answer.header("x-gorgo-decision")), (None, None));
    let keys: Vec<_> = engine.asked().iter().map(|asked| asked.header("authorization").map(str::to_owned)).collect();
    assert_eq!(keys, [Some("Bearer client".to_owned()), Some("Bearer engine".to_owned())]);
    assert!(engine.asked().iter().all(|asked| asked.header("x-request-id") == Some("mine")));
}

#[tokio::test]
async fn what_cannot_be_read_is_400_and_an_unknown_model_404() {
    let engine = ScriptedEngine::start(|_| whole(200, "{}")).await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    let malformed = bench.ask(CHAT, "{").await;
    assert_eq!(malformed.status, 400);
    let error: serde_json::Value = serde_json::from_str(&malformed.body).unwrap();
    insta::assert_snapshot!(error, @r#"{"error":{"code":"malformed_body","message":"the body is not JSON","param":null,"type":"invalid_request_error"}}"#);
    let unknown = bench.ask(CHAT, r#"{"model":"unknown"}"#).await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.body.contains("model_not_found"));
    let outcomes = bench.rows.outcomes_are(2).await;
    assert_eq!(outcomes[0].decision, malformed.decision());
    assert!(outcomes.iter().all(|outcome| outcome.error == Some(ErrorClass::Refused)));
    assert_eq!(refusals(&bench), [Some(RefusalReason::MalformedBody), Some(RefusalReason::UnknownModel)]);
    let nobody = DataPlaneFixture::start(&[]).await;
    let answer = nobody.ask(CHAT, PLAIN).await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    assert_eq!(refusals(&nobody), [Some(RefusalReason::NoReplica)]);
    assert!(engine.asked().is_empty());
}

#[tokio::test]
async fn a_wish_that_cannot_be_read_is_counted_and_the_request_goes_on() {
    let engine = ScriptedEngine::start(|_| whole(200, "{}")).await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    for (wish, counted) in [("800", 0), ("800ms", 1), ("-1", 2)] {
        let length = PLAIN.len();
        let head =
            format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\nx-slo-ttft-ms: {wish}\r\ncontent-length: {length}\r\n\r\n");
        assert_eq!(bench.raw(format!("{head}{PLAIN}")).await.status, 200, "{wish}");
        assert_eq!(bench.unread_hints.get(), counted, "{wish}");
    }
}

#[tokio::test]
async fn the_body_limit_is_a_setting_and_is_named() {
    let engine = ScriptedEngine::start(|_| whole(200, "{}")).await;
    let bench =
        DataPlaneFixture::start_with(&[engine.address], |settings| settings.server.max_body_bytes = 1_000_000).await;
    let fits = format!("{{\"t\":\"{}\"}}", "x".repeat(999_992));
    assert_eq!(fits.len(), 1_000_000);
    assert_eq!(bench.ask(CHAT, &fits).await.status, 200);
    assert_eq!(engine.asked()[0].body.len(), 1_000_000);
    // A client that writes everything before it reads, with a length …
    let over = bench.ask(CHAT, &"x".repeat(3_000_000)).await;
    assert_eq!(over.status, 413);
    assert!(over.body.contains("server.max_body_bytes = 1000000 bytes"));
    // … and without one.
    let mut client = bench.client().await;
    client.write(format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")).await;
    for _ in 0..3 {
        client.write(format!("{:x}\r\n{}\r\n", 1_000_000, "x".repeat(1_000_000))).await;
    }
    client.write("0\r\n\r\n").await;
    assert_eq!(client.answer().await.status, 413);
    // A client that asks first gets the refusal before it sends.
    let mut client = bench.client().await;
    client
        .write(format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 3000000\r\n\r\n"))
        .await;
    assert_eq!(client.answer().await.status, 413);
    bench.rows.outcomes_are(4).await;
    assert_eq!(refusals(&bench)[1..], [Some(RefusalReason::BodyTooLarge); 3]);
    assert_eq!(engine.asked().len(), 1);
}

#[tokio::test]
async fn all_bodies_together_are_bounded_and_given_back() {
    let engine = ScriptedEngine::start(|_| vec![ScriptStep::Hang]).await;
    let bench =
        DataPlaneFixture::start_with(&[engine.address], |settings| settings.server.max_buffered_bytes = 1_000).await;
    let body = format!("{{\"t\":\"{}\"}}", "x".repeat(600));
    let mut first = bench.client().await;
    first.post(CHAT, &body).await;
    engine.wait_for_requests(1).await;
    let refused = bench.ask(CHAT, &body).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert!(refused.body.contains("max_buffered_bytes"));
    drop(first);
    engine.wait_for_disconnects(1).await;
    bench.rows.outcomes_are(2).await;
    assert_eq!(refusals(&bench), [None, Some(RefusalReason::Overloaded)]);
    let mut third = bench.client().await;
    third.post(CHAT, &body).await;
    engine.wait_for_requests(2).await;
}

#[tokio::test]
async fn packed_bodies_are_read_and_go_on_as_they_came() {
    let engine = ScriptedEngine::start(good_stream).await;
    let bench =
        DataPlaneFixture::start_with(&[engine.address], |settings| settings.server.max_body_bytes = 100_000).await;
    let packed = |text: &str| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let request = |encoding: &str, body: &[u8]| {
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-encoding: {encoding}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    };
    let body = packed(STREAM);
    let answer = bench.raw(request("gzip", &body)).await;
    assert!(answer.body.ends_with(DONE));
    let asked = engine.asked().remove(0);
    assert_eq!((asked.body, asked.head.contains("content-encoding: gzip")), (body, true));
    assert_eq!(bench.rows.decisions()[0].model.as_deref(), Some("m"));
    // A decompression bomb, garbage, and a coding that gorgo cannot decompress.
    let bomb = packed(&"x".repeat(10_000_000));
    assert!(bomb.len() < 100_000);
    assert_eq!(bench.raw(request("gzip", &bomb)).await.status, 413);
    assert_eq!(bench.raw(request("gzip", b"rubbish")).await.status, 400);
    let unknown = bench.raw(request("br", b"rubbish")).await;
    assert_eq!(unknown.status, 400);
    assert!(unknown.body.contains("gzip, deflate"));
    bench.rows.outcomes_are(4).await;
    assert_eq!(engine.asked().len(), 1);
}

#[tokio::test]
async fn a_client_that_stops_in_mid_upload_leaves_a_row() {
    let engine = ScriptedEngine::start(|_| whole(200, "{}")).await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    for part in [
        "content-length: 100\r\n\r\n{",
        "transfer-encoding: chunked\r\n\r\n5",
        "transfer-encoding: chunked\r\n\r\n5\r\nab",
    ] {
        let mut client = bench.client().await;
        client.write(format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\n{part}")).await;
        drop(client);
    }
    for outcome in bench.rows.outcomes_are(3).await {
        assert_eq!((outcome.status, outcome.error), (None, Some(ErrorClass::ClientGone)));
    }
    assert_eq!(refusals(&bench), [Some(RefusalReason::ClientGone); 3]);
    let mut client = bench.client().await;
    client.write(format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n")).await;
    assert_eq!(client.answer().await.status, 400);
    for _ in 0..50 {
        assert_eq!(bench.ask(CHAT, PLAIN).await.status, 200);
    }
    assert_eq!(engine.asked().len(), 50);
}

#[tokio::test]
async fn a_body_in_many_pieces_arrives_whole() {
    let engine = ScriptedEngine::start(|_| whole(200, "{}")).await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    let text = format!("{{\"t\":\"{}\"}}", "0123456789".repeat(20_000));
    let mut client = bench.client().await;
    client.write(format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")).await;
    for piece in text.as_bytes().chunks(7_777) {
        client.write([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()).await;
    }
    client.write("0\r\n\r\n").await;
    assert_eq!(client.answer().await.status, 200);
    assert_eq!(engine.asked()[0].text(), text);
    assert_eq!(bench.rows.decisions()[0].body_bytes, u64::try_from(text.len()).unwrap());
}
