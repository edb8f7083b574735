//! Paths that are served, merged, passed through or refused.

use serde_json::Value;

use super::fixture::*;

fn request(method: &str, path: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: a\r\n\r\n")
}

#[tokio::test]
async fn wrong_methods_are_405_with_the_right_ones() {
    let bench = DataPlaneFixture::start(&[]).await;
    for (method, path, allow) in [
        ("GET", "/v1/chat/completions", "POST, OPTIONS"),
        ("PUT", "/v1/embeddings", "POST, OPTIONS"),
        ("POST", "/v1/models", "GET, HEAD, OPTIONS"),
        ("DELETE", "/health", "GET, HEAD, OPTIONS"),
    ] {
        let answer = bench.raw(request(method, path)).await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)));
        let error: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(error["error"]["code"], "method_not_allowed");
    }
    assert_eq!(bench.raw(request("OPTIONS", CHAT)).await.status, 204);
    assert!(bench.rows.all().is_empty());
}

#[tokio::test]
async fn health_is_always_and_ready_when_told_until_the_drain() {
    let bench = DataPlaneFixture::start(&[]).await;
    assert_eq!(bench.raw(request("GET", "/health")).await.status, 200);
    assert_eq!(bench.raw(request("GET", "/ready")).await.status, 503);
    bench.readiness.set(true);
    assert_eq!(bench.raw(request("GET", "/ready")).await.status, 200);
    bench.shutdown.cancel();
    bench.has_served().await;
    assert!(!bench.data.is_ready());
}

#[tokio::test]
async fn models_are_merged_over_replicas() {
    let lists = |ids: &'static str| {
        move |asked: &ReceivedRequest| {
            if asked.header("authorization") != Some("Bearer k") {
                return whole(401, "{}");
            }
            whole(200, &format!("{{\"object\":\"list\",\"data\":[{ids}]}}"))
        }
    };
    let first = ScriptedEngine::start(lists(r#"{"id":"a","n":1},{"id":"b"}"#)).await;
    let second = ScriptedEngine::start(lists(r#"{"id":"b","n":2},{"id":"c"}"#)).await;
    let nowhere = ScriptedEngine::nowhere().await;
    let bench = DataPlaneFixture::start_with(&[first.address, second.address, nowhere], |settings| {
        settings.key = Some("k".to_owned());
        settings.models = vec!["configured".into(), "a".into()];
    })
    .await;
    let answer = bench.raw(request("GET", "/v1/models")).await;
    insta::assert_snapshot!(answer.body, @r#"{"data":[{"id":"a","n":1},{"id":"b"},{"id":"c"},{"created":0,"id":"configured","object":"model","owned_by":"gorgo"}],"object":"list"}"#);
    assert_eq!(bench.raw(request("GET", "/v1/models/c")).await.body, r#"{"id":"c"}"#);
    assert_eq!(bench.raw(request("GET", "/v1/models/x")).await.status, 404);
    assert!(bench.rows.all().is_empty());
}

#[tokio::test]
async fn other_paths_pass_with_their_method() {
    let engine = ScriptedEngine::start(|asked| {
        if asked.head.starts_with("HEAD") {
            return vec![send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")];
        }
        whole(if asked.head.starts_with("DELETE") { 404 } else { 200 }, "other")
    })
    .await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    assert_eq!(bench.raw(request("GET", "/v1/unknown")).await.body, "other");
    assert_eq!(bench.raw(request("DELETE", "/get_server_info")).await.status, 404);
    let mut client = bench.client().await;
    client.write(request("HEAD", "/v1/unknown")).await;
    client.until("content-length: 5").await;
    let methods: Vec<_> = engine.asked().iter().map(|asked| asked.head.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(methods, ["GET", "DELETE", "HEAD"]);
    bench.rows.outcomes_are(3).await;
    assert_eq!(bench.load(), 0);
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let bench = DataPlaneFixture::start(&[]).await;
    let answer = bench.raw(format!("GET /health HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(100_000))).await;
    assert_eq!(answer.status, 431);
    let many: String = (0..500).map(|index| format!("x-{index}: 1\r\n")).collect();
    assert_eq!(bench.raw(format!("GET /health HTTP/1.1\r\nhost: a\r\n{many}\r\n")).await.status, 431);
}

#[tokio::test]
async fn an_engines_own_paths_can_be_kept_from_clients() {
    let engine = ScriptedEngine::start(|_| whole(200, "{}")).await;
    let closed =
        DataPlaneFixture::start_with(&[engine.address], |settings| settings.server.pass_engine_paths = false).await;
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    for path in ["/metrics", "/flush_cache"] {
        assert_eq!(closed.raw(get(path)).await.status, 404, "{path}");
    }
    assert_eq!(engine.asked().len(), 0);
    assert_eq!(closed.raw(get("/v1/files/x")).await.status, 200);
    let open = DataPlaneFixture::start(&[engine.address]).await;
    assert_eq!(open.raw(get("/metrics")).await.status, 200);
}
