//! The gate as those who drive a router see it.

use super::*;
use crate::model::ApiPath;
use crate::policy::{EnterResult, WaitingRequest};

/// The fewest in flight; room for two at each replica, and one may wait for it.
const GATED: &str = r#"
[policy.gated]
picker = { kind = "lowest" }
[[policy.gated.term]]
kind = "inflight"
[policy.gated.admission]
max_in_flight = 2
max_queued = 1
hold_cold = false
"#;

fn enter(router: &Router, policy: &str, prompt: &ParsedRequest, number: u64) -> Result<EnterResult, DecideError> {
    let decision = DecisionId(i64::try_from(number).unwrap());
    router.admit(
        prompt,
        &DecisionContext {
            policy: id(router, policy),
            id: decision,
            seed: number,
            at: UnixMicros(1_000_000 + number),
            exclude: &[],
        },
    )
}

fn routed(entered: Result<EnterResult, DecideError>) -> RoutedRequest {
    match entered {
        Ok(EnterResult::Routed(routed)) => *routed,
        other => panic!("{other:?}"),
    }
}

fn held(entered: Result<EnterResult, DecideError>) -> WaitingRequest {
    match entered {
        Ok(EnterResult::Waiting(held)) => held,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_fifth_waits_as_load_of_its_replica_and_the_seventh_is_shed() {
    let router = probed(2, GATED, 10.0);
    let prompt = unique(&router, 1, 1_000);
    let mut running: Vec<RoutedRequest> =
        (0..4).map(|number| routed(enter(&router, "gated", &prompt, number))).collect();
    let waiting: Vec<WaitingRequest> = (4..6).map(|number| held(enter(&router, "gated", &prompt, number))).collect();
    let replicas: Vec<ReplicaId> = waiting.iter().map(WaitingRequest::replica).collect();
    assert_ne!(replicas[0], replicas[1], "who waits counts as load for the next");
    assert_eq!(enter(&router, "gated", &prompt, 6).unwrap_err(), DecideError::GateFull { retry_secs: 1 });
    assert_eq!((router.waiting_requests(ReplicaId(0)), router.waiting_requests(ReplicaId(1))), (1, 1));
    assert_eq!(router.load_totals(ReplicaId(0)).0, 2, "it is not in flight");
    // Who will not wait is not sent to a closed replica.
    let refused = router.decide(
        &prompt,
        &DecisionContext { policy: id(&router, "gated"), id: DecisionId(9), seed: 9, at: UnixMicros(1), exclude: &[] },
    );
    assert_eq!(refused.unwrap_err(), DecideError::NoReplica);

    let first = running.swap_remove(0);
    let place = first.reservation.replica();
    router.finish(first.reservation, &prompt, &done(1_000, 0, 50.0), UnixMicros(2_000_000));
    let called = router.take_called();
    let next = waiting.iter().position(|held| held.replica() == place).unwrap();
    assert_eq!(called, [waiting[next].number()]);
    let mut waiting = waiting;
    let held = waiting.swap_remove(next);
    let again = router.readmit(
        held,
        &prompt,
        &DecisionContext {
            policy: id(&router, "gated"),
            id: DecisionId(4),
            seed: 4,
            at: UnixMicros(2_000_001),
            exclude: &[],
        },
    );
    let again = routed(again);
    assert_eq!(again.reservation.replica(), place);
    // The row says what the decision saw: one that waits for the other replica is load there if it came before.
    let row = |replica: u16| again.record.candidates.iter().find(|row| row.replica == ReplicaId(replica)).unwrap();
    let ahead = u32::from(next == 1);
    assert_eq!((row(place.0).inflight, row(1 - place.0).inflight), (1, 2 + ahead));

    router.cancel_wait(waiting.remove(0), UnixMicros(2_000_002));
    running.push(again);
    for routed in running {
        router.finish(routed.reservation, &prompt, &done(1_000, 0, 50.0), UnixMicros(3_000_000));
    }
    for replica in [0, 1] {
        assert_eq!(
            (router.load_totals(ReplicaId(replica)), router.waiting_requests(ReplicaId(replica))),
            ((0, 0, 0), 0)
        );
    }
}

#[test]
fn a_listener_is_told_at_once() {
    let router = Arc::new(probed(1, GATED, 10.0));
    let told = Arc::new(Mutex::new(Vec::new()));
    router.on_admission_call({
        let told = Arc::clone(&told);
        move |number| told.lock().push(number)
    });
    let prompt = unique(&router, 1, 100);
    let mut running: Vec<RoutedRequest> =
        (0..2).map(|number| routed(enter(&router, "gated", &prompt, number))).collect();
    let waits = held(enter(&router, "gated", &prompt, 2));
    assert!(told.lock().is_empty());
    router.finish(running.remove(0).reservation, &prompt, &RequestOutcome::default(), UnixMicros(5_000_000));
    assert_eq!(*told.lock(), [waits.number()]);
    router.cancel_wait(waits, UnixMicros(5_000_001));
    router.finish(running.remove(0).reservation, &prompt, &RequestOutcome::default(), UnixMicros(5_000_002));
}

#[test]
fn when_its_replica_goes_down_a_request_is_called_and_goes_elsewhere() {
    let router = probed(2, GATED, 10.0);
    let prompt = unique(&router, 1, 100);
    let running: Vec<RoutedRequest> = (0..4).map(|number| routed(enter(&router, "gated", &prompt, number))).collect();
    let waits = held(enter(&router, "gated", &prompt, 4));
    let (gone, left) = (waits.replica(), ReplicaId(1 - waits.replica().0));
    for routed in running {
        if routed.reservation.replica() == left {
            router.finish(routed.reservation, &prompt, &RequestOutcome::default(), UnixMicros(2_000_000));
        } else {
            // It runs on.
            std::mem::forget(routed);
        }
    }
    router.apply(&FleetEvent::Down { replica: gone });
    assert_eq!(router.take_called(), [waits.number()]);
    let again = routed(router.readmit(
        waits,
        &prompt,
        &DecisionContext {
            policy: id(&router, "gated"),
            id: DecisionId(4),
            seed: 4,
            at: UnixMicros(2_000_001),
            exclude: &[],
        },
    ));
    assert_eq!(again.reservation.replica(), left);
    router.apply(&FleetEvent::Down { replica: left });
    let nobody = enter(&router, "gated", &prompt, 5);
    assert_eq!(nobody.unwrap_err(), DecideError::NoReplica);
    router.finish(again.reservation, &prompt, &RequestOutcome::default(), UnixMicros(2_000_002));
}

#[test]
fn what_generates_nothing_passes_the_gate() {
    let router = probed(1, GATED, 10.0);
    let prompt = ParsedRequest { path: ApiPath::Embeddings, ..unique(&router, 1, 100) };
    let running: Vec<RoutedRequest> = (0..9).map(|number| routed(enter(&router, "gated", &prompt, number))).collect();
    assert_eq!(router.load_totals(ReplicaId(0)).0, 9);
    for routed in running {
        router.finish(routed.reservation, &prompt, &RequestOutcome::default(), UnixMicros(2_000_000));
    }
}

#[test]
fn without_a_known_batch_the_preset_never_waits_and_with_one_it_does() {
    let router = probed(1, "", 10.0);
    let prompt = unique(&router, 1, 100);
    let rule = router.policies().by_name("predicted-latency").unwrap().admission.unwrap();
    let limit = || router.state.lock().gate.limit(&rule, ReplicaId(0));
    assert_eq!(limit(), None);
    let mut running: Vec<RoutedRequest> =
        (0..40).map(|number| routed(enter(&router, "predicted-latency", &prompt, number))).collect();
    let report = EngineReport { decode_batch: Some(20), max_running: Some(64), ..EngineReport::default() };
    router.apply(&FleetEvent::Report { replica: ReplicaId(0), at: UnixMicros(2_000_000), report });
    assert_eq!(limit(), Some(18));
    let waits = held(enter(&router, "predicted-latency", &prompt, 41));
    // It opens when one below the limit is in flight, not before.
    while running.len() > 18 {
        router.finish(running.remove(0).reservation, &prompt, &RequestOutcome::default(), UnixMicros(2_100_000));
        assert!(router.take_called().is_empty());
    }
    router.finish(running.remove(0).reservation, &prompt, &RequestOutcome::default(), UnixMicros(2_100_000));
    assert_eq!(router.take_called(), [waits.number()]);
    router.cancel_wait(waits, UnixMicros(2_100_001));
    for routed in running {
        router.finish(routed.reservation, &prompt, &RequestOutcome::default(), UnixMicros(3_000_000));
    }
}

#[test]
fn who_waits_for_a_replica_that_is_drained_is_called_and_goes_elsewhere() {
    let router = probed(2, GATED, 10.0);
    let prompt = unique(&router, 1, 1_000);
    let running: Vec<RoutedRequest> = (0..4).map(|number| routed(enter(&router, "gated", &prompt, number))).collect();
    let waiting = held(enter(&router, "gated", &prompt, 4));
    let place = waiting.replica();
    assert!(router.set_draining(place, true) && router.is_draining(place));
    assert_eq!(router.take_called(), [waiting.number()]);
    let again = held(router.readmit(
        waiting,
        &prompt,
        &DecisionContext {
            policy: id(&router, "gated"),
            id: DecisionId(4),
            seed: 4,
            at: UnixMicros(2_000_000),
            exclude: &[],
        },
    ));
    assert_ne!(again.replica(), place);
    router.cancel_wait(again, UnixMicros(2_000_001));
    assert!(!router.set_draining(ReplicaId(9), true), "a stranger");
    // What runs there ends as ever.
    for one in running {
        router.finish(one.reservation, &prompt, &done(1_000, 0, 50.0), UnixMicros(3_000_000));
    }
    assert_eq!((router.load_totals(ReplicaId(0)).0, router.load_totals(ReplicaId(1)).0), (0, 0));
    let next = routed(enter(&router, "gated", &prompt, 5));
    assert_ne!(next.reservation.replica(), place);
    router.finish(next.reservation, &prompt, &done(1_000, 0, 50.0), UnixMicros(4_000_000));
}
