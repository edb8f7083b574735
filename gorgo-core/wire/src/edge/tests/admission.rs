//! The gate with the real router: requests that wait, leave or are refused, and those that wait when their replica
//! dies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;

use super::super::*;
use super::fixture::*;
use gorgo_routing::config::{IndexConfig, ProbeConfig, ScrapeConfig, parse_toml};
use gorgo_routing::model::arbitrary::fleet;
use gorgo_routing::model::{
    AdmissionEnd, AdmissionRecord, ConfigValue, FleetEvent, PolicyBuildId, RefusalReason, StoreRecord, UnixMicros,
};
use gorgo_routing::policy::{KindRegistry, PolicySet, Router, RouterSetup, build};

/// Policies of which the first is the default: two requests in flight per replica, and `max_queued` that wait for it.
fn policies(replicas: u16, max_queued: u32) -> PolicySet {
    let text = format!(
        "[policy.gated]\nunit = \"raw\"\n[[policy.gated.term]]\nkind = \"inflight\"\n\
         [policy.gated.admission]\nmax_in_flight = 2\nmax_queued = {max_queued}\n"
    );
    let file = parse_toml(&text).unwrap();
    let Some(ConfigValue::Table(tables)) = file.get("policy").cloned() else { panic!("no policy") };
    build(&KindRegistry::built_in(), &tables, "gated", &fleet(replicas)).policies.unwrap()
}

/// Data plane over these engines, whose replicas take two requests each.
async fn gated(
    engines: &[SocketAddr],
    max_queued: u32,
    change: impl FnOnce(&mut FixtureSettings),
) -> (DataPlaneFixture, Arc<Router>) {
    let replicas = u16::try_from(engines.len()).unwrap();
    let policies = policies(replicas, max_queued);
    assert_eq!(policies.default, PolicyIndex(0));
    let setup = RouterSetup {
        fleet: fleet(replicas),
        models: vec![Vec::new(); engines.len()],
        secret: 1,
        index: IndexConfig::default(),
        probe: ProbeConfig::default(),
        scrape: ScrapeConfig::default(),
    };
    let router = Arc::new(Router::new(setup, policies));
    let clock: Arc<dyn Clock> = Arc::new(InstantClock(Instant::now()));
    let choice = RouterSelector::new(Arc::clone(&router), Arc::clone(&clock));
    let bench = DataPlaneFixture::start_with(engines, |settings| {
        settings.choose = Some((Arc::new(choice), clock));
        change(settings);
    })
    .await;
    (bench, router)
}

/// Engine that counts how many requests it has at once, and ends each when it is told to.
async fn counting(hold: TestLatch, most: Arc<AtomicUsize>) -> ScriptedEngine {
    let now = Arc::new(AtomicUsize::new(0));
    ScriptedEngine::start(move |asked| {
        let running = now.fetch_add(1, Ordering::SeqCst) + 1;
        most.fetch_max(running, Ordering::SeqCst);
        let now = Arc::clone(&now);
        let over = ScriptStep::Note(Arc::new(move || {
            now.fetch_sub(1, Ordering::SeqCst);
        }));
        // Counted before the response, so that no later request can come before it.
        let mut steps = vec![ScriptStep::Await(hold.clone()), over];
        steps.extend(good_stream(asked));
        steps
    })
    .await
}

fn holds(bench: &DataPlaneFixture) -> Vec<AdmissionRecord> {
    let rows = bench.rows.all().into_iter();
    rows.filter_map(|row| if let StoreRecord::Hold(hold) = row { Some(hold) } else { None }).collect()
}

async fn waiting_are(router: &Router, replica: u16, count: u32) {
    within_limit(async {
        while router.waiting_requests(ReplicaId(replica)) != count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

const CHAT_STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}"#;

/// Clients that have requested a stream, one after the other.
async fn asking(bench: &DataPlaneFixture, count: usize) -> Vec<RawClient> {
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        let mut client = bench.client().await;
        client.post(CHAT, CHAT_STREAM).await;
        clients.push(client);
    }
    clients
}

#[tokio::test]
async fn of_eight_at_once_two_are_upstream_and_all_are_answered() {
    let (hold, most) = (TestLatch::new(), Arc::new(AtomicUsize::new(0)));
    let engine = counting(hold.clone(), Arc::clone(&most)).await;
    let (bench, router) = gated(&[engine.address], 16, |_| {}).await;
    let clients = asking(&bench, 8).await;
    engine.wait_for_requests(2).await;
    waiting_are(&router, 0, 6).await;
    assert_eq!(engine.asked().len(), 2);
    hold.open();
    for mut client in clients {
        let answer = client.answer().await;
        assert!(answer.status == 200 && answer.body.ends_with(DONE), "{answer:?}");
    }
    assert_eq!(most.load(Ordering::SeqCst), 2, "never more than two at once");
    let outcomes = bench.rows.outcomes_are(8).await;
    assert!(outcomes.iter().all(|outcome| outcome.error.is_none()));
    let holds = holds(&bench);
    assert_eq!(holds.len(), 6);
    for hold in &holds {
        assert_eq!((hold.attempt, hold.replica, hold.ended), (1, ReplicaId(0), AdmissionEnd::Dispatched));
        let outcome = outcomes.iter().find(|outcome| outcome.decision == hold.decision).unwrap();
        assert!(hold.held_us > 0 && outcome.ttft_us.unwrap() >= hold.held_us, "waiting counts: {hold:?} {outcome:?}");
    }
    assert_eq!((router.load_totals(ReplicaId(0)), router.waiting_requests(ReplicaId(0))), ((0, 0, 0), 0));
}

#[tokio::test]
async fn who_leaves_gives_up_its_place_and_who_is_too_many_is_told_to_come_later() {
    let hold = TestLatch::new();
    let engine = counting(hold.clone(), Arc::default()).await;
    let (bench, router) = gated(&[engine.address], 2, |_| {}).await;
    let running = asking(&bench, 2).await;
    engine.wait_for_requests(2).await;
    let mut leaving = bench.client().await;
    leaving.post(CHAT, CHAT_STREAM).await;
    let mut staying = bench.client().await;
    staying.post(CHAT, CHAT_STREAM).await;
    waiting_are(&router, 0, 2).await;
    let shed = bench.ask(CHAT, CHAT_STREAM).await;
    assert_eq!((shed.status, shed.header("retry-after")), (429, Some("1")));
    assert!(shed.body.contains("queue_full"), "{}", shed.body);
    drop(leaving);
    waiting_are(&router, 0, 1).await;
    hold.open();
    for mut client in running.into_iter().chain([staying]) {
        assert!(client.answer().await.body.ends_with(DONE));
    }
    let outcomes = bench.rows.outcomes_are(5).await;
    let with = |status: Option<u16>, error: Option<ErrorClass>| {
        outcomes.iter().filter(|outcome| outcome.status == status && outcome.error == error).count()
    };
    assert_eq!(
        (with(Some(200), None), with(None, Some(ErrorClass::ClientGone)), with(Some(429), Some(ErrorClass::Refused))),
        (3, 1, 1)
    );
    let refusals: Vec<_> = bench.rows.decisions().iter().filter_map(|row| row.refusal).collect();
    assert!(refusals.contains(&gorgo_routing::model::RefusalReason::GateFull), "{refusals:?}");
    let mut ends: Vec<_> = holds(&bench).iter().map(|hold| hold.ended).collect();
    ends.sort_by_key(|end| end.name());
    assert_eq!(ends, [AdmissionEnd::ClientGone, AdmissionEnd::Dispatched]);
    assert_eq!(engine.asked().len(), 3, "nothing was sent for those who left or were shed");
}

#[tokio::test]
async fn when_their_replica_dies_those_who_wait_go_elsewhere() {
    let dead = ScriptedEngine::start(|_| vec![ScriptStep::Hang]).await;
    let good = ScriptedEngine::start(good_stream).await;
    let (bench, router) = gated(&[dead.address, good.address], 16, |_| {}).await;
    router.apply(&FleetEvent::Down { replica: ReplicaId(1) });
    router.apply(&FleetEvent::Up { replica: ReplicaId(0) });
    let clients = asking(&bench, 5).await;
    waiting_are(&router, 0, 3).await;
    router.apply(&FleetEvent::Up { replica: ReplicaId(1) });
    router.apply(&FleetEvent::Down { replica: ReplicaId(0) });
    good.wait_for_requests(3).await;
    bench.rows.outcomes_are(3).await;
    assert_eq!((router.waiting_requests(ReplicaId(0)), router.waiting_requests(ReplicaId(1))), (0, 0));
    let holds = holds(&bench);
    assert!(holds.len() == 3 && holds.iter().all(|hold| hold.replica == ReplicaId(1)), "{holds:?}");
    drop(clients);
    bench.rows.outcomes_are(5).await;
}

#[tokio::test]
async fn when_nobody_is_left_those_who_wait_are_refused() {
    let engine = ScriptedEngine::start(|_| vec![ScriptStep::Hang]).await;
    let (bench, router) = gated(&[engine.address], 16, |_| {}).await;
    let clients = asking(&bench, 3).await;
    waiting_are(&router, 0, 1).await;
    router.apply(&FleetEvent::Down { replica: ReplicaId(0) });
    let outcome = bench.rows.outcome().await;
    assert_eq!((outcome.status, outcome.error), (Some(503), Some(ErrorClass::Refused)));
    assert_eq!(holds(&bench)[0].ended, AdmissionEnd::Refused);
    drop(clients);
    bench.rows.outcomes_are(3).await;
    assert_eq!(router.load_totals(ReplicaId(0)), (0, 0, 0));
}

#[tokio::test]
async fn a_drain_serves_those_who_wait_and_a_second_signal_does_not() {
    for second_signal in [false, true] {
        let hold = TestLatch::new();
        let engine = counting(hold.clone(), Arc::default()).await;
        let (bench, router) = gated(&[engine.address], 16, |_| {}).await;
        let mut clients = asking(&bench, 3).await;
        engine.wait_for_requests(2).await;
        waiting_are(&router, 0, 1).await;
        bench.shutdown.cancel();
        if second_signal {
            bench.data.abort_requests();
        } else {
            hold.open();
        }
        for client in &mut clients {
            let answer = client.answer().await;
            assert_eq!(answer.status, if second_signal { 503 } else { 200 });
        }
        bench.has_served().await;
        bench.rows.outcomes_are(3).await;
        let ended = if second_signal { AdmissionEnd::Shutdown } else { AdmissionEnd::Dispatched };
        assert_eq!(holds(&bench).iter().map(|hold| hold.ended).collect::<Vec<_>>(), [ended]);
        assert_eq!((router.load_totals(ReplicaId(0)), router.waiting_requests(ReplicaId(0))), ((0, 0, 0), 0));
    }
}

#[tokio::test]
async fn a_retry_waits_without_keeping_its_place_elsewhere() {
    let hold = TestLatch::new();
    let failing = ScriptedEngine::start(|_| vec![ScriptStep::Close]).await;
    let full = counting(hold.clone(), Arc::default()).await;
    let (bench, router) = gated(&[failing.address, full.address], 16, |settings| {
        settings.failover.budget_share = 1.0;
    })
    .await;
    router.apply(&FleetEvent::Up { replica: ReplicaId(1) });
    let mut clients = Vec::new();
    // Only the full one is known to be up; two requests fill it.
    for _ in 0..2 {
        let mut client = bench.client().await;
        client.post(CHAT, CHAT_STREAM).await;
        clients.push(client);
    }
    full.wait_for_requests(2).await;
    router.apply(&FleetEvent::Up { replica: ReplicaId(0) });
    let mut client = bench.client().await;
    client.post(CHAT, CHAT_STREAM).await;
    clients.push(client);
    waiting_are(&router, 1, 1).await;
    assert_eq!(router.load_totals(ReplicaId(0)).0, 0, "the failed attempt gave its load back before it waits");
    hold.open();
    for mut client in clients {
        assert!(client.answer().await.body.ends_with(DONE));
    }
    bench.rows.outcomes_are(3).await;
    let holds = holds(&bench);
    assert!(holds.len() == 1 && holds[0].attempt > 1 && holds[0].replica == ReplicaId(1), "{holds:?}");
}

#[tokio::test]
async fn a_request_refused_after_a_reload_is_booked_under_the_policy_that_took_over() {
    let engine = ScriptedEngine::start(good_stream).await;
    let (bench, router) = gated(&[engine.address], 16, |_| {}).await;
    assert!(router.set_draining(ReplicaId(0), true));
    assert_eq!(bench.ask(CHAT, CHAT_STREAM).await.status, 503);

    let succession = router.stage_reload(policies(1, 17)).unwrap().unwrap();
    let added: Vec<_> = succession.new_policies().map(|(policy, _)| policy.id).collect();
    router.apply_reload(succession, UnixMicros(1));
    assert_eq!(bench.ask(CHAT, CHAT_STREAM).await.status, 503);

    bench.rows.outcomes_are(2).await;
    let rows = bench.rows.all().into_iter();
    let booked: Vec<_> = rows
        .filter_map(|row| if let StoreRecord::Decision(row) = row { Some((row.policy, row.refusal)) } else { None })
        .collect();
    let refusal = Some(RefusalReason::NoReplica);
    assert_eq!(booked, [(PolicyBuildId(0), refusal), (added[0], refusal)]);
    assert_ne!(added[0], PolicyBuildId(0));
}
