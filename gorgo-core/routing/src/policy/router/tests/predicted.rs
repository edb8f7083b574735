//! `predicted-latency` through the router: what it learns, and what it does with it.

use super::*;
use crate::policy::DecisionScratch;

const POLICY: &str = "predicted-latency";

fn ms(ms: u64) -> UnixMicros {
    UnixMicros(1_000_000_000 + ms * 1_000)
}

/// The signal of a term at a replica, as stored.
fn signal(router: &Router, row: &DecisionRecord, term: &str, replica: usize) -> f64 {
    let policies = router.policies();
    let policy = policies.by_name(POLICY).unwrap();
    let slot = policy.terms.iter().position(|known| &*known.name == term).unwrap();
    crate::model::from_milli(row.candidates[replica].signals_milli[slot])
}

/// A router over these round trips.
fn distances(rtts_ms: &[f64]) -> Router {
    let router = router_of(u16::try_from(rtts_ms.len()).unwrap(), "");
    for (replica, rtt_ms) in (0..).zip(rtts_ms) {
        router.apply(&FleetEvent::Probe { replica: ReplicaId(replica), at: ms(0), rtt_ms: Some(*rtt_ms) });
    }
    router
}

/// Sends single requests to a replica that answers in `rtt + 50 ms + per_token × uncached`, one after the other.
fn teach(router: &Router, replica: u16, others: &[u16], rtt_ms: f64, per_token: f64, from: u64) {
    let others: Vec<ReplicaId> = others.iter().copied().map(ReplicaId).collect();
    for number in 0..200 {
        let tokens = 500 + (number % 7) * 700;
        let prompt = unique(router, usize::from(replica) * 1_000 + number, tokens);
        let at = from + number as u64 * 5_000;
        let policy = id(router, POLICY);
        let mut routed = router
            .decide(&prompt, &DecisionContext { policy, id: DecisionId(1), seed: 1, at: ms(at), exclude: &others })
            .unwrap();
        let ttft = rtt_ms + 50.0 + per_token * f64::from(routed.record.prompt_tokens);
        let first = ms(at).plus(std::time::Duration::from_secs_f64(ttft / 1e3));
        router.first_token(&mut routed.reservation, first);
        let tokens = routed.record.prompt_tokens;
        let end = first.plus(std::time::Duration::from_millis(90));
        router.finish(routed.reservation, &prompt, &done(tokens, 0, ttft), end);
    }
}

#[test]
fn a_burst_sees_the_work_before_it() {
    let router = distances(&[37.0, 279.0, 456.0]);
    let mut counted = [0; 3];
    let mut waiting = Vec::new();
    for number in 0..40 {
        let prompt = unique(&router, usize::try_from(number).unwrap(), 2_000);
        let routed = route(&router, POLICY, &prompt, number, ms(1));
        counted[routed.reservation.replica().index()] += 1;
        waiting.push(signal(&router, &routed.record, "backlog", 0));
        drop(routed.reservation);
    }
    assert_eq!(waiting[0], 0.0);
    assert!(waiting.windows(2).all(|two| two[0] <= two[1]), "{waiting:?}");
    assert!(counted[0] > counted[2] && counted.iter().all(|count| *count >= 8), "{counted:?}");
}

#[test]
fn what_service_takes_is_learned_per_replica() {
    let router = distances(&[40.0, 40.0]);
    teach(&router, 0, &[1], 40.0, 0.06, 0);
    teach(&router, 1, &[0], 40.0, 0.24, 2_000_000);
    let prompt = unique(&router, 9_999, 4_000);
    let routed = route(&router, POLICY, &prompt, 1, ms(4_000_000));
    let tokens = f64::from(routed.record.prompt_tokens);
    for (replica, per_token) in [(0, 0.06), (1, 0.24)] {
        let computed = signal(&router, &routed.record, "compute", replica);
        let truth = 50.0 + per_token * tokens;
        assert!((computed / truth - 1.0).abs() < 0.05, "{computed} for {truth}");
    }
    assert_eq!(routed.reservation.replica(), ReplicaId(0));
    let start = signal(&router, &routed.record, "tail-start", 0);
    assert!((700.0..1_300.0).contains(&start), "the 88 % quantile of both: {start}");
}

#[test]
fn requests_that_waited_teach_nothing_of_service() {
    let router = distances(&[40.0]);
    teach(&router, 0, &[], 40.0, 0.06, 0);
    let before = route(&router, POLICY, &unique(&router, 9_000, 4_000), 1, ms(2_000_000));
    // 30 at once, each slower than the one before: a queue, not a slow engine.
    let mut held = Vec::new();
    for number in 0..30 {
        let prompt = unique(&router, 5_000 + number, 3_000);
        held.push((route(&router, POLICY, &prompt, number as u64, ms(2_000_000)), prompt));
    }
    for (place, (routed, prompt)) in held.into_iter().enumerate() {
        let ttft = 300.0 + 260.0 * place as f64;
        router.finish(routed.reservation, &prompt, &done(3_000, 0, ttft), ms(2_000_000 + 300 * (place as u64 + 1)));
    }
    let after = route(&router, POLICY, &unique(&router, 9_001, 4_000), 2, ms(3_000_000));
    let compute = |routed: &RoutedRequest| signal(&router, &routed.record, "compute", 0);
    assert!((compute(&after) / compute(&before) - 1.0).abs() < 0.02, "{} {}", compute(&before), compute(&after));
}

#[test]
fn a_smaller_cache_than_believed_is_found_out() {
    let router = router_of(1, "");
    let report = EngineReport { kv_capacity_tokens: Some(100_000), ..EngineReport::default() };
    router.apply(&FleetEvent::Report { replica: ReplicaId(0), at: UnixMicros(0), report });
    let capacity = || router.index.replica_stats(ReplicaId(0)).unwrap().capacity;
    let believed = capacity();
    let prompts: Vec<ParsedRequest> = (0..40).map(|number| unique(&router, number, 2_000)).collect();
    for round in 0..400_u64 {
        // Any of them, so that some are used again that are still believed cached; the engine keeps the last five.
        let drawn = |round: u64| usize::try_from(round * 7_919 % 1_009 % 40).unwrap();
        let prompt = &prompts[drawn(round)];
        let recent = (1..=round.min(5)).any(|ago| drawn(round - ago) == drawn(round));
        let routed = route(&router, "gorgo", prompt, 1, ms(round * 1_000));
        let tokens = routed.record.prompt_tokens;
        let cached = if recent { tokens } else { 0 };
        router.finish(routed.reservation, prompt, &done(tokens, cached, 100.0), ms(round * 1_000));
    }
    assert!(capacity() < believed * 2 / 3, "{} of {believed}", capacity());
    // The next report says the same as the first, and is not believed.
    let learned = capacity();
    router.apply(&FleetEvent::Report { replica: ReplicaId(0), at: ms(400_000), report });
    assert!(capacity().abs_diff(learned) * 20 < learned, "{} after {learned}", capacity());
}

#[test]
fn a_late_hit_lets_the_mirror_grow() {
    let router = router_of(1, "");
    let report = EngineReport { kv_capacity_tokens: Some(40_000), ..EngineReport::default() };
    router.apply(&FleetEvent::Report { replica: ReplicaId(0), at: UnixMicros(0), report });
    let capacity = || router.index.replica_stats(ReplicaId(0)).unwrap().capacity;
    let believed = capacity();
    // Twenty prompts fill the mirror; each is used again when it is about to be evicted, and the engine has it.
    let turn = |number: usize, at: u64| {
        let prompt = unique(&router, number, 2_000);
        let routed = route(&router, "gorgo", &prompt, 1, ms(at));
        let (tokens, cached) = (routed.record.prompt_tokens, routed.predicted_cached_tokens);
        router.finish(routed.reservation, &prompt, &done(tokens, cached, 100.0), ms(at));
        cached
    };
    let held = usize::try_from(believed).unwrap() * 256 / 8_000;
    for number in 0..200 {
        turn(number, number as u64 * 1_000);
        if number >= held {
            turn(number + 1 - held, number as u64 * 1_000 + 500);
        }
    }
    assert!(capacity() > believed, "{} of {believed}", capacity());
}

#[test]
fn decisions_are_repeated_from_their_rows_while_everything_is_learned() {
    let router = router_of(3, "");
    let policies = router.policies();
    let policy = policies.by_name(POLICY).unwrap();
    let mut scratch = DecisionScratch::default();
    let start = policy.terms.iter().position(|term| &*term.name == "tail-start").unwrap();
    let mut starts = std::collections::BTreeSet::new();
    for row in served(&router, POLICY, 1_000) {
        starts.insert(row.candidates[0].signals_milli[start]);
        let repeated =
            repeat_decision(policy, &policy.weights().values, &row.candidates, row.seed, &mut scratch).unwrap();
        assert_eq!((Some(repeated.replica), repeated.ties), (row.replica, row.ties));
        assert_eq!(repeated.propensity.to_bits(), row.propensity.to_bits());
    }
    assert!(starts.len() >= 2, "the tail's start moved: {starts:?}");
}
