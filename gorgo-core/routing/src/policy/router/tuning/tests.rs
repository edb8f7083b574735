//! A router whose policy is tuned: decisions are stamped, weights taken down before them, retries stay with their arm.

use std::sync::Arc;

use crate::config::{Index, Probe, Scrape};
use crate::model::arbitrary::fleet;
use crate::model::{ApiPath, At, DecisionId, Ending, Event, OutcomeRecord, Record, ReplicaId, Route};
use crate::policy::{DecideError, DecisionContext, Registry, Router, RouterSetup, build};

fn router() -> Router {
    let checked = build(&Registry::built_in(), &[], "gorgo-tuned", &fleet(3));
    let setup = RouterSetup {
        fleet: fleet(3),
        models: vec![vec![Arc::from("m")]; 3],
        secret: 42,
        index: Index::default(),
        probe: Probe::default(),
        scrape: Scrape::default(),
    };
    let router = Router::new(setup, checked.policies.unwrap());
    for replica in 0..3 {
        router.apply(&Event::Probe { replica: ReplicaId(replica), at: At(0), rtt_ms: Some(20.0) });
    }
    router
}

fn outcome(decision: DecisionId) -> Record {
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
    Record::Outcome(Route { path: ApiPath::ChatCompletions, replica: None }, Box::new(outcome))
}

#[test]
fn tune_decisions_are_stamped_and_their_weights_stand_before_them() {
    let router = router();
    let policy = router.policies().default;
    let mut taken = Vec::new();
    for number in 0..1_000_u32 {
        let at = At(1_000_000 + u64::from(number) * 500_000);
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{number} and so on"}}]}}"#);
        let prompt = router.read("/v1/chat/completions", body.as_bytes(), None, None).unwrap();
        let id = DecisionId(i64::from(number));
        let routed =
            router.decide(&prompt, &DecisionContext { policy, id, seed: u64::from(number), at, exclude: &[] }).unwrap();
        let decision = Record::Decision(routed.record);
        taken.extend(router.tuning(&decision, at));
        taken.push(decision);
        router.finish(routed.reservation, &prompt, &Ending::default(), at);
        let unknown = router.read("/v1/chat/completions", br#"{"model":"x","messages":[]}"#, None, None).unwrap();
        let refused =
            router.decide(&unknown, &DecisionContext { policy, id: DecisionId(1 << 40), seed: 1, at, exclude: &[] });
        assert!(matches!(refused, Err(DecideError::UnknownModel)), "and takes no place in a block");
        let ended = outcome(id);
        taken.extend(router.tuning(&ended, at));
    }
    let (mut in_force, mut arms, mut generations) = (0, [0_u32; 2], 0_u32);
    let mut counted = std::collections::BTreeMap::new();
    for record in &taken {
        match record {
            Record::Weights(weights) => in_force = weights.generation.0,
            Record::Decision(decision) => {
                assert_eq!(decision.generation.0, in_force, "weights of {} stand before it", decision.decision);
                if let Some(arm) = decision.arm {
                    arms[usize::from(arm)] += 1;
                    assert!(arm == 0 || decision.generation.0 > 0);
                }
                if decision.counted {
                    *counted.entry(decision.block.unwrap()).or_insert(0_u32) += 1;
                }
            }
            Record::Generation(_) => generations += 1,
            _ => {}
        }
    }
    assert!(arms[0] > 200 && arms[1] > 200 && generations > 0, "{arms:?}, {generations}");
    assert!(counted.values().all(|count| *count <= 32), "{counted:?}");
    assert!(counted.values().filter(|count| **count == 32).count() >= 10, "{counted:?}");
    assert!(router.tuner_said(policy).is_some());
}

#[test]
fn tune_a_retry_is_decided_with_the_weights_of_the_first_attempt() {
    let router = router();
    let policy = router.policies().default;
    let prompt =
        router.read("/v1/chat/completions", br#"{"model":"m","messages":[{"role":"user","content":"a"}]}"#, None, None);
    let prompt = prompt.unwrap();
    let first = router
        .decide(&prompt, &DecisionContext { policy, id: DecisionId(1), seed: 1, at: At(5), exclude: &[] })
        .unwrap();
    let (generation, replica) = (first.record.generation, first.reservation.replica());
    router.tuning(&Record::Decision(first.record), At(5));
    let retry = router
        .decide(&prompt, &DecisionContext { policy, id: DecisionId(1), seed: 2, at: At(6), exclude: &[replica] })
        .unwrap();
    assert_eq!((retry.record.generation, retry.record.arm), (generation, None));
    router.finish(first.reservation, &prompt, &Ending::default(), At(7));
    router.finish(retry.reservation, &prompt, &Ending::default(), At(7));
}
