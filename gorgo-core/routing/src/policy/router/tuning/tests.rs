//! A router whose policy is tuned: decisions are stamped, weights taken down before them, retries stay with their arm.

use std::sync::Arc;

use crate::config::{IndexConfig, ProbeConfig, ScrapeConfig};
use crate::model::arbitrary::fleet;
use crate::model::{
    ApiPath, DecisionId, FleetEvent, OutcomeRecord, ReplicaId, RequestOutcome, RouteLabels, StoreRecord, UnixMicros,
};
use crate::policy::{DecideError, DecisionContext, KindRegistry, Router, RouterSetup, build};

fn router() -> Router {
    let checked = build(&KindRegistry::built_in(), &[], "gorgo-tuned", &fleet(3));
    let setup = RouterSetup {
        fleet: fleet(3),
        models: vec![vec![Arc::from("m")]; 3],
        secret: 42,
        index: IndexConfig::default(),
        probe: ProbeConfig::default(),
        scrape: ScrapeConfig::default(),
    };
    let router = Router::new(setup, checked.policies.unwrap());
    for replica in 0..3 {
        router.apply(&FleetEvent::Probe { replica: ReplicaId(replica), at: UnixMicros(0), rtt_ms: Some(20.0) });
    }
    router
}

fn outcome(decision: DecisionId) -> StoreRecord {
    let outcome = OutcomeRecord {
        decision,
        status: Some(200),
        error: None,
        ttft_us: Some(100_000),
        first_byte_us: Some(90_000),
        e2e_us: 300_000,
        itl_mean_us: Some(10_000),
        itl_p99_us: None,
        itl_counts: None,
        prompt_tokens: None,
        cached_tokens: None,
        completion_tokens: Some(20),
        predicted_ttft_us: None,
        predicted_cached_tokens: None,
    };
    StoreRecord::Outcome(RouteLabels { path: ApiPath::ChatCompletions, replica: None }, Box::new(outcome))
}

#[test]
fn tune_decisions_are_stamped_and_their_weights_stand_before_them() {
    let router = router();
    let policy = router.policies().default;
    let mut taken = Vec::new();
    for number in 0..1_000_u32 {
        let at = UnixMicros(1_000_000 + u64::from(number) * 500_000);
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{number} and so on"}}]}}"#);
        let prompt = router.parse_request("/v1/chat/completions", body.as_bytes(), None, None).unwrap();
        let id = DecisionId(i64::from(number));
        let routed =
            router.decide(&prompt, &DecisionContext { policy, id, seed: u64::from(number), at, exclude: &[] }).unwrap();
        let decision = StoreRecord::Decision(routed.record);
        taken.extend(router.observe_record(&decision, at));
        taken.push(decision);
        router.finish(routed.reservation, &prompt, &RequestOutcome::default(), at);
        let unknown =
            router.parse_request("/v1/chat/completions", br#"{"model":"x","messages":[]}"#, None, None).unwrap();
        let refused =
            router.decide(&unknown, &DecisionContext { policy, id: DecisionId(1 << 40), seed: 1, at, exclude: &[] });
        assert!(matches!(refused, Err(DecideError::UnknownModel)), "and takes no place in a block");
        let ended = outcome(id);
        taken.extend(router.observe_record(&ended, at));
    }
    let (mut in_force, mut arms, mut generations) = (0, [0_u32; 2], 0_u32);
    let mut counted = std::collections::BTreeMap::new();
    for record in &taken {
        match record {
            StoreRecord::Weights(weights) => in_force = weights.generation.0,
            StoreRecord::Decision(decision) => {
                assert_eq!(decision.generation.0, in_force, "weights of {} stand before it", decision.decision);
                if let Some(arm) = decision.arm {
                    arms[usize::from(arm)] += 1;
                    assert!(arm == 0 || decision.generation.0 > 0);
                }
                if decision.counted {
                    *counted.entry(decision.block.unwrap()).or_insert(0_u32) += 1;
                }
            }
            StoreRecord::Generation(_) => generations += 1,
            _ => {}
        }
    }
    assert!(arms[0] > 200 && arms[1] > 200 && generations > 0, "{arms:?}, {generations}");
    assert!(counted.values().all(|count| *count <= 32), "{counted:?}");
    assert!(counted.values().filter(|count| **count == 32).count() >= 10, "{counted:?}");
    assert!(router.tuner_status(policy).is_some());
}

#[test]
fn tune_a_retry_is_decided_with_the_weights_of_the_first_attempt() {
    let router = router();
    let policy = router.policies().default;
    let prompt = router.parse_request(
        "/v1/chat/completions",
        br#"{"model":"m","messages":[{"role":"user","content":"a"}]}"#,
        None,
        None,
    );
    let prompt = prompt.unwrap();
    let first = router
        .decide(&prompt, &DecisionContext { policy, id: DecisionId(1), seed: 1, at: UnixMicros(5), exclude: &[] })
        .unwrap();
    let (generation, replica) = (first.record.generation, first.reservation.replica());
    router.observe_record(&StoreRecord::Decision(first.record), UnixMicros(5));
    let retry = router
        .decide(
            &prompt,
            &DecisionContext { policy, id: DecisionId(1), seed: 2, at: UnixMicros(6), exclude: &[replica] },
        )
        .unwrap();
    assert_eq!((retry.record.generation, retry.record.arm), (generation, None));
    router.finish(first.reservation, &prompt, &RequestOutcome::default(), UnixMicros(7));
    router.finish(retry.reservation, &prompt, &RequestOutcome::default(), UnixMicros(7));
}
