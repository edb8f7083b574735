//! A built-in term and the equivalent expression, side by side: one decision of a policy with that term alone, and the
//! evaluation by itself, per candidate.
//!
//! `cargo bench -p gorgo-routing --bench expression`
#![expect(clippy::unwrap_used, reason = "a benchmark may stop")]

use std::sync::Arc;

use divan::{Bencher, black_box};
use gorgo_routing::config::parse_toml;
use gorgo_routing::expr::{EvalStack, Expression};
use gorgo_routing::model::{Candidates, ConfigValue, EngineKind, FACT_NAMES, FACTS, Replica, ReplicaId, RequestView};
use gorgo_routing::policy::{DecisionScratch, KindRegistry, PolicySet, build, decide};

const REPLICAS: [u16; 2] = [3, 64];

/// Texts as people write them, from a plain fact to one that reads six.
const TEXTS: [&str; 4] = [
    "rtt_ms",
    "rtt_ms + 0.1 * uncached_tokens",
    "max(0, uncached_tokens - 512) * prefill_ms_per_token + (queued_tokens > 4000 ? 50 : 0)",
    "rtt_ms * 1.5 + uncached_tokens * prefill_ms_per_token + queued_uncached_tokens * queue_ms_per_token + \
     (report_age_ms < 5000 ? engine_waiting * 12 : 0) + (decoding > 8 && kv_used_share > 0.9 ? 200 : 0)",
];

fn main() {
    divan::main();
}

fn fleet(replicas: u16) -> Vec<Replica> {
    let replica = |id| Replica {
        id: ReplicaId(id),
        name: Arc::from(format!("replica-{id}")),
        region: Arc::from("region"),
        engine: EngineKind::Sglang,
        kv_capacity_tokens: None,
        decode_batch: None,
    };
    (0..replicas).map(replica).collect()
}

/// A policy named `one` with that term alone.
fn policy(replicas: u16, term: &str) -> PolicySet {
    let file = parse_toml(&format!("[[policy.one.term]]\n{term}")).unwrap();
    let Some(ConfigValue::Table(tables)) = file.get("policy").cloned() else { unreachable!() };
    build(&KindRegistry::built_in(), &tables, "one", &fleet(replicas)).policies.unwrap()
}

fn facts(replicas: u16) -> Candidates {
    let mut facts = Candidates::default();
    facts.reset(usize::from(replicas), 0);
    for id in 0..replicas {
        let (row, number) = (usize::from(id), f64::from(id));
        facts.replica[row] = ReplicaId(id);
        facts.rtt_ms[row] = Some(20.0 + number * 1.7);
        facts.cached_tokens[row] = u32::from(id) * 97 % 18_000;
        facts.queued_tokens[row] = u64::from(id) * 1_313 % 9_000;
        facts.queued_uncached_tokens[row] = u64::from(id) * 713 % 9_000;
        (facts.inflight[row], facts.decoding[row]) = (u32::from(id) % 40, u32::from(id) % 20);
        (facts.engine_waiting[row], facts.kv_used_share[row]) = (Some(number % 7.0), Some(number % 10.0 / 10.0));
        facts.report_age_ms[row] = Some(number * 300.0);
        (facts.prefill_ms_per_token[row], facts.queue_ms_per_token[row]) = (Some(0.07), Some(0.02));
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

fn decision(bencher: Bencher<'_, '_>, replicas: u16, term: &str) {
    let policies = policy(replicas, term);
    let one = policies.by_name("one").unwrap();
    let (weights, facts, mut scratch) = (one.weights(), facts(replicas), DecisionScratch::default());
    let mut seed = 0;
    bencher.bench_local(|| {
        seed += 1;
        decide(one, &weights, &REQUEST, black_box(&facts), seed, &mut scratch)
    });
}

#[divan::bench(args = REPLICAS)]
fn decision_1_built_in_prefill(bencher: Bencher<'_, '_>, replicas: u16) {
    decision(bencher, replicas, "kind = \"prefill\"");
}

#[divan::bench(args = REPLICAS)]
fn decision_2_expression_prefill(bencher: Bencher<'_, '_>, replicas: u16) {
    decision(bencher, replicas, "kind = \"expression\"\nunit = \"tokens\"\nsignal = \"uncached_tokens\"");
}

/// The expression of the documentation, at 3 and 64 replicas.
#[divan::bench(args = REPLICAS)]
fn decision_3_expression_of_the_guide(bencher: Bencher<'_, '_>, replicas: u16) {
    decision(bencher, replicas, &format!("kind = \"expression\"\nunit = \"ms\"\nsignal = \"{}\"", TEXTS[2]));
}

/// The long expression.
#[divan::bench(args = REPLICAS)]
fn decision_4_expression_of_many_facts(bencher: Bencher<'_, '_>, replicas: u16) {
    decision(bencher, replicas, &format!("kind = \"expression\"\nunit = \"ms\"\nsignal = \"{}\"", TEXTS[3]));
}

/// All 64 candidates; the figure per item is that of one candidate.
#[divan::bench(args = TEXTS)]
fn evaluation_per_candidate(bencher: Bencher<'_, '_>, text: &str) {
    let expression = Expression::compile(text, FACT_NAMES).unwrap();
    let facts = facts(64);
    let mut stack = EvalStack::default();
    bencher.counter(divan::counter::ItemsCount::new(64_u32)).bench_local(|| {
        (0..64)
            .map(|row| {
                let fact = |slot| (FACTS[usize::from(slot)].read)(&REQUEST, black_box(&facts), row);
                expression.eval_with(&mut stack, fact).unwrap_or(0.0)
            })
            .sum::<f64>()
    });
}

#[divan::bench(args = TEXTS)]
fn compilation(bencher: Bencher<'_, '_>, text: &str) {
    bencher.bench(|| Expression::compile(black_box(text), FACT_NAMES).unwrap());
}
