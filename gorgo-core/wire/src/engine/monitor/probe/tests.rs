//! The probe: which results count as a round trip, and which as lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use tokio_util::task::TaskTracker;

use super::*;
use crate::engine::monitor::mock::{MockEngine, RecordingContext, TickingClock, reply};
use gorgo_routing::model::{EngineKind, EventKind, FleetEvent, ProbeRecord, ReplicaId, StoreRecord};

const LIMIT: Duration = Duration::from_secs(5);
const R: ReplicaId = ReplicaId(0);

fn kinds(events: &[FleetEvent]) -> Vec<&'static str> {
    let kind = |event: &FleetEvent| match event {
        FleetEvent::Probe { rtt_ms: Some(_), .. } => "probe",
        FleetEvent::Probe { rtt_ms: None, .. } => "lost",
        FleetEvent::Up { .. } => "up",
        FleetEvent::Down { .. } => "down",
        FleetEvent::Restarted { .. } => "restarted",
        _ => "other",
    };
    events.iter().map(kind).collect()
}

#[tokio::test]
async fn the_first_request_on_a_connection_is_not_counted() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = requests.clone();
    let mock = MockEngine::start(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        reply(200, "ok")
    })
    .await;
    let (mut client, clock) = (mock.client(None), TickingClock::new());
    for (probe, requests_so_far) in [(1, 2), (2, 3), (3, 4)] {
        let ProbeOutcome::Answered { rtt_ms, answer } = probe_once(&mut client, "/health", LIMIT, &clock).await else {
            panic!("probe {probe} was lost");
        };
        assert!(!answer.fresh);
        assert!((rtt_ms - 1.0).abs() < 1e-9, "{rtt_ms}");
        assert_eq!(requests.load(Ordering::Relaxed), requests_so_far);
    }
    assert_eq!(mock.connections(), 1);
}

#[tokio::test]
async fn an_engine_that_keeps_no_connection_is_still_measured() {
    let mock = MockEngine::start(|_| {
        Some(hyper::Response::builder().header("connection", "close").body(http_body_util::Full::default()).unwrap())
    })
    .await;
    let (mut client, clock) = (mock.client(None), TickingClock::new());
    let ProbeOutcome::Answered { rtt_ms, answer } = probe_once(&mut client, "/", LIMIT, &clock).await else {
        panic!("lost");
    };
    assert!(answer.fresh && (rtt_ms - 1.0).abs() < 1e-9);
    assert_eq!(mock.connections(), 2);
}

#[tokio::test]
async fn a_step_tells_facts_store_and_people() {
    let mock = MockEngine::start(|_| reply(400, "")).await;
    let heard = RecordingContext::new();
    let mut prober = ReplicaProber::new(mock.watched(EngineKind::Vllm, None), LIMIT, &heard.senses);
    prober.step(&heard.senses).await;
    assert_eq!(kinds(&heard.events()), ["up", "probe"]);
    let records = heard.records();
    assert!(
        matches!(&records[0], StoreRecord::Event(note) if note.kind == EventKind::ReplicaUp && note.replica == Some(R))
    );
    assert!(matches!(&records[1], StoreRecord::Probe(ProbeRecord { rtt_us: Some(1_000), .. })), "{records:?}");
    prober.step(&heard.senses).await;
    assert_eq!(kinds(&heard.events()), ["probe"]);
    assert_eq!(heard.records().len(), 1);
}

#[tokio::test]
async fn a_refused_replica_goes_down_and_comes_back_restarted() {
    let mock = MockEngine::start(|_| reply(200, "")).await;
    let (address, heard) = (mock.address, RecordingContext::new());
    let mut prober = ReplicaProber::new(mock.watched(EngineKind::Vllm, None), LIMIT, &heard.senses);
    prober.step(&heard.senses).await;
    drop(mock);
    // Until the mock's listener is really gone, connections may still be accepted.
    let fresh = || EngineClient::new(prober.watched.endpoint.clone(), TaskTracker::new());
    while fresh().get("/", 1, LIMIT, &TickingClock::new()).await.is_ok() {
        tokio::task::yield_now().await;
    }
    heard.events();
    heard.records();
    for _ in 0..4 {
        prober.step(&heard.senses).await;
    }
    assert_eq!(kinds(&heard.events()), ["lost", "lost", "down", "lost", "lost"]);
    let notes = heard.notes();
    assert_eq!(notes.len(), 1);
    assert!(notes[0].1.starts_with("replica a: it refuses connections (cannot connect: "), "{notes:?}");

    let _mock = MockEngine::start_at(address, |_| reply(200, "")).await;
    prober.step(&heard.senses).await;
    prober.step(&heard.senses).await;
    assert_eq!(kinds(&heard.events()), ["probe", "restarted", "up", "probe"]);
    let kinds: Vec<EventKind> = heard.notes().into_iter().map(|note| note.0).collect();
    assert_eq!(kinds, [EventKind::ReplicaRestarted, EventKind::ReplicaUp]);
}

#[tokio::test]
async fn a_late_answer_is_lost_but_not_death() {
    let mock = MockEngine::start(|_| None).await;
    let heard = RecordingContext::new();
    let mut prober = ReplicaProber::new(mock.watched(EngineKind::Vllm, None), Duration::from_millis(20), &heard.senses);
    for _ in 0..5 {
        prober.step(&heard.senses).await;
    }
    assert_eq!(kinds(&heard.events()), ["lost"; 5]);
    heard.clock.skip(31_000);
    heard.senses.liveness.record_activity(R, heard.senses.clock.now());
    prober.step(&heard.senses).await;
    assert_eq!(kinds(&heard.events()), ["lost"], "streams flow");
    heard.clock.skip(31_000);
    prober.step(&heard.senses).await;
    assert_eq!(kinds(&heard.events()), ["down", "lost"]);
}

#[tokio::test]
async fn a_wrong_key_is_named_once_and_is_not_death() {
    let status = Arc::new(AtomicU16::new(401));
    let answers = status.clone();
    let mock = MockEngine::start(move |_| reply(answers.load(Ordering::Relaxed), "")).await;
    let heard = RecordingContext::new();
    let mut prober = ReplicaProber::new(mock.watched(EngineKind::Vllm, Some("wrong")), LIMIT, &heard.senses);
    for _ in 0..3 {
        prober.step(&heard.senses).await;
    }
    let notes = heard.notes();
    let complaints: Vec<_> =
        notes.iter().filter(|note| note.0 == EventKind::MissingSignal).map(|note| &*note.1).collect();
    assert_eq!(complaints, ["replica a answers 401 to GET /health: the engine rejects the API key in A_KEY"]);
    assert_eq!(kinds(&heard.events()), ["up", "probe", "probe", "probe"]);
    status.store(200, Ordering::Relaxed);
    prober.step(&heard.senses).await;
    assert!(heard.notes().is_empty());
}

#[tokio::test]
async fn a_server_that_is_no_engine_is_named_once() {
    let mock = MockEngine::start(|_| reply(404, "")).await;
    let heard = RecordingContext::new();
    let mut prober = ReplicaProber::new(mock.watched(EngineKind::Vllm, None), LIMIT, &heard.senses);
    for _ in 0..3 {
        prober.step(&heard.senses).await;
    }
    let said: Vec<_> = heard.notes().into_iter().filter(|note| note.0 == EventKind::MissingSignal).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].1.starts_with("replica a answers 404 to GET /health, which every vllm has; "), "{said:?}");
}

#[tokio::test]
async fn the_loop_ends_when_told_and_only_then() {
    let mock = MockEngine::start(|_| reply(200, "")).await;
    let heard = RecordingContext::new();
    let config = ProbeConfig { interval_ms: 1, timeout_ms: 5_000, half_life_ms: 4_000 };
    let stop = heard.senses.stop.clone();
    let looping = probe_loop(mock.watched(EngineKind::Vllm, None), heard.senses.clone(), config);
    let enough = async {
        let mut probes = 0;
        while probes < 5 {
            tokio::task::yield_now().await;
            probes += kinds(&heard.events()).iter().filter(|kind| **kind == "probe").count();
        }
        stop.cancel();
    };
    tokio::join!(looping, enough);
}
