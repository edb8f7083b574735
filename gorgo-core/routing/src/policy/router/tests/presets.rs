//! What each baseline of the field is known for, through the router: herding, hot prefixes, gates.

use super::*;
use crate::policy::PRESETS;

/// Routes `count` equal prompts that all stay in flight; how many each replica got, in the order they came.
fn flood(router: &Router, policy: &str, prompt: &ParsedRequest, count: u64) -> Vec<usize> {
    let mut chosen = Vec::new();
    for number in 0..count {
        let routed = route(router, policy, prompt, number, UnixMicros(1_000 + number));
        chosen.push(routed.reservation.replica().index());
        // It stays in flight for good.
        drop(routed.reservation);
    }
    chosen
}

fn counts(chosen: &[usize], replicas: usize) -> Vec<usize> {
    (0..replicas).map(|replica| chosen.iter().filter(|one| **one == replica).count()).collect()
}

/// One completed request of this prompt at a replica: its cache is warm.
fn warm(router: &Router, prompt: &ParsedRequest, replica: u16, replicas: u16) {
    let others: Vec<ReplicaId> = (0..replicas).filter(|id| *id != replica).map(ReplicaId).collect();
    let gorgo = id(router, "gorgo");
    let routed = router
        .decide(
            prompt,
            &DecisionContext { policy: gorgo, id: DecisionId(1), seed: 1, at: UnixMicros(1), exclude: &others },
        )
        .unwrap();
    router.finish(
        routed.reservation,
        prompt,
        &RequestOutcome { completed: true, ..RequestOutcome::default() },
        UnixMicros(2),
    );
}

#[test]
fn smg_serves_a_hot_prefix_from_one_replica_until_the_gate_opens() {
    let router = probed(3, "", 20.0);
    let hot = unique(&router, 1, 2_000);
    let chosen = flood(&router, "smg-cache-aware", &hot, 36);
    let home = chosen[0];
    assert!(chosen[..33].iter().all(|one| *one == home), "33 to one: {chosen:?}");
    assert!(chosen[33] != home && chosen[34] != home, "33 more than the idle ones: {chosen:?}");
}

#[test]
fn aibrix_opens_its_gate_at_eight() {
    let router = probed(3, "", 20.0);
    let hot = unique(&router, 1, 2_000);
    let counts = counts(&flood(&router, "aibrix-prefix-cache", &hot, 60), 3);
    assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 9, "{counts:?}");
}

#[test]
fn prefix_hash_keeps_a_hot_head_within_its_bound_and_consistent_hash_does_not() {
    let router = probed(3, "", 20.0);
    let hot = unique(&router, 1, 2_000);
    let counted = counts(&flood(&router, "prefix-hash", &hot, 60), 3);
    let most = *counted.iter().max().unwrap();
    assert!((20..=26).contains(&most), "at most 1.25 x 61 / 3: {counted:?}");

    let router = probed(3, "", 20.0);
    let counted = counts(&flood(&router, "consistent-hash", &hot, 60), 3);
    assert!(counted.contains(&60), "{counted:?}");
}

#[test]
fn llm_d_herds_between_two_reports() {
    let router = probed(3, "", 20.0);
    for replica in 0..3 {
        report(&router, replica, UnixMicros(1), if replica == 2 { 0.0 } else { 1.0 });
    }
    let hot = unique(&router, 1, 2_000);
    warm(&router, &hot, 1, 3);
    let counted = counts(&flood(&router, "llm-d", &hot, 60), 3);
    assert_eq!(counted, [0, 60, 0], "the queue it sees is the old one");
}

#[test]
fn dynamo_and_lmetric_leave_a_hot_prefix_as_its_replica_fills_up() {
    for policy in ["dynamo-kv", "lmetric"] {
        let router = probed(3, "", 20.0);
        let hot = unique(&router, 1, 2_000);
        warm(&router, &hot, 1, 3);
        let chosen = flood(&router, policy, &hot, 60);
        assert_eq!(chosen[0], 1, "{policy}");
        let counted = counts(&chosen, 3);
        assert!(*counted.iter().min().unwrap() >= 10, "{policy}: {counted:?}");
    }
}

#[test]
fn smg_least_load_gives_the_faster_engine_more() {
    let router = probed(2, "", 20.0);
    for (replica, throughput) in [(0, 4_000.0), (1, 1_000.0)] {
        let report = EngineReport { throughput: Some(throughput), ..EngineReport::default() };
        router.apply(&FleetEvent::Report { replica: ReplicaId(replica), at: UnixMicros(1), report });
    }
    let mut counted = [0; 2];
    for number in 0..100 {
        let prompt = unique(&router, usize::try_from(number).unwrap(), 1_000);
        counted[route(&router, "smg-least-load", &prompt, number, UnixMicros(2)).reservation.replica().index()] += 1;
    }
    assert!((78..=82).contains(&counted[0]), "4 to 1: {counted:?}");
}

#[test]
fn skywalker_fills_regions_from_near_to_far() {
    let router = router_of(3, "");
    for (replica, rtt_ms) in [(0, 37.0), (1, 279.0), (2, 456.0)] {
        router.apply(&FleetEvent::Probe { replica: ReplicaId(replica), at: UnixMicros(0), rtt_ms: Some(rtt_ms) });
    }
    let chosen: Vec<usize> = (0..30)
        .map(|number| {
            let prompt = unique(&router, usize::try_from(number).unwrap(), 500);
            route(&router, "skywalker", &prompt, number, UnixMicros(1)).reservation.replica().index()
        })
        .collect();
    assert_eq!(counts(&chosen[..10], 3), [10, 0, 0]);
    assert_eq!(counts(&chosen[..20], 3), [10, 10, 0]);
    assert_eq!(counts(&chosen, 3), [10, 10, 10]);
}

#[test]
fn dualmap_uses_both_homes_of_a_hot_head_and_no_other() {
    let router = probed(5, "", 20.0);
    let hot = unique(&router, 1, 2_000);
    let counted = counts(&flood(&router, "dualmap", &hot, 60), 5);
    assert_eq!(counted.iter().filter(|count| **count == 0).count(), 3, "{counted:?}");
    assert!(counted.iter().all(|count| *count == 0 || *count >= 20), "{counted:?}");
}

#[test]
fn every_preset_spreads_or_sticks_but_can_be_repeated_from_its_rows() {
    for preset in PRESETS {
        let router = router_of(3, "");
        for replica in 0..3 {
            report(&router, replica, UnixMicros(1), f64::from(replica));
        }
        let policies = router.policies();
        let policy = policies.by_name(preset.name).unwrap();
        let mut scratch = crate::policy::DecisionScratch::default();
        for row in served(&router, preset.name, 120) {
            let repeated =
                repeat_decision(policy, &policy.weights().values, &row.candidates, row.seed, &mut scratch).unwrap();
            assert_eq!(Some(repeated.replica), row.replica, "{}", preset.name);
            let (stored, same) = ((row.propensity.to_bits(), row.ties), (repeated.propensity.to_bits(), repeated.ties));
            assert_eq!(stored, same, "{}", preset.name);
        }
    }
}
