//! The small client of probe and scrape.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::engine::monitor::mock::{MockEngine, RefusingAddress, TickingClock, redirect, reply};

const LIMIT: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(50);

#[test]
fn the_key_is_in_no_message() {
    let url = || EngineUrl::parse("http://engine").unwrap();
    assert_eq!(HttpEndpoint::new(url(), Some("se\ncret"), HttpVersion::Http1).unwrap_err(), EndpointError::Key);
    let endpoint = HttpEndpoint::new(url(), Some("secret"), HttpVersion::Http1).unwrap();
    assert!(endpoint.bearer().is_some());
    assert!(!format!("{endpoint:?} {:?}", EngineClient::new(endpoint.clone(), TaskTracker::new())).contains("secret"));
}

#[tokio::test]
async fn one_connection_serves_many_requests_and_carries_the_key() {
    let mock = MockEngine::start(|request| {
        let key = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
        reply(200, format!("{} {}", request.uri(), key.unwrap_or_default()))
    })
    .await;
    let (mut client, clock) = (mock.client(Some("k")), TickingClock::new());
    let first = client.get("/a?b=c", 100, LIMIT, &clock).await.unwrap();
    assert_eq!((first.fresh, first.status.as_u16(), &first.body[..]), (true, 200, &b"/a?b=c Bearer k"[..]));
    for _ in 0..20 {
        let next = client.get("/a", 100, LIMIT, &clock).await.unwrap();
        assert!(!next.fresh);
        assert_eq!(
            next.head_at.elapsed_since(next.sent_at),
            Duration::from_millis(1),
            "the clock is read at both ends, no more"
        );
    }
    assert_eq!(mock.connections(), 1);
}

#[tokio::test]
async fn a_connection_that_the_engine_closes_is_opened_again() {
    let mock = MockEngine::start(|_| {
        Some(hyper::Response::builder().header("connection", "close").body(http_body_util::Full::from("bye")).unwrap())
    })
    .await;
    let (mut client, clock) = (mock.client(None), TickingClock::new());
    for n in 1..=3 {
        let answer = client.get("/", 100, LIMIT, &clock).await.unwrap();
        assert_eq!((&answer.body[..], answer.fresh, mock.connections()), (&b"bye"[..], true, n));
    }
}

#[tokio::test]
async fn silence_length_and_absence_are_told_apart() {
    let silent = Arc::new(AtomicBool::new(true));
    let is_silent = silent.clone();
    let mock = MockEngine::start(
        move |_| if is_silent.load(Ordering::Relaxed) { None } else { reply(200, vec![b'x'; 2_000]) },
    )
    .await;
    let (mut client, clock) = (mock.client(None), TickingClock::new());
    let late = client.get("/", 100, SHORT, &clock).await.unwrap_err();
    assert!(matches!(late, EngineClientError::AnswerTimeout(_)) && !late.is_connect(), "{late}");
    assert!(!client.is_open().await, "an exchange that was given up must not be read by the next");
    silent.store(false, Ordering::Relaxed);
    let long = client.get("/", 100, LIMIT, &clock).await.unwrap_err();
    assert_eq!(long.to_string(), "answer is longer than 100 bytes");
    assert_eq!(client.get("/", 2_000, LIMIT, &clock).await.unwrap().body.len(), 2_000);

    let nobody = RefusingAddress::new();
    let mut client = EngineClient::new(nobody.endpoint(), TaskTracker::new());
    let refused = client.get("/", 100, LIMIT, &clock).await.unwrap_err();
    assert!(refused.is_refused() && refused.is_connect(), "{refused}");
    let path = client.get("/ ", 100, LIMIT, &clock).await.unwrap_err();
    assert!(matches!(path, EngineClientError::Path(_)));
}

#[tokio::test]
async fn redirects_are_followed_once_and_never_to_another_host() {
    let mock = MockEngine::start(|request| match request.uri().path() {
        "/metrics" => redirect("http://elsewhere.invalid:9/metrics/"),
        "/loop" => redirect("/loop"),
        path => reply(200, path.to_owned()),
    })
    .await;
    let (mut client, clock) = (mock.client(None), TickingClock::new());
    let (answer, moved) = client.get_following("/metrics", 100, LIMIT, &clock).await.unwrap();
    assert_eq!((&answer.body[..], moved.as_deref()), (&b"/metrics/"[..], Some("/metrics/")));
    let (answer, moved) = client.get_following("/plain", 100, LIMIT, &clock).await.unwrap();
    assert_eq!((&answer.body[..], moved), (&b"/plain"[..], None));
    let (answer, _) = client.get_following("/loop", 100, LIMIT, &clock).await.unwrap();
    assert_eq!(answer.status.as_u16(), 307);
}

#[tokio::test]
async fn http2_with_prior_knowledge_is_spoken_where_configured() {
    let mock = MockEngine::start(|request| {
        let key = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
        reply(200, format!("{:?} {} {}", request.version(), request.uri().path(), key.unwrap_or_default()))
    })
    .await;
    let endpoint = HttpEndpoint::new(EngineUrl::of_socket(mock.address), Some("k"), HttpVersion::Http2).unwrap();
    let (mut client, clock) = (EngineClient::new(endpoint, TaskTracker::new()), TickingClock::new());
    for n in 0..3 {
        let answer = client.get("/a", 100, LIMIT, &clock).await.unwrap();
        assert_eq!((&answer.body[..], answer.fresh), (&b"HTTP/2.0 /a Bearer k"[..], n == 0));
    }
    assert_eq!(mock.connections(), 1);
    mock.stop();
    while client.is_open().await {
        tokio::task::yield_now().await;
    }
}
