//! Invented facts for the checks: different in every row and column, the same on every run.

use std::sync::Arc;

use gorgo_routing::model::{Candidates, EngineKind, FACTS, Replica, ReplicaId, RequestView, RequiredFacts};
use gorgo_routing::tune::RequestColumns;

/// Invented fleet of `replicas` replicas in three regions.
#[must_use]
pub fn fleet(replicas: u16) -> Vec<Replica> {
    let regions = ["ap-seoul", "eu-frankfurt", "us-ashburn"];
    let replica = |id: u16| Replica {
        id: ReplicaId(id),
        name: Arc::from(format!("replica-{id}")),
        region: Arc::from(regions[usize::from(id) % regions.len()]),
        engine: EngineKind::OpenAi,
        kv_capacity_tokens: None,
        decode_batch: None,
    };
    (0..replicas).map(replica).collect()
}

/// Invented request.
#[must_use]
pub const fn request() -> RequestView {
    RequestView {
        prompt_tokens: 3000,
        max_tokens: Some(256),
        body_bytes: 12_000,
        session_hash: 7,
        head_hash: 11,
        slo_ttft_ms: Some(800.0),
        decision_number: 5,
    }
}

/// Invented facts of the first `replicas` replicas of the fleet; about every seventh number is unknown.
#[must_use]
pub fn candidates(replicas: u16) -> Candidates {
    let mut facts = Candidates::default();
    facts.reset(usize::from(replicas), 0);
    let mut drawn = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = || {
        // xorshift with a fixed seed: the numbers must vary, and be the same on every run.
        drawn ^= drawn << 13;
        drawn ^= drawn >> 7;
        drawn ^= drawn << 17;
        drawn >> 40
    };
    #[expect(clippy::cast_precision_loss, reason = "24 bits")]
    let share = |drawn: u64| drawn as f64 / f64::from(1 << 24);
    for row in 0..replicas {
        let place = usize::from(row);
        facts.replica[place] = ReplicaId(row);
        facts.name_hash[place] = draw() << 24 | draw();
        facts.region[place] = row % 3;
        facts.available[place] = true;
        facts.cached_tokens[place] = u32::try_from(draw() % 3001).unwrap_or(0);
        // Sums, so that the columns relate as in a router: all tokens ≥ those without a first token ≥ uncached ones.
        facts.queued_uncached_tokens[place] = draw() % 20_000;
        facts.queued_tokens_first[place] = facts.queued_uncached_tokens[place] + draw() % 9000;
        facts.queued_uncached_tokens_completion[place] = facts.queued_uncached_tokens[place] + draw() % 5000;
        facts.queued_tokens[place] = facts.queued_tokens_first[place] + draw() % 9000;
        facts.inflight[place] = u32::try_from(draw() % 40).unwrap_or(0);
        facts.decoding[place] = facts.inflight[place] / 2;
        facts.inflight_since_report[place] = 1;
        facts.capacity_tokens[place] = 400_000;
        let numbers: [(&mut Option<f64>, f64); 13] = [
            (&mut facts.rtt_ms[place], 300.0),
            (&mut facts.rtt_p95_ms[place], 400.0),
            (&mut facts.engine_running[place], 40.0),
            (&mut facts.engine_waiting[place], 20.0),
            (&mut facts.kv_used_tokens[place], 400_000.0),
            (&mut facts.kv_used_share[place], 1.0),
            (&mut facts.engine_throughput[place], 5000.0),
            (&mut facts.report_age_ms[place], 1000.0),
            (&mut facts.latency_ms[place], 2000.0),
            (&mut facts.prefill_ms_per_token[place], 0.3),
            (&mut facts.queue_ms_per_token[place], 0.3),
            (&mut facts.decode_ms_per_request[place], 4.0),
            (&mut facts.intercept_ms[place], 30.0),
        ];
        for (number, most) in numbers {
            let known = draw() % 7 != 0;
            *number = known.then(|| share(draw()) * most);
        }
    }
    // Facts without their own column, which plugins request by name.
    for fact in FACTS.iter().filter(|fact| [RequiredFacts::SERVICE, RequiredFacts::BACKLOG].contains(&fact.needs)) {
        let most = match fact.unit {
            "ms" => 500.0,
            "tokens" => 3000.0,
            "ms/token" => 0.3,
            _ => 4.0,
        };
        for row in 0..usize::from(replicas) {
            facts.invent(fact.name, row, Some(share(draw()) * most));
        }
    }
    (facts.answer_tokens, facts.tail_start_ms) = (200.0, Some(900.0));
    facts
}

/// Invented requests of an arm, each a little slower than the one before.
#[must_use]
pub fn cohort(requests: u16) -> RequestColumns {
    let column = |base: f64, step: f64| (0..requests).map(|place| base + step * f64::from(place)).collect();
    RequestColumns {
        ttft_ms: column(80.0, 2.5),
        e2e_ms: column(900.0, 12.5),
        itl_ms: column(10.0, 0.0),
        prompt_tokens: column(500.0, 7.0),
        completion_tokens: column(90.0, 1.0),
        span_secs: f64::NAN,
        failed: 1,
    }
}
