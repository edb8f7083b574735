//! Connections to engines: reused, closed in time, opened ahead, and still in step after early responses.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::{broadcast, watch};
use tokio_util::task::TaskTracker;

use super::super::listen::TrackerExecutor;
use super::super::upstream::dial::tell_name;
use super::fixture::*;
use gorgo_routing::config::HttpVersion;
use gorgo_routing::model::{ConnectionReuse, ErrorClass, FleetEvent, ReplicaId};

fn kinds(bench: &DataPlaneFixture) -> Vec<Option<ConnectionReuse>> {
    bench.rows.attempts().iter().map(|row| row.connection).collect()
}

#[tokio::test]
async fn connections_are_kept_and_used_again() {
    let engine = ScriptedEngine::start(good_stream).await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    for _ in 0..3 {
        bench.ask(CHAT, STREAM).await;
    }
    bench.rows.outcomes_are(3).await;
    assert_eq!(kinds(&bench), [Some(ConnectionReuse::Fresh), Some(ConnectionReuse::Warm), Some(ConnectionReuse::Warm)]);
    let attempts = bench.rows.attempts();
    assert!(attempts[0].connect_us.unwrap() > 0 && attempts[1].connect_us == Some(0));
    assert!(engine.asked().iter().all(|asked| asked.connection == 1));
}

#[tokio::test]
async fn a_connection_that_the_engine_closed_is_not_used() {
    let engine = ScriptedEngine::start(|_| [whole(200, "{}"), vec![ScriptStep::Close]].concat()).await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    for count in 1..=20 {
        assert_eq!(bench.ask(CHAT, PLAIN).await.status, 200);
        assert_eq!(engine.asked().len(), count, "each request is seen once");
    }
    bench.rows.outcomes_are(20).await;
    assert_eq!(bench.rows.attempts().len(), 20);
    assert!(bench.rows.attempts().iter().all(|row| row.error.is_none()));
}

#[tokio::test]
async fn a_connection_is_given_up_before_the_engines_own_limit() {
    let engine = ScriptedEngine::start(|_| {
        vec![send("HTTP/1.1 200 OK\r\nkeep-alive: timeout=1\r\ncontent-length: 2\r\n\r\n{}")]
    })
    .await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    bench.ask(CHAT, PLAIN).await;
    bench.ask(CHAT, PLAIN).await;
    bench.rows.outcomes_are(2).await;
    assert_eq!(kinds(&bench), [Some(ConnectionReuse::Fresh), Some(ConnectionReuse::Fresh)]);
}

#[tokio::test]
async fn an_answer_before_the_upload_ended_leaves_later_requests_right() {
    // The engine answers 400 after 64 KiB, keeps the connection, and reads no further.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tasks = TaskTracker::new();
    tasks.spawn({
        let tasks = tasks.clone();
        async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            while let Ok((mut stream, _)) = listener.accept().await {
                tasks.spawn(async move {
                    let mut bytes = vec![0; 64 << 10];
                    loop {
                        let mut read = 0;
                        while !bytes[..read].windows(4).any(|window| window == b"\r\n\r\n") {
                            match stream.read(&mut bytes[read..]).await {
                                Ok(more) if more > 0 => read += more,
                                _ => return,
                            }
                        }
                        let head = String::from_utf8_lossy(&bytes[..read]).into_owned();
                        let long = head.contains("content-length: 2097");
                        let (status, body) = if long { (400, "{\"early\":1}") } else { (200, "{\"right\":1}") };
                        let length = body.len();
                        let text = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}");
                        if stream.write_all(text.as_bytes()).await.is_err() {
                            return;
                        }
                        if long {
                            std::future::pending::<()>().await;
                        }
                    }
                });
            }
        }
    });
    let bench = DataPlaneFixture::start(&[address]).await;
    let long = format!("{{\"model\":\"m\",\"t\":\"{}\"}}", "x".repeat((20 << 20) - 100));
    assert_eq!(long.len() / 10_000, 2097, "the engine tells it by its length");
    let answer = bench.ask(CHAT, &long).await;
    assert_eq!((answer.status, answer.body.as_str()), (400, "{\"early\":1}"));
    for _ in 0..50 {
        let answer = bench.ask(CHAT, PLAIN).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "{\"right\":1}"));
    }
    assert_eq!(bench.rows.outcomes_are(51).await[0].error, Some(ErrorClass::ClientError));
    assert_eq!(bench.load(), 0);
}

/// HTTP/2 engine that answers with the protocol's version and the request that it received.
struct Http2Engine {
    address: SocketAddr,
    /// Connections accepted so far.
    accepted: watch::Sender<usize>,
    /// Ends all connections that are open.
    cut: broadcast::Sender<()>,
}

async fn http2_engine(tasks: &TaskTracker) -> Http2Engine {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let engine = Http2Engine {
        address: listener.local_addr().unwrap(),
        accepted: watch::Sender::new(0),
        cut: broadcast::Sender::new(1),
    };
    let spawner = tasks.clone();
    let (accepted, cut) = (engine.accepted.clone(), engine.cut.clone());
    tasks.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut cut = cut.subscribe();
            accepted.send_modify(|count| *count += 1);
            let answer = |request: Request<Incoming>| async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let text = format!("{{\"v\":\"{:?}\",\"uri\":\"{}\",\"n\":{}}}", head.version, head.uri, body.len());
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text))))
            };
            let connection = hyper::server::conn::http2::Builder::new(TrackerExecutor(spawner.clone()))
                .serve_connection(TokioIo::new(stream), service_fn(answer));
            spawner.spawn(async move {
                tokio::select! {
                    _ = connection => {}
                    _ = cut.recv() => {}
                }
            });
        }
    });
    engine
}

#[tokio::test]
async fn http2_engines_share_one_connection() {
    let tasks = TaskTracker::new();
    let address = http2_engine(&tasks).await.address;
    let bench = DataPlaneFixture::start_with(&[address], |settings| settings.http = HttpVersion::Http2).await;
    for _ in 0..3 {
        let answer = bench.ask(CHAT, PLAIN).await;
        assert_eq!(
            answer.body,
            format!("{{\"v\":\"HTTP/2.0\",\"uri\":\"http://{address}{CHAT}\",\"n\":{}}}", PLAIN.len())
        );
    }
    bench.rows.outcomes_are(3).await;
    assert_eq!(kinds(&bench), [Some(ConnectionReuse::Fresh), Some(ConnectionReuse::Warm), Some(ConnectionReuse::Warm)]);
    bench.shutdown.cancel();
    bench.has_served().await;
}

#[tokio::test]
async fn the_shared_connection_is_opened_ahead_and_again_when_it_ends() {
    let tasks = TaskTracker::new();
    let engine = http2_engine(&tasks).await;
    let bench = DataPlaneFixture::start_with(&[engine.address], |settings| {
        settings.http = HttpVersion::Http2;
        settings.server.spare_connections = 4;
    })
    .await;
    let accepted = |count| {
        let mut accepted = engine.accepted.subscribe();
        async move { *within_limit(accepted.wait_for(|accepted| *accepted >= count)).await.unwrap() }
    };
    assert_eq!(accepted(1).await, 1, "nobody asked for anything yet");
    assert_eq!(bench.ask(CHAT, PLAIN).await.status, 200);
    engine.cut.send(()).unwrap();
    assert_eq!(accepted(2).await, 2, "one, not as many as are spare");
    assert_eq!(bench.ask(CHAT, PLAIN).await.status, 200);
    bench.rows.outcomes_are(2).await;
    assert_eq!(kinds(&bench), [Some(ConnectionReuse::Warm), Some(ConnectionReuse::Warm)]);
    assert_eq!(accepted(2).await, 2);
    bench.shutdown.cancel();
    bench.has_served().await;
}

#[tokio::test]
async fn a_name_is_looked_up_at_each_dial() {
    let (here, there) = (closing(r#"{"here":1}"#).await, closing(r#"{"there":1}"#).await);
    let name = "moves.gorgo.invalid";
    tell_name(name, here.address);
    let bench = DataPlaneFixture::start_with(&[here.address], |settings| settings.host = Some(name.to_owned())).await;
    assert_eq!(bench.ask(CHAT, PLAIN).await.body, r#"{"here":1}"#);
    tell_name(name, there.address);
    assert_eq!(bench.ask(CHAT, PLAIN).await.body, r#"{"there":1}"#);
    assert_eq!((here.asked().len(), there.asked().len()), (1, 1));
    assert_eq!(there.asked()[0].header("host"), Some(&*format!("{name}:{}", here.address.port())));
}

/// Engine that closes each connection after its response.
async fn closing(answer: &'static str) -> ScriptedEngine {
    ScriptedEngine::start(move |_| [whole(200, answer), vec![ScriptStep::Close]].concat()).await
}

/// Body of unknown length, frame by frame.
struct UnsizedBody(VecDeque<Bytes>);

impl Body for UnsizedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.get_mut().0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

#[tokio::test]
async fn http2_bodies_that_end_in_an_empty_frame_leave_later_requests_right() {
    let engine = ScriptedEngine::start(|_| whole(200, "{}")).await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    let stream = tokio::net::TcpStream::connect(bench.address).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TrackerExecutor(bench.tracker.clone()), TokioIo::new(stream))
            .await
            .unwrap();
    bench.tracker.spawn(connection);
    for _ in 0..51 {
        // Since no length is known, hyper ends the body with an additional empty frame. (Empty frames in mid-body are
        // counted by h2, which closes a connection after a hundred of them.)
        let pieces = [&PLAIN.as_bytes()[..9], &PLAIN.as_bytes()[9..]];
        let body = UnsizedBody(pieces.map(Bytes::from_static).into());
        let request = Request::post(format!("http://{}{CHAT}", bench.address)).body(body).unwrap();
        assert_eq!(within_limit(sender.clone().send_request(request)).await.unwrap().status(), 200);
    }
    bench.rows.outcomes_are(51).await;
    assert!(engine.asked().iter().all(|asked| asked.text() == PLAIN));
    assert_eq!(bench.load(), 0);
}

#[tokio::test]
async fn clients_that_say_nothing_or_half_a_request_are_closed_in_time() {
    let engine = ScriptedEngine::start(good_stream).await;
    let bench = DataPlaneFixture::start_with(&[engine.address], |settings| settings.server.head_timeout_ms = 500).await;
    let mut kept = bench.client().await;
    kept.post(CHAT, STREAM).await;
    assert!(kept.answer().await.body.ends_with(DONE));
    let (mut half, mut silent, mut shared) = (bench.client().await, bench.client().await, bench.client().await);
    half.write("POST /v1/chat/comp").await;
    shared.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    for client in [&mut kept, &mut half, &mut silent, &mut shared] {
        let mut rest = Vec::new();
        let _ = within_limit(client.stream.read_to_end(&mut rest)).await;
        assert!(!String::from_utf8_lossy(&rest).contains("200"));
    }
    // A client that sends a request is served as before, and a stream may be silent for any time.
    assert!(bench.ask(CHAT, STREAM).await.body.ends_with(DONE));
    bench.rows.outcomes_are(2).await;
    assert_eq!(bench.load(), 0);
}

#[tokio::test]
async fn http2_clients_are_served_and_an_aborted_stream_frees_its_load() {
    let engine =
        ScriptedEngine::start(
            |asked| if asked.text().contains("hang") { vec![ScriptStep::Hang] } else { good_stream(asked) },
        )
        .await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    let stream = tokio::net::TcpStream::connect(bench.address).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TrackerExecutor(bench.tracker.clone()), TokioIo::new(stream))
            .await
            .unwrap();
    bench.tracker.spawn(connection);
    let request = |body: &'static str| {
        let request = Request::post(format!("http://{}{CHAT}", bench.address));
        request.body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap()
    };
    let hanging = sender.clone().send_request(request(r#"{"model":"hang"}"#));
    let tasks = TaskTracker::new();
    let hanging = tasks.spawn(hanging);
    engine.wait_for_requests(1).await;
    hanging.abort();
    engine.wait_for_disconnects(1).await;
    assert_eq!(bench.rows.outcome().await.error, Some(ErrorClass::ClientGone));
    // The connection itself continues.
    let answer = sender.clone().send_request(request(STREAM)).await.unwrap();
    assert_eq!(answer.headers()["x-gorgo-replica"], "e1");
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(body.ends_with(DONE.as_bytes()));
    assert_eq!(bench.load(), 0);
}

/// The engine closes each connection after one response, so a connection that its request did not dial was opened
/// ahead.
async fn kinds_with(spare_connections: u64) -> Vec<Option<ConnectionReuse>> {
    let engine = ScriptedEngine::start(|_| [whole(200, "{}"), vec![ScriptStep::Close]].concat()).await;
    let bench = DataPlaneFixture::start_with(&[engine.address], |settings| {
        settings.server.spare_connections = spare_connections;
    })
    .await;
    for _ in 0..50 {
        assert_eq!(bench.ask(CHAT, PLAIN).await.status, 200);
    }
    bench.rows.outcomes_are(50).await;
    kinds(&bench)
}

#[tokio::test]
async fn connections_are_opened_ahead_of_need() {
    assert!(kinds_with(0).await.iter().all(|kind| *kind == Some(ConnectionReuse::Fresh)));
    let ahead = kinds_with(3).await;
    assert!(ahead.contains(&Some(ConnectionReuse::Warm)), "{ahead:?}");
}

#[tokio::test]
async fn a_request_is_told_what_its_connection_would_cost_it() {
    let engine = ScriptedEngine::start(good_stream).await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    let connections = bench.data.connections();
    let trips = |bytes| connections.round_trips(ReplicaId(0), bytes, bench.data.clock.now()).unwrap();
    let (small, large) = (1_000, 70_000);
    assert_eq!((trips(small), trips(large)), (2.0, 4.0), "it would dial, and begin with ten segments");
    bench.ask(CHAT, STREAM).await;
    bench.rows.outcomes_are(1).await;
    assert_eq!(trips(small), 1.0, "kept, with the window that the kernel tells");
    assert!(trips(large) < 4.0 && trips(100 << 20) > trips(large));
    assert_eq!(connections.round_trips(ReplicaId(1), small, bench.data.clock.now()), None, "no such replica");
}

#[tokio::test]
async fn the_kernels_round_trip_reaches_the_facts_once_a_second() {
    let engine = ScriptedEngine::start(good_stream).await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    for _ in 0..20 {
        bench.ask(CHAT, STREAM).await;
    }
    bench.rows.outcomes_are(20).await;
    let events = bench.events.lock().clone();
    let Some(FleetEvent::KernelRtt { replica, smoothed_ms, min_ms, at }) = events.first() else { panic!("{events:?}") };
    assert_eq!(*replica, ReplicaId(0));
    assert!(*min_ms > 0.0 && min_ms <= smoothed_ms && *smoothed_ms < 1_000.0, "{events:?}");
    let last = bench.rows.outcomes().last().map(|outcome| outcome.decision.0 >> 20).unwrap();
    let span_ms = u64::try_from(last).unwrap().saturating_sub(at.0 / 1_000);
    let most = usize::try_from(span_ms / 1_000 + 2).unwrap();
    assert!(events.len() <= most, "{} in {span_ms} ms", events.len());
}
