//! One decision of the presets `gorgo` and `predicted-latency` on given facts: score, constrain, pick; the decision alone, and one
//! through the router with its facts, reservation, index and row.
//!
//! `cargo bench -p gorgo-routing --bench policy`
#![expect(clippy::unwrap_used, reason = "a benchmark may stop")]

use std::sync::Arc;

use divan::{Bencher, black_box};
use gorgo_routing::config::{IndexConfig, ProbeConfig, ScrapeConfig};
use gorgo_routing::model::{
    Candidates, DecisionId, EngineKind, FleetEvent, Replica, ReplicaId, RequestOutcome, RequestView, UnixMicros,
};
use gorgo_routing::policy::{
    DecisionContext, DecisionScratch, KindRegistry, PolicySet, Router, RouterSetup, build, decide,
};

const REPLICAS: [u16; 3] = [3, 64, 1000];

fn main() {
    divan::main();
}

fn fleet(replicas: u16) -> Vec<Replica> {
    let replica = |id| Replica {
        id: ReplicaId(id),
        name: Arc::from(format!("replica-{id}")),
        region: Arc::from(format!("region-{}", id % 10)),
        engine: EngineKind::Sglang,
        kv_capacity_tokens: Some(700_000),
        decode_batch: None,
    };
    (0..replicas).map(replica).collect()
}

fn policies(replicas: u16) -> PolicySet {
    build(&KindRegistry::built_in(), &[], "gorgo", &fleet(replicas)).policies.unwrap()
}

/// Facts of a fleet under load, all different.
fn facts(replicas: u16) -> Candidates {
    let mut facts = Candidates::default();
    facts.reset(usize::from(replicas), 0);
    for id in 0..replicas {
        let row = usize::from(id);
        facts.replica[row] = ReplicaId(id);
        facts.name_hash[row] = u64::from(id) * 0x9e37_79b9;
        facts.rtt_ms[row] = Some(20.0 + f64::from(id) * 1.7);
        facts.cached_tokens[row] = u32::from(id) * 97 % 18_000;
        facts.queued_tokens[row] = u64::from(id) * 1_313 % 60_000;
        facts.inflight[row] = u32::from(id) % 40;
        facts.backlog_ms[row] = f64::from(id) * 13.0 % 900.0;
        facts.likely_uncached_tokens[row] = f64::from(18_000 - facts.cached_tokens[row]);
        facts.service_ms_per_token[row] = 0.07;
        facts.itl_ms_per_request[row] = 0.6;
    }
    facts
}

const REQUEST: RequestView = RequestView {
    prompt_tokens: 18_000,
    max_tokens: Some(128),
    body_bytes: 70_000,
    session_hash: 1,
    head_hash: 2,
    slo_ttft_ms: None,
    decision_number: 3,
};

#[divan::bench(args = REPLICAS, consts = [false, true])]
fn score_constrain_pick<const OURS: bool>(bencher: Bencher<'_, '_>, replicas: u16) {
    let policies = policies(replicas);
    let policy = policies.by_name(if OURS { "predicted-latency" } else { "gorgo" }).unwrap();
    let (weights, facts, mut scratch) = (policy.weights(), facts(replicas), DecisionScratch::default());
    let mut seed = 0;
    bencher.bench_local(|| {
        seed += 1;
        decide(policy, &weights, &REQUEST, black_box(&facts), seed, &mut scratch)
    });
}

/// Without parsing: a prompt of about 70 KB that was parsed before.
#[divan::bench(args = REPLICAS)]
fn router_decide_and_finish(bencher: Bencher<'_, '_>, replicas: u16) {
    let policies = policies(replicas);
    let gorgo = policies.default;
    let setup = RouterSetup {
        fleet: fleet(replicas),
        models: vec![vec![Arc::from("m")]; usize::from(replicas)],
        secret: 7,
        index: IndexConfig::default(),
        probe: ProbeConfig::default(),
        scrape: ScrapeConfig::default(),
    };
    let router = Router::new(setup, policies);
    for id in 0..replicas {
        router.apply(&FleetEvent::Probe {
            replica: ReplicaId(id),
            at: UnixMicros(0),
            rtt_ms: Some(20.0 + f64::from(id)),
        });
    }
    let text = "The router reads a prompt once and hashes its blocks. ".repeat(1_300);
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#);
    let prompt = router.parse_request("/v1/chat/completions", body.as_bytes(), None, None).unwrap();
    let mut number = 0;
    bencher.bench_local(|| {
        number += 1;
        let at = UnixMicros(number);
        let id = DecisionId(i64::try_from(number).unwrap());
        let routed = router
            .decide(black_box(&prompt), &DecisionContext { policy: gorgo, id, seed: number, at, exclude: &[] })
            .unwrap();
        router.finish(routed.reservation, &prompt, &RequestOutcome::default(), at);
        (routed.decision, routed.record)
    });
}
