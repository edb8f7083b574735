//! A router as its callers see it: bursts, ties, sizes, refusals, and that all comes back to zero.

mod admission;
mod predicted;
mod presets;
mod reload;
mod residency;
mod share;

use super::*;
use crate::config::parse_toml;
use crate::model::arbitrary::fleet;
use crate::model::{ConfigValue, EngineReport, TokenUsage};
use crate::policy::{KindRegistry, build, repeat_decision};

fn setup(replicas: u16) -> RouterSetup {
    RouterSetup {
        fleet: fleet(replicas),
        models: vec![vec![Arc::from("m")]; usize::from(replicas)],
        secret: 42,
        index: IndexConfig::default(),
        probe: ProbeConfig::default(),
        scrape: ScrapeConfig::default(),
    }
}

/// A router with these policies beside the presets.
fn router_of(replicas: u16, text: &str) -> Router {
    let file = parse_toml(text).unwrap();
    let tables = match file.get("policy").cloned() {
        Some(ConfigValue::Table(tables)) => tables,
        _ => Vec::new(),
    };
    let checked = build(&KindRegistry::built_in(), &tables, "gorgo", &fleet(replicas));
    Router::new(setup(replicas), checked.policies.unwrap())
}

/// A router whose replicas all answered a probe in `rtt_ms`.
fn probed(replicas: u16, text: &str, rtt_ms: f64) -> Router {
    let router = router_of(replicas, text);
    for replica in 0..replicas {
        router.apply(&FleetEvent::Probe { replica: ReplicaId(replica), at: UnixMicros(0), rtt_ms: Some(rtt_ms) });
    }
    router
}

fn report(router: &Router, replica: u16, at: UnixMicros, running: f64) {
    let report = EngineReport {
        running: Some(running),
        waiting: Some(0.0),
        kv_used_tokens: Some(0.0),
        ..EngineReport::default()
    };
    router.apply(&FleetEvent::Report { replica: ReplicaId(replica), at, report });
}

/// A chat whose only message is `text`.
fn prompt(router: &Router, text: &str) -> ParsedRequest {
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#);
    router.parse_request("/v1/chat/completions", body.as_bytes(), None, None).unwrap()
}

/// About `tokens` tokens that no other `number` shares a block with.
fn unique(router: &Router, number: usize, tokens: usize) -> ParsedRequest {
    prompt(router, &format!("{number:08x}").repeat(tokens / 2))
}

fn id(router: &Router, policy: &str) -> PolicyIndex {
    router.policies().index_of(policy).unwrap()
}

fn route(router: &Router, policy: &str, prompt: &ParsedRequest, number: u64, at: UnixMicros) -> RoutedRequest {
    let decision = DecisionId(i64::try_from(number).unwrap());
    router
        .decide(prompt, &DecisionContext { policy: id(router, policy), id: decision, seed: number, at, exclude: &[] })
        .unwrap()
}

fn done(prompt_tokens: u32, cached_tokens: u32, ttft_ms: f64) -> RequestOutcome {
    let usage = TokenUsage {
        prompt_tokens: Some(prompt_tokens),
        cached_tokens: Some(cached_tokens),
        completion_tokens: Some(10),
    };
    RequestOutcome { usage, ttft_ms: Some(ttft_ms), completed: true }
}

#[test]
fn a_burst_of_equal_requests_spreads_since_each_sees_the_one_before() {
    for policy in ["gorgo", "least-load", "least-request", "round-robin"] {
        let router = probed(3, "", 20.0);
        let prompt = unique(&router, 1, 2_000);
        let mut chosen = [0_u32; 3];
        let mut held = Vec::new();
        for number in 0..100 {
            let routed = route(&router, policy, &prompt, number, UnixMicros(1));
            chosen[routed.reservation.replica().index()] += 1;
            held.push(routed.reservation);
        }
        assert!(chosen.iter().all(|count| (30..=37).contains(count)), "{policy}: {chosen:?}");
        for reservation in held {
            router.finish(reservation, &prompt, &RequestOutcome::default(), UnixMicros(2));
        }
        for replica in 0..3 {
            assert_eq!(router.load_totals(ReplicaId(replica)), (0, 0, 0), "{policy}");
        }
    }
}

#[test]
fn between_two_reports_a_burst_does_not_follow_the_old_numbers() {
    for policy in ["gorgo", "least-load", "least-request"] {
        let router = probed(3, "", 20.0);
        for replica in 0..3 {
            report(&router, replica, UnixMicros(1), if replica == 0 { 0.0 } else { 1.0 });
        }
        let mut chosen = [0_u32; 3];
        let mut held = Vec::new();
        for number in 0..30 {
            let prompt = unique(&router, number, 200);
            let routed = route(&router, policy, &prompt, number as u64, UnixMicros(2));
            chosen[routed.reservation.replica().index()] += 1;
            held.push(routed.reservation);
        }
        assert!(chosen.iter().all(|count| (7..=13).contains(count)), "{policy}: {chosen:?}");
        drop(held);
    }
}

#[test]
fn ties_have_no_favourite() {
    for policy in ["gorgo", "least-request", "least-load", "random", "least-kv-cache"] {
        let router = probed(4, "", 20.0);
        let mut chosen = [0_u32; 4];
        for number in 0..400 {
            let prompt = unique(&router, number, 40);
            let routed = route(&router, policy, &prompt, number as u64, UnixMicros(number as u64));
            chosen[routed.reservation.replica().index()] += 1;
            router.finish(routed.reservation, &prompt, &RequestOutcome::default(), UnixMicros(number as u64));
        }
        // Shares within 15 percentage points of each other.
        let (least, most) = (chosen.iter().min().unwrap(), chosen.iter().max().unwrap());
        assert!(most - least <= 60, "{policy}: {chosen:?}");
    }
}

#[test]
fn load_is_the_size_of_requests_not_their_number() {
    let router = probed(2, "", 20.0);
    let mut held = Vec::new();
    let gorgo = id(&router, "gorgo");
    let forced = |prompt: &ParsedRequest, number: i64, other: u16| {
        router
            .decide(
                prompt,
                &DecisionContext {
                    policy: gorgo,
                    id: DecisionId(number),
                    seed: 1,
                    at: UnixMicros(1),
                    exclude: &[ReplicaId(other)],
                },
            )
            .unwrap()
            .reservation
    };
    held.push(forced(&unique(&router, 900, 30_000), 900, 1));
    for number in 901..904 {
        held.push(forced(&unique(&router, number, 50), 1, 0));
    }
    for number in 0..10 {
        let routed = route(&router, "gorgo", &unique(&router, number, 1_000), number as u64, UnixMicros(2));
        assert_eq!(routed.reservation.replica(), ReplicaId(1), "request {number}");
        assert!(routed.record.candidates[0].queued_tokens > 25_000);
        held.push(routed.reservation);
    }
    drop(held);
}

#[test]
fn a_busy_replica_is_not_the_home_of_prompts_nobody_knows() {
    let router = probed(2, "", 20.0);
    let gorgo = id(&router, "gorgo");
    let mut held = Vec::new();
    for number in 100..108 {
        let heavy = unique(&router, number, 8_000);
        let routed = router
            .decide(
                &heavy,
                &DecisionContext {
                    policy: gorgo,
                    id: DecisionId(1),
                    seed: 1,
                    at: UnixMicros(1),
                    exclude: &[ReplicaId(1)],
                },
            )
            .unwrap();
        held.push(routed.reservation);
    }
    for number in 200..260 {
        let old = unique(&router, number, 1_000);
        let routed = router
            .decide(
                &old,
                &DecisionContext {
                    policy: gorgo,
                    id: DecisionId(1),
                    seed: 1,
                    at: UnixMicros(1),
                    exclude: &[ReplicaId(0)],
                },
            )
            .unwrap();
        router.finish(routed.reservation, &old, &done(1_000, 0, 100.0), UnixMicros(2));
    }
    for number in 0..20 {
        let routed = route(&router, "gorgo", &unique(&router, number, 500), number as u64, UnixMicros(3));
        assert_eq!(routed.reservation.replica(), ReplicaId(1), "request {number}");
        held.push(routed.reservation);
    }
    drop(held);
}

#[test]
fn a_newcomer_gets_its_part_of_new_sessions() {
    let router = probed(4, "", 20.0);
    let newcomer = ReplicaId(3);
    router.apply(&FleetEvent::Down { replica: newcomer });
    let mut sessions: Vec<String> = (0..60).map(|number| format!("{number:04x}").repeat(600)).collect();
    let mut number = 0;
    let mut turn = |sessions: &mut Vec<String>, at: u64| {
        let mut taken = [0_u32; 4];
        let mut held = Vec::new();
        for session in sessions.iter_mut() {
            session.push_str("and then ");
            let prompt = prompt(&router, session);
            number += 1;
            let routed = route(&router, "gorgo", &prompt, number, UnixMicros(at));
            taken[routed.reservation.replica().index()] += 1;
            held.push((routed.reservation, prompt));
            if held.len() == 8 {
                let (reservation, prompt) = held.remove(0);
                router.finish(
                    reservation,
                    &prompt,
                    &RequestOutcome { completed: true, ..RequestOutcome::default() },
                    UnixMicros(at),
                );
            }
        }
        for (reservation, prompt) in held {
            router.finish(
                reservation,
                &prompt,
                &RequestOutcome { completed: true, ..RequestOutcome::default() },
                UnixMicros(at),
            );
        }
        taken
    };
    assert_eq!(turn(&mut sessions, 1)[3], 0);
    router.apply(&FleetEvent::Up { replica: newcomer });
    let mut fresh: Vec<String> = (0..100).map(|number| format!("{number:04x} new").repeat(300)).collect();
    let taken = turn(&mut fresh, 2);
    assert!((10..=45).contains(&taken[3]), "{taken:?}");
}

#[test]
fn a_restarted_replica_gets_its_part_of_prompts_nobody_knows() {
    for policy in ["gorgo", "least-load", "least-request"] {
        let router = probed(3, "", 20.0);
        let mut held = Vec::new();
        for number in 0..30 {
            let prompt = unique(&router, number, 1_000);
            held.push((route(&router, policy, &prompt, u64::try_from(number).unwrap(), UnixMicros(1)), prompt));
        }
        // It dies with all it had, and says truthfully that it has nothing to do; the others are as busy as before.
        let restarted = ReplicaId(2);
        router.apply(&FleetEvent::Down { replica: restarted });
        for (routed, prompt) in held.extract_if(.., |(routed, _)| routed.reservation.replica() == restarted) {
            router.finish(routed.reservation, &prompt, &RequestOutcome::default(), UnixMicros(2));
        }
        for (routed, prompt) in held {
            router.finish(
                routed.reservation,
                &prompt,
                &RequestOutcome { completed: true, ..RequestOutcome::default() },
                UnixMicros(2),
            );
        }
        router.apply(&FleetEvent::Up { replica: restarted });
        for replica in 0..3 {
            assert_eq!(router.load_totals(ReplicaId(replica)), (0, 0, 0), "{policy}");
            report(&router, replica, UnixMicros(3), if ReplicaId(replica) == restarted { 0.0 } else { 2.0 });
        }
        let mut taken = [0_u32; 3];
        let mut running = Vec::new();
        for number in 0..60 {
            let prompt = unique(&router, 1_000 + number, 1_000);
            let routed = route(&router, policy, &prompt, 1_000 + u64::try_from(number).unwrap(), UnixMicros(4));
            taken[routed.reservation.replica().index()] += 1;
            running.push((routed.reservation, prompt));
        }
        assert!((10..=30).contains(&taken[2]), "{policy}: {taken:?}");
        for (reservation, prompt) in running {
            router.finish(reservation, &prompt, &RequestOutcome::default(), UnixMicros(5));
        }
    }
}

#[test]
fn the_next_turn_of_a_chat_goes_where_its_prefix_is() {
    let router = probed(3, "", 20.0);
    let first = prompt(&router, &"once upon a time ".repeat(200));
    let routed = route(&router, "gorgo", &first, 1, UnixMicros(1));
    let home = routed.reservation.replica();
    assert_eq!((routed.predicted_cached_tokens, routed.record.parent), (0, None));
    router.finish(routed.reservation, &first, &done(800, 0, 100.0), UnixMicros(2));
    let second = prompt(&router, &format!("{}and then", "once upon a time ".repeat(200)));
    let routed = route(&router, "gorgo", &second, 2, UnixMicros(3));
    assert_eq!(routed.reservation.replica(), home);
    assert_eq!(routed.record.parent, Some(DecisionId(1)));
    let prompt_tokens = routed.record.prompt_tokens;
    assert!(routed.predicted_cached_tokens > prompt_tokens * 8 / 10, "{}", routed.predicted_cached_tokens);
    assert!(routed.predicted_cached_tokens <= prompt_tokens);
    assert_eq!(routed.record.shared_tokens, routed.predicted_cached_tokens);
    router.finish(routed.reservation, &second, &done(prompt_tokens, 700, 50.0), UnixMicros(4));
    // The engine restarts: its start time changed.
    for started in [1.0, 900.0] {
        let report = EngineReport { started_secs: Some(started), ..EngineReport::default() };
        let found = router.apply(&FleetEvent::Report { replica: home, at: UnixMicros(5), report });
        assert_eq!(found, (started > 1.0).then_some(home));
    }
    let routed = route(&router, "gorgo", &second, 3, UnixMicros(6));
    let at_home = &routed.record.candidates[home.index()];
    assert_eq!(at_home.cached_tokens, 0, "what a restarted engine held is forgotten");
    router.finish(routed.reservation, &second, &RequestOutcome::default(), UnixMicros(7));
}

#[test]
fn a_request_that_failed_before_it_was_read_promises_nothing() {
    let router = probed(2, "", 20.0);
    let prompt = unique(&router, 1, 2_000);
    let routed = route(&router, "gorgo", &prompt, 1, UnixMicros(1));
    router.finish(routed.reservation, &prompt, &RequestOutcome::default(), UnixMicros(2));
    let routed = route(&router, "gorgo", &prompt, 2, UnixMicros(3));
    assert_eq!(routed.predicted_cached_tokens, 0);
    let mut reservation = routed.reservation;
    router.first_token(&mut reservation, UnixMicros(4));
    let (inflight, queued, uncached) = router.load_totals(reservation.replica());
    assert_eq!((inflight, uncached), (1, 0), "its prefill is done");
    assert!(queued > 0);
    let home = reservation.replica();
    router.finish(reservation, &prompt, &RequestOutcome::default(), UnixMicros(5));
    let routed = route(&router, "gorgo", &prompt, 3, UnixMicros(6));
    assert!(routed.record.candidates[home.index()].cached_tokens > 0, "it broke off after it was read");
    router.finish(routed.reservation, &prompt, &RequestOutcome::default(), UnixMicros(7));
}

#[test]
fn replicas_that_were_tried_are_neither_chosen_nor_listed() {
    let router = probed(3, "", 20.0);
    let prompt = unique(&router, 1, 100);
    let gorgo = id(&router, "gorgo");
    for seed in 0..50 {
        let routed = router
            .decide(
                &prompt,
                &DecisionContext {
                    policy: gorgo,
                    id: DecisionId(1),
                    seed,
                    at: UnixMicros(1),
                    exclude: &[ReplicaId(1)],
                },
            )
            .unwrap();
        assert_ne!(routed.reservation.replica(), ReplicaId(1));
        let listed: Vec<_> = routed.record.candidates.iter().map(|row| row.replica.0).collect();
        assert_eq!(listed, [0, 2]);
        router.finish(routed.reservation, &prompt, &RequestOutcome::default(), UnixMicros(1));
    }
    let all = [ReplicaId(0), ReplicaId(1), ReplicaId(2)];
    assert_eq!(
        router
            .decide(
                &prompt,
                &DecisionContext { policy: gorgo, id: DecisionId(1), seed: 1, at: UnixMicros(1), exclude: &all }
            )
            .unwrap_err(),
        DecideError::NoReplica
    );
}

/// The first replica must be dialled, the second has a window for all, of the third nothing is known.
#[derive(Debug)]
struct PartialEstimator;

impl RoundTripEstimator for PartialEstimator {
    fn round_trips(&self, replica: ReplicaId, bytes: u64, _at: UnixMicros) -> Option<f64> {
        assert!(bytes > 0, "the body's bytes are asked for");
        [Some(4.0), Some(1.0), None][replica.index()]
    }
}

#[test]
fn a_decision_asks_the_connections_where_its_policy_charges_them() {
    let text = "[policy.wire]\nunit = \"ms\"\n[[policy.wire.term]]\nkind = \"network\"\n";
    let router = probed(3, text, 20.0);
    let prompt = prompt(&router, "hi");
    let charged = |router: &Router, policy: &str| {
        let routed = router
            .decide(
                &prompt,
                &DecisionContext {
                    policy: id(router, policy),
                    id: DecisionId(1),
                    seed: 1,
                    at: UnixMicros(1),
                    exclude: &[],
                },
            )
            .unwrap();
        let charged: Vec<_> = routed.record.candidates.iter().map(|row| row.signals_milli.clone()).collect();
        router.finish(routed.reservation, &prompt, &RequestOutcome::default(), UnixMicros(1));
        charged.into_iter().map(|signals| signals[0]).collect::<Vec<_>>()
    };
    assert_eq!(charged(&router, "wire"), [20_000; 3], "nobody tells: one round trip");
    router.set_round_trip_estimator(Arc::new(PartialEstimator));
    assert_eq!(charged(&router, "wire"), [80_000, 20_000, 20_000]);
    assert_eq!(charged(&router, "gorgo"), [20_000; 3], "others do not read it");
}

#[test]
fn who_cannot_be_served_is_told_why_and_leaves_no_load() {
    let router = probed(2, "", 20.0);
    let gorgo = id(&router, "gorgo");
    let refused = |prompt: &ParsedRequest| {
        router
            .decide(
                prompt,
                &DecisionContext { policy: gorgo, id: DecisionId(1), seed: 1, at: UnixMicros(1), exclude: &[] },
            )
            .unwrap_err()
    };
    let body = br#"{"model":"other","messages":[{"role":"user","content":"hi"}]}"#;
    let other = router.parse_request("/v1/chat/completions", body, None, None).unwrap();
    assert_eq!(refused(&other), DecideError::UnknownModel);
    for replica in 0..2 {
        router.apply(&FleetEvent::Down { replica: ReplicaId(replica) });
    }
    assert_eq!(refused(&prompt(&router, "hi")), DecideError::NoReplica);
    assert_eq!((router.load_totals(ReplicaId(0)), router.load_totals(ReplicaId(1))), ((0, 0, 0), (0, 0, 0)));
}

#[test]
fn a_malformed_body_is_the_clients_fault_and_is_not_quoted() {
    let router = router_of(1, "");
    let error = router.parse_request("/v1/chat/completions", b"{\"secret plan", None, None).unwrap_err();
    let ReadError::Malformed(text) = error;
    assert!(!text.is_empty() && !text.contains("secret"), "{text}");
}

#[test]
fn a_session_is_the_header_else_the_user_else_the_key_else_the_head() {
    let router = router_of(1, "");
    let body =
        |user: &str, text: &str| format!(r#"{{"model":"m",{user}"messages":[{{"role":"user","content":"{text}"}}]}}"#);
    let hash = |user: &str, text: &str, header: Option<&[u8]>, key: Option<&[u8]>| {
        router.parse_request("/v1/chat/completions?x=1", body(user, text).as_bytes(), header, key).unwrap().session_hash
    };
    let ann = r#""user":"ann","#;
    let by_header = hash(ann, "a", Some(b"s1"), Some(b"k1"));
    assert_eq!(by_header, hash("", "b", Some(b"s1"), Some(b"k2")));
    let by_user = hash(ann, "a", Some(b""), Some(b"k1"));
    assert_eq!(by_user, hash(ann, "b", None, Some(b"k2")));
    let by_key = hash("", "a", None, Some(b"k1"));
    assert_eq!(by_key, hash("", "b", None, Some(b"k1")));
    let by_head = hash("", "a", None, None);
    assert_eq!(by_head, hash("", "a", None, None));
    assert_ne!(by_head, hash("", "b", None, None));
    let kinds = [by_header, by_user, by_key, by_head, hash("", "a", Some(b"k1"), None)];
    assert!((0..5).all(|a| (0..a).all(|b| kinds[a] != kinds[b])), "{kinds:x?}");
}

const MINE: &str = r#"
    [policy.mine]
    unit = "raw"
    picker = { kind = "softmin", temperature = 200.0 }
    exploration = 0.05
    shadow = ["round-robin", "least-load"]
    [[policy.mine.term]]
    kind = "rtt"
    [[policy.mine.term]]
    kind = "prefill"
    weight = { rate = "prefill", init = 1.0 }
    [[policy.mine.term]]
    kind = "queue"
    weight = 0.1
    [[policy.mine.term]]
    kind = "inflight"
    weight = 3.0
    [policy.mine.constraint.concentration]
    max_share = 0.4
    window_decisions = 50
"#;

/// Serves a mixed load; gives back all rows.
fn served(router: &Router, policy: &str, requests: usize) -> Vec<DecisionRecord> {
    let mut rows = Vec::new();
    let mut held: Vec<(Reservation, ParsedRequest)> = Vec::new();
    for number in 0..requests {
        let at = UnixMicros(number as u64 * 50_000);
        router.apply(&FleetEvent::Probe {
            replica: ReplicaId(u16::try_from(number % 3).unwrap()),
            at,
            rtt_ms: (number % 17 > 0).then_some(10.0 + (number % 29) as f64 * 3.7),
        });
        let prompt = unique(router, number % 40, 50 + number % 7 * 300);
        let routed = route(router, policy, &prompt, number as u64, at);
        rows.push(*routed.record);
        held.push((routed.reservation, prompt));
        if held.len() > 12 {
            let (mut reservation, prompt) = held.remove(number % 12);
            router.first_token(&mut reservation, at);
            router.finish(reservation, &prompt, &done(500, 100, 80.0 + (number % 11) as f64), at);
        }
    }
    for (reservation, prompt) in held {
        router.finish(reservation, &prompt, &RequestOutcome::default(), UnixMicros(1));
    }
    rows
}

#[test]
fn a_thousand_stored_decisions_repeated_from_their_rows_are_equal() {
    let router = router_of(3, MINE);
    let policies = router.policies();
    let mine = policies.by_name("mine").unwrap();
    let mut scratch = crate::policy::DecisionScratch::default();
    let mut relaxed = 0;
    for row in served(&router, "mine", 1_000) {
        let repeated = repeat_decision(mine, &mine.weights().values, &row.candidates, row.seed, &mut scratch).unwrap();
        assert_eq!(Some(repeated.replica), row.replica);
        assert_eq!((repeated.propensity.to_bits(), repeated.ties), (row.propensity.to_bits(), row.ties));
        relaxed += usize::from(row.candidates.iter().any(|row| row.excluded_by.is_some()));
    }
    assert!(relaxed > 50, "the constraint was in play: {relaxed}");
}

#[test]
fn the_same_calls_give_the_same_rows() {
    assert_eq!(served(&router_of(3, MINE), "mine", 300), served(&router_of(3, MINE), "mine", 300));
}

#[test]
fn shadows_are_scored_on_the_same_snapshot_and_keep_their_own_turns() {
    let router = probed(3, MINE, 20.0);
    let rows = served(&router, "mine", 9);
    let round_robin: Vec<_> = rows.iter().map(|row| row.shadows[0].replica.0).collect();
    assert_eq!(round_robin, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    assert_eq!(rows[0].shadows[1].policy, PolicyBuildId(id(&router, "least-load").0));
    let routed = route(&router, "least-load", &unique(&router, 1, 10), 77, UnixMicros(1));
    assert!(routed.record.shadows.is_empty());
    router.finish(routed.reservation, &unique(&router, 1, 10), &RequestOutcome::default(), UnixMicros(1));
}

#[test]
fn new_weights_are_used_by_the_next_decision_if_they_fit() {
    let router = probed(2, "", 20.0);
    let gorgo = id(&router, "gorgo");
    let new = |values: Vec<f64>| Arc::new(PolicyWeights { generation: crate::model::Generation(7), values });
    assert!(!router.set_weights(gorgo, new(vec![1.0])), "one weight per term");
    assert!(!router.set_weights(gorgo, new(vec![1.0, f64::NAN, 1.0])));
    assert!(!router.set_weights(PolicyIndex(999), new(vec![])));
    assert_eq!(router.weights(gorgo).unwrap().values, [0.276, 1.0, 0.5]);
    assert!(router.set_weights(gorgo, new(vec![2.0, 0.0, 0.0])));
    let prompt = unique(&router, 1, 100);
    let routed = route(&router, "gorgo", &prompt, 1, UnixMicros(1));
    assert_eq!(routed.record.generation.0, 7);
    assert_eq!(routed.record.candidates[0].cost_milli, 40_000);
    router.finish(routed.reservation, &prompt, &RequestOutcome::default(), UnixMicros(2));
}

#[test]
fn a_capacity_bounds_what_the_index_promises() {
    let mut setup = setup(1);
    setup.fleet[0].kv_capacity_tokens = Some(640); // 10 blocks of 64 tokens
    let policies = build(&KindRegistry::built_in(), &[], "gorgo", &setup.fleet).policies.unwrap();
    let router = Router::new(setup, policies);
    for number in 0..20 {
        let prompt = unique(&router, number, 640);
        let routed = route(&router, "gorgo", &prompt, number as u64, UnixMicros(number as u64));
        router.finish(routed.reservation, &prompt, &done(640, 0, 10.0), UnixMicros(number as u64));
    }
    assert!(router.index.stats().held <= 12, "{:?}", router.index.stats());
}

#[test]
fn predictions_come_once_the_rates_are_learned() {
    let router = probed(1, "", 20.0);
    for number in 0..200 {
        let prompt = unique(&router, number, 100 + number * 7);
        let routed = route(&router, "gorgo", &prompt, number as u64, UnixMicros(number as u64));
        let tokens = routed.record.prompt_tokens;
        assert_eq!(routed.predicted_ttft_ms.is_some(), number >= 30, "request {number}");
        if let Some(predicted) = routed.predicted_ttft_ms.filter(|_| number > 100) {
            let truth = 20.0 + 40.0 + 0.1 * f64::from(tokens);
            assert!((predicted - truth).abs() < 0.15 * truth, "{predicted} {truth}");
        }
        let ending = done(tokens, 0, 20.0 + 40.0 + 0.1 * f64::from(tokens));
        router.finish(routed.reservation, &prompt, &ending, UnixMicros(number as u64));
    }
    assert_eq!(router.rates(UnixMicros(1)).len(), 4);
}

#[test]
fn requests_at_once_from_many_threads_are_all_released() {
    let router = probed(3, MINE, 20.0);
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let router = &router;
            scope.spawn(move || {
                for number in 0..100 {
                    let at = UnixMicros(number as u64);
                    let prompt = unique(router, thread * 7 + number % 5, 300);
                    let mut reservation = route(router, "mine", &prompt, number as u64, at).reservation;
                    if number % 3 > 0 {
                        router.first_token(&mut reservation, at);
                    }
                    let ending = if number % 4 > 0 { done(300, 0, 50.0) } else { RequestOutcome::default() };
                    router.finish(reservation, &prompt, &ending, at);
                }
            });
        }
    });
    for replica in 0..3 {
        assert_eq!(router.load_totals(ReplicaId(replica)), (0, 0, 0));
    }
    // Turns are counted under the lock: the next one is the 801st.
    let routed = route(&router, "mine", &unique(&router, 1, 10), 1, UnixMicros(1));
    assert_eq!(routed.record.shadows[0].replica, ReplicaId(800 % 3));
    router.finish(routed.reservation, &unique(&router, 1, 10), &RequestOutcome::default(), UnixMicros(1));
}
