//! Arbitrary facts for the contract tests of terms, constraints, pickers and decisions.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::{Candidates, EngineKind, Replica, ReplicaId, RequestView};

/// The same cases every time; a failing one is printed and becomes a separate test.
pub fn fixed(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default() }
}

/// A fleet of that size, in three regions.
pub fn fleet(replicas: u16) -> Vec<Replica> {
    let replica = |id: u16| Replica {
        id: ReplicaId(id),
        name: Arc::from(format!("replica-{id}")),
        region: Arc::from(["east", "west", "north"][usize::from(id) % 3]),
        engine: EngineKind::OpenAi,
        kv_capacity_tokens: None,
        decode_batch: None,
    };
    (0..replicas).map(replica).collect()
}

/// A request.
pub fn request() -> impl Strategy<Value = RequestView> {
    let hashes = (any::<u64>(), any::<u64>());
    let slo = option::of(1.0..10_000.0_f64);
    (0..200_000_u32, option::of(1..4_096_u32), 0..1_000_000_u64, hashes, slo, 0..1_000_u64).prop_map(
        |(prompt_tokens, max_tokens, body_bytes, (session_hash, head_hash), slo_ttft_ms, turn)| RequestView {
            prompt_tokens,
            max_tokens,
            body_bytes,
            session_hash,
            head_hash,
            slo_ttft_ms,
            decision_number: turn,
        },
    )
}

/// One to eight candidates with anything known or not, and one share window.
pub fn candidates() -> impl Strategy<Value = Candidates> {
    (1..=8_usize).prop_flat_map(|rows| {
        let known = move |most: f64| vec(option::weighted(0.7, 0.0..most), rows);
        let counts = (vec(0..300_000_u64, rows), vec(0..300_000_u64, rows), vec(0..64_u32, rows), vec(0..64_u32, rows));
        let reports = (known(64.0), known(64.0), known(700_000.0), known(1.0), known(5_000.0), known(20_000.0));
        let learned = (known(1_000.0), known(2_000.0), known(0.2), known(0.02), known(2.0), known(5_000.0));
        let others = (
            vec(any::<bool>(), rows),
            vec(0..200_000_u32, rows),
            vec(any::<u64>(), rows),
            vec(prop_oneof![Just(0_u64), 1..1_000_000_u64], rows),
            vec(-8..8_i64, rows),
            vec(0.0..1e6_f64, rows),
            0..100_u64,
        );
        let amounts = move |most: f64| vec(0.0..most, rows);
        let service = (
            amounts(5_000.0),
            amounts(200_000.0),
            amounts(200.0),
            amounts(0.3),
            amounts(5.0),
            amounts(50.0),
            amounts(2.0),
            0.0..2_000.0_f64,
            option::of(1.0..10_000.0_f64),
        );
        (counts, reports, learned, others, service).prop_map(move |(counts, reports, learned, others, service)| {
            let mut all = Candidates::default();
            all.reset(rows, 1);
            for (row, replica) in all.replica.iter_mut().enumerate() {
                *replica = ReplicaId(u16::try_from(row).unwrap_or(u16::MAX));
            }
            (all.queued_tokens, all.queued_tokens_first) = (counts.0.clone(), counts.0);
            (all.queued_uncached_tokens_completion, all.queued_uncached_tokens) = (counts.1.clone(), counts.1);
            (all.inflight, all.decoding) = (counts.2, counts.3);
            (all.engine_running, all.engine_waiting, all.kv_used_tokens) = (reports.0, reports.1, reports.2);
            (all.kv_used_share, all.engine_throughput, all.report_age_ms) = (reports.3, reports.4, reports.5);
            (all.rtt_ms, all.rtt_p95_ms, all.prefill_ms_per_token) = (learned.0, learned.1, learned.2);
            (all.queue_ms_per_token, all.decode_ms_per_request, all.latency_ms) = (learned.3, learned.4, learned.5);
            (all.available, all.cached_tokens, all.name_hash) = (others.0, others.1, others.2);
            (all.capacity_tokens, all.inflight_since_report) = (others.3, others.4);
            (all.backlog_ms, all.likely_uncached_tokens) = (service.0, service.1);
            (all.service_fixed_ms, all.service_ms_per_token, all.service_ms_per_decoding) =
                (service.2, service.3, service.4);
            (all.itl_alone_ms, all.itl_ms_per_request) = (service.5, service.6);
            (all.answer_tokens, all.tail_start_ms) = (service.7, service.8);
            all.network_trips = all.kv_used_share.iter().map(|any| any.map(|any| (1.0 + 4.0 * any).round())).collect();
            (all.windows, all.window_decisions) = (vec![others.5], vec![others.6]);
            all
        })
    })
}

/// Candidates and an order of their rows.
pub fn with_order() -> impl Strategy<Value = (Candidates, Vec<usize>)> {
    candidates().prop_flat_map(|candidates| {
        let order: Vec<usize> = (0..candidates.len()).collect();
        (Just(candidates), Just(order).prop_shuffle())
    })
}

/// The same facts with row `order[i]` as row *i*.
pub fn permuted(all: &Candidates, order: &[usize]) -> Candidates {
    let mut rows = Candidates::default();
    rows.reset(order.len(), all.windows.len());
    rows.copy_fleet(all);
    for (target, source) in order.iter().enumerate() {
        rows.copy_row(target, all, *source);
    }
    rows
}
