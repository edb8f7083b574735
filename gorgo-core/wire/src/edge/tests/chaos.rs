//! Six engines that fail in every way in turn, under load: every request that another engine can serve succeeds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::fixture::*;
use gorgo_routing::model::{EngineKind, ErrorClass};

const ENGINES: usize = 6;
const CLIENTS: usize = 12;
const REQUESTS_EACH: usize = 50;
/// Requests between two changes of the engines' behaviour.
const SPELL: usize = 40;

/// Behaviours of an engine.
const GOOD: usize = 0;
const BREAKS: usize = 6;
const WAYS: usize = 8;
/// Never drawn at random: healthy, but late.
const SLOW: usize = WAYS;

fn steps(way: usize, asked: &ReceivedRequest) -> Vec<ScriptStep> {
    match way {
        1 => whole(503, "{}"),
        2 => vec![ScriptStep::Close],
        3 => vec![ScriptStep::Reset],
        4 => vec![sse_head(), ScriptStep::Close],
        5 => vec![ScriptStep::Hang],
        BREAKS => vec![sse_head(), chunk(&event("{\"content\":\"a\"}")), ScriptStep::Reset],
        7 => whole(502, "{}"),
        _ => good_stream(asked),
    }
}

/// Behaviour of each engine in each phase. The last one is always healthy: a request may outlive several phases.
fn weather(spells: usize) -> Vec<[usize; ENGINES]> {
    let mut random = ChaCha8Rng::seed_from_u64(20_261_130);
    let spell = |_| {
        let mut ways: [usize; ENGINES] = std::array::from_fn(|_| random.random_range(0..WAYS));
        ways[ENGINES - 1] = GOOD;
        ways
    };
    (0..spells).map(spell).collect()
}

#[tokio::test]
async fn no_request_fails_that_could_be_served_elsewhere() {
    let asked_for = Arc::new(AtomicUsize::new(0));
    let weather = Arc::new(weather(CLIENTS * REQUESTS_EACH / SPELL + 2));
    let mut engines = Vec::new();
    for engine in 0..ENGINES {
        let (asked_for, weather) = (Arc::clone(&asked_for), Arc::clone(&weather));
        engines.push(
            ScriptedEngine::start(move |asked| {
                let spell = asked_for.load(Ordering::Relaxed) / SPELL;
                steps(weather[spell][engine], asked)
            })
            .await,
        );
    }
    let addresses: Vec<_> = engines.iter().map(|engine| engine.address).collect();
    let bench = DataPlaneFixture::start_with(&addresses, |settings| {
        settings.engine = EngineKind::OpenAi;
        settings.server.spare_connections = 2;
        settings.failover.max_attempts = 6;
        settings.failover.budget_share = 1.0;
        settings.failover.hedge.after = 0.1;
        settings.failover.hedge.min_ms = 50;
    })
    .await;
    let clients = TaskTracker::new();
    let failures = Arc::new(AtomicUsize::new(0));
    for _ in 0..CLIENTS {
        let (address, asked_for, failures) = (bench.address, Arc::clone(&asked_for), Arc::clone(&failures));
        clients.spawn(async move {
            for _ in 0..REQUESTS_EACH {
                asked_for.fetch_add(1, Ordering::Relaxed);
                let mut client = RawClient::connect(address).await;
                client.post(CHAT, STREAM).await;
                let answer = client.answer().await;
                let broken = answer.body.contains("upstream_aborted");
                let whole = answer.complete && answer.body.ends_with(DONE);
                if answer.status != 200 || !(whole || broken) {
                    failures.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    clients.close();
    within_limit(clients.wait()).await;
    let outcomes = bench.rows.outcomes_are(CLIENTS * REQUESTS_EACH).await;
    let failed: Vec<_> = outcomes.iter().filter(|outcome| outcome.error.is_some()).collect();
    // A stream that broke after its first byte cannot be repaired; nothing else may fail.
    assert!(failed.iter().all(|outcome| outcome.error == Some(ErrorClass::UpstreamAborted)), "{failed:?}");
    assert!(failed.iter().all(|outcome| outcome.ttft_us.is_some()), "{failed:?}");
    assert_eq!(failures.load(Ordering::Relaxed), 0);
    assert!(failed.len() < outcomes.len() / 10, "{} of {}", failed.len(), outcomes.len());
    let attempts = bench.rows.attempts();
    assert!(attempts.len() > outcomes.len(), "the weather was felt: {}", attempts.len());
    assert!(attempts.iter().any(|row| row.error == Some(ErrorClass::LostHedge)), "somebody hung and was raced");
    assert_eq!((bench.load(), bench.fake.decoding.load(Ordering::SeqCst)), (0, 0));
}

/// Sends this many requests over this many clients, and returns their times, ascending. All must succeed, except for
/// streams that broke after their first byte.
async fn load(bench: &DataPlaneFixture, clients: usize, each: usize) -> Vec<Duration> {
    let tasks = TaskTracker::new();
    let times = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..clients {
        let (address, times) = (bench.address, Arc::clone(&times));
        tasks.spawn(async move {
            for _ in 0..each {
                let began = Instant::now();
                let mut client = RawClient::connect(address).await;
                client.post(CHAT, STREAM).await;
                let answer = client.answer().await;
                let whole = answer.complete && answer.body.ends_with(DONE);
                assert!(answer.status == 200 && (whole || answer.body.contains("upstream_aborted")), "{answer:?}");
                times.lock().push(began.elapsed());
            }
        });
    }
    tasks.close();
    within_limit(tasks.wait()).await;
    let mut times = std::mem::take(&mut *times.lock());
    assert_eq!(times.len(), clients * each, "a client gave up");
    times.sort();
    times
}

fn p95(times: &[Duration]) -> Duration {
    times[(times.len() * 95).div_ceil(100) - 1]
}

/// Kill, hang, reset in mid-stream, 5xx, slowness, restarts and a lost link, each on a different engine and all at
/// once; then every engine is healthy again.
#[tokio::test]
async fn ten_seconds_after_the_trouble_requests_take_what_they_took_before() {
    let trouble = Arc::new(AtomicBool::new(false));
    let mut engines = Vec::new();
    // The last engine is healthy throughout; the one before it loses its link, the one before that restarts.
    for way in [2, 5, BREAKS, 1, GOOD, GOOD, SLOW] {
        let trouble = Arc::clone(&trouble);
        engines.push(
            ScriptedEngine::start(move |asked| match way {
                SLOW if trouble.load(Ordering::Relaxed) => {
                    [vec![ScriptStep::Linger(Duration::from_millis(400))], good_stream(asked)].concat()
                }
                way if trouble.load(Ordering::Relaxed) => steps(way, asked),
                _ => good_stream(asked),
            })
            .await,
        );
    }
    engines.push(ScriptedEngine::start(good_stream).await);
    let (restarting, lost) = (4, 5);
    let addresses: Vec<_> = engines.iter().map(|engine| engine.address).collect();
    let bench = DataPlaneFixture::start_with(&addresses, |settings| {
        settings.engine = EngineKind::OpenAi;
        settings.server.spare_connections = 2;
        settings.failover.max_attempts = 6;
        settings.failover.budget_share = 1.0;
        settings.failover.hedge.after = 0.1;
        settings.failover.hedge.min_ms = 50;
    })
    .await;
    let before = p95(&load(&bench, CLIENTS, 25).await);
    trouble.store(true, Ordering::Relaxed);
    engines[lost].set_unreachable(true);
    let mut sent = CLIENTS * 25;
    for _ in 0..4 {
        engines[restarting].restart();
        load(&bench, CLIENTS, 10).await;
        sent += CLIENTS * 10;
    }
    trouble.store(false, Ordering::Relaxed);
    engines[lost].set_unreachable(false);
    let recovered = Instant::now();
    // Twice the earlier time, plus what a busy machine may add.
    let normal = before * 2 + Duration::from_millis(100);
    loop {
        let after = p95(&load(&bench, CLIENTS, 10).await);
        sent += CLIENTS * 10;
        if after <= normal {
            break;
        }
        assert!(recovered.elapsed() < Duration::from_secs(10), "{after:?} against {before:?}");
    }
    // `outcomes_are` also checks that each has one decision row and there is no other.
    let outcomes = bench.rows.outcomes_are(sent).await;
    let failed: Vec<_> = outcomes.iter().filter(|outcome| outcome.error.is_some()).collect();
    assert!(failed.iter().all(|outcome| outcome.error == Some(ErrorClass::UpstreamAborted)), "{failed:?}");
    assert!(failed.iter().all(|outcome| outcome.ttft_us.is_some()), "{failed:?}");
    assert!(bench.rows.attempts().iter().any(|row| row.error.is_some()), "the trouble was felt");
    assert_eq!((bench.load(), bench.fake.decoding.load(Ordering::SeqCst)), (0, 0));
}
