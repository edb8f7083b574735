//! Six engines that fail in every way in turn, under load: what could be served elsewhere is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio_util::task::TaskTracker;

use super::bench::*;
use crate::model::{EngineKind, ErrorClass};

const ENGINES: usize = 6;
const CLIENTS: usize = 12;
const REQUESTS_EACH: usize = 50;
/// Requests between two changes of the weather.
const SPELL: usize = 40;

/// The ways of an engine.
const GOOD: usize = 0;
const BREAKS: usize = 6;
const WAYS: usize = 8;

fn steps(way: usize, asked: &Asked) -> Vec<Step> {
    match way {
        1 => whole(503, "{}"),
        2 => vec![Step::Close],
        3 => vec![Step::Reset],
        4 => vec![sse_head(), Step::Close],
        5 => vec![Step::Hang],
        BREAKS => vec![sse_head(), chunk(&event("{\"content\":\"a\"}")), Step::Reset],
        7 => whole(502, "{}"),
        _ => good_stream(asked),
    }
}

/// Which way each engine has in each spell. The last one is always well: a request may outlive several spells.
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
            Engine::start(move |asked| {
                let spell = asked_for.load(Ordering::Relaxed) / SPELL;
                steps(weather[spell][engine], asked)
            })
            .await,
        );
    }
    let addresses: Vec<_> = engines.iter().map(|engine| engine.address).collect();
    let bench = Bench::start_with(&addresses, |settings| {
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
                let mut client = Client::connect(address).await;
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
    soon(clients.wait()).await;
    let outcomes = bench.rows.outcomes_are(CLIENTS * REQUESTS_EACH).await;
    let failed: Vec<_> = outcomes.iter().filter(|outcome| outcome.error.is_some()).collect();
    // A stream that broke after its first byte cannot be mended; nothing else may fail.
    assert!(failed.iter().all(|outcome| outcome.error == Some(ErrorClass::UpstreamAborted)), "{failed:?}");
    assert!(failed.iter().all(|outcome| outcome.ttft_us.is_some()), "{failed:?}");
    assert_eq!(failures.load(Ordering::Relaxed), 0);
    assert!(failed.len() < outcomes.len() / 10, "{} of {}", failed.len(), outcomes.len());
    let attempts = bench.rows.attempts();
    assert!(attempts.len() > outcomes.len(), "the weather was felt: {}", attempts.len());
    assert!(attempts.iter().any(|row| row.error == Some(ErrorClass::LostRace)), "somebody hung and was raced");
    assert_eq!((bench.load(), bench.fake.decoding.load(Ordering::SeqCst)), (0, 0));
}
