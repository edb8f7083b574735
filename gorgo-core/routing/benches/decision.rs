//! One decision's stages, for a chat of about 70 KB (18,000 tokens): read, canonical + chain, look-up, insert; and the
//! reference, a full serde_json parse plus one xxh3 pass over the same bytes.
//!
//! `cargo bench -p gorgo-routing --bench decision`
#![expect(clippy::unwrap_used, reason = "a benchmark may stop")]

use std::sync::Arc;

use divan::{Bencher, black_box};
use gorgo_routing::config::{IndexConfig, ProbeConfig, ScrapeConfig};
use gorgo_routing::feature::prefix::{ChainHasher, ChainKey, PrefixIndex, PromptChain};
use gorgo_routing::model::{
    ApiPath, DecisionId, EngineKind, FleetEvent, Replica, ReplicaId, RequestOutcome, UnixMicros,
};
use gorgo_routing::parse;
use gorgo_routing::policy::{DecisionContext, KindRegistry, Router, RouterSetup, build};
use xxhash_rust::xxh3::xxh3_64;

const REPLICAS: [usize; 3] = [3, 64, 1000];
const BLOCK_BYTES: usize = 256;

fn main() {
    divan::main();
}

/// A chat of 24 turns whose text has the usual share of line ends and quotes; `turn` makes its last message unique.
fn body(turn: u64) -> Vec<u8> {
    let sentence = "The router reads a prompt once, hashes its blocks and asks which replica \"still\" holds them. ";
    let mut messages = vec![serde_json::json!({"role": "system", "content": sentence.repeat(60)})];
    for number in 0..24 {
        let role = if number % 2 == 0 { "user" } else { "assistant" };
        let text: Vec<String> = (0..27).map(|line| format!("{number}.{line}: {sentence}")).collect();
        messages.push(serde_json::json!({"role": role, "content": text.join("\n")}));
    }
    messages.push(serde_json::json!({"role": "user", "content": format!("And number {turn}?")}));
    let body = serde_json::json!({
        "model": "qwen", "stream": true, "max_tokens": 256, "messages": messages,
        "tools": [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}],
    });
    serde_json::to_vec(&body).unwrap()
}

fn chain(body: &[u8]) -> PromptChain {
    let head = parse::read_head(ApiPath::ChatCompletions, body).unwrap();
    let key = ChainKey { secret: 7, model: head.model.as_deref(), ..ChainKey::default() };
    let mut chainer = ChainHasher::new(BLOCK_BYTES, key.seed(), body.len());
    head.canonical(&mut chainer).unwrap();
    chainer.finish()
}

/// An index in which every replica has a tenth of 2,000 other chats' blocks, and all have the beginning of this chat.
fn warm(replicas: usize, chain: &[u64]) -> PrefixIndex {
    let index = PrefixIndex::new(replicas, 512 << 20);
    for other in 0..2000_u16 {
        let begin = chain.len() / 4;
        let mut another = chain[..begin].to_vec();
        another.extend((0..40).map(|block| xxh3_64(&[other.to_le_bytes(), [block, 1]].concat())));
        let replica = ReplicaId(other % u16::try_from(replicas).unwrap());
        let _ = index.insert(&another, replica, DecisionId(i64::from(other)), UnixMicros(u64::from(other)));
    }
    index
}

#[divan::bench]
fn yardstick_full_parse_and_one_xxh3_pass(bencher: Bencher<'_, '_>) {
    let body = body(1);
    bencher.bench(|| {
        let value: serde_json::Value = serde_json::from_slice(black_box(&body)).unwrap();
        (value, xxh3_64(&body))
    });
}

#[divan::bench]
fn stage_1_read(bencher: Bencher<'_, '_>) {
    let body = body(1);
    bencher.bench(|| parse::read_head(ApiPath::ChatCompletions, black_box(&body)).unwrap().stream);
}

#[divan::bench]
fn stage_2_canonical_and_chain(bencher: Bencher<'_, '_>) {
    let body = body(1);
    let head = parse::read_head(ApiPath::ChatCompletions, &body).unwrap();
    bencher.bench(|| {
        let mut chainer = ChainHasher::new(BLOCK_BYTES, black_box(9), body.len());
        head.canonical(&mut chainer).unwrap();
        chainer.finish()
    });
}

#[divan::bench(args = REPLICAS)]
fn stage_3_look_up(bencher: Bencher<'_, '_>, replicas: usize) {
    let chain = chain(&body(1)).blocks;
    let index = warm(replicas, &chain);
    let mut out = vec![0; replicas];
    let _ = index.insert(&chain, ReplicaId(1), DecisionId(1), UnixMicros(5000));
    bencher.bench_local(|| index.lookup(black_box(&chain), &mut out));
}

/// All replicas have the whole chat: the most expensive look-up.
#[divan::bench(args = REPLICAS)]
fn stage_3_look_up_held_by_all(bencher: Bencher<'_, '_>, replicas: usize) {
    let chain = chain(&body(1)).blocks;
    let index = PrefixIndex::new(replicas, 512 << 20);
    for replica in 0..u16::try_from(replicas).unwrap() {
        let _ = index.insert(&chain, ReplicaId(replica), DecisionId(1), UnixMicros(5000));
    }
    let mut out = vec![0; replicas];
    bencher.bench_local(|| index.lookup(black_box(&chain), &mut out));
}

/// The next turn of a chat that the replica has cached.
#[divan::bench(args = REPLICAS)]
fn stage_4_insert_again(bencher: Bencher<'_, '_>, replicas: usize) {
    let chain = chain(&body(1)).blocks;
    let index = warm(replicas, &chain);
    bencher.bench_local(|| index.insert(black_box(&chain), ReplicaId(1), DecisionId(1), UnixMicros(5000)));
}

/// A chat that no replica has cached, at a full replica: every new block evicts another.
#[divan::bench(args = REPLICAS)]
fn stage_4_insert_new_at_a_full_replica(bencher: Bencher<'_, '_>, replicas: usize) {
    let index = PrefixIndex::new(replicas, 512 << 20);
    index.set_capacity(ReplicaId(1), 11_000);
    let mut number = 0_u64;
    bencher
        .with_inputs(|| {
            number += 1;
            (0..280_u64).map(|block| xxh3_64(&(number * 1000 + block).to_le_bytes())).collect::<Vec<u64>>()
        })
        .bench_local_refs(|chain| index.insert(chain, ReplicaId(1), DecisionId(1), UnixMicros(5000)));
}

/// The complete path: request bytes → replica, through the router, with its row for the store; and the end of the request,
/// which releases the load. The preset `gorgo`, under some load.
#[divan::bench(args = REPLICAS)]
fn whole_request_bytes_to_replica(bencher: Bencher<'_, '_>, replicas: usize) {
    let fleet: Vec<Replica> = (0..u16::try_from(replicas).unwrap())
        .map(|id| Replica {
            id: ReplicaId(id),
            name: Arc::from(format!("replica-{id}")),
            region: Arc::from("region"),
            engine: EngineKind::Sglang,
            kv_capacity_tokens: Some(700_000),
            decode_batch: None,
        })
        .collect();
    let policies = build(&KindRegistry::built_in(), &[], "gorgo", &fleet).policies.unwrap();
    let policy = policies.default;
    let setup = RouterSetup {
        models: vec![vec![Arc::from("qwen")]; replicas],
        fleet,
        secret: 7,
        index: IndexConfig::default(),
        probe: ProbeConfig::default(),
        scrape: ScrapeConfig::default(),
    };
    let router = Router::new(setup, policies);
    for id in 0..u16::try_from(replicas).unwrap() {
        let replica = ReplicaId(id);
        let _ = router.apply(&FleetEvent::Up { replica });
        let _ =
            router.apply(&FleetEvent::Probe { replica, at: UnixMicros(1), rtt_ms: Some(20.0 + f64::from(id) * 1.7) });
    }
    let path = ApiPath::ChatCompletions.name();
    let mut count = 0_i64;
    for turn in 0..200 {
        count += 1;
        let prompt = router.parse_request(path, &body(turn), None, None).unwrap();
        let routed = router
            .decide(
                &prompt,
                &DecisionContext { policy, id: DecisionId(count), seed: 1, at: UnixMicros(1_000_000), exclude: &[] },
            )
            .unwrap();
        router.finish(
            routed.reservation,
            &prompt,
            &RequestOutcome { completed: true, ..RequestOutcome::default() },
            UnixMicros(1_000_001),
        );
    }
    let body = body(1);
    bencher.bench_local(|| {
        count += 1;
        let prompt = router.parse_request(path, black_box(&body), None, None).unwrap();
        let seed = count.cast_unsigned();
        let routed = router
            .decide(
                &prompt,
                &DecisionContext { policy, id: DecisionId(count), seed, at: UnixMicros(2_000_000), exclude: &[] },
            )
            .unwrap();
        router.finish(
            routed.reservation,
            &prompt,
            &RequestOutcome { completed: true, ..RequestOutcome::default() },
            UnixMicros(2_000_001),
        );
        routed.record
    });
}

#[divan::bench(args = REPLICAS)]
fn whole_read_to_insert(bencher: Bencher<'_, '_>, replicas: usize) {
    let body = body(1);
    let index = warm(replicas, &chain(&body).blocks);
    let mut out = vec![0; replicas];
    bencher.bench_local(|| {
        let chain = chain(black_box(&body));
        index.lookup(&chain.blocks, &mut out);
        index.insert(&chain.blocks, ReplicaId(1), DecisionId(1), UnixMicros(5000))
    });
}

/// The same chat with contents as lists of parts: these are scanned a second time.
#[divan::bench]
fn whole_with_content_parts(bencher: Bencher<'_, '_>) {
    let mut value: serde_json::Value = serde_json::from_slice(&body(1)).unwrap();
    for message in value["messages"].as_array_mut().unwrap() {
        message["content"] = serde_json::json!([{"type": "text", "text": message["content"]}]);
    }
    let body = serde_json::to_vec(&value).unwrap();
    bencher.bench(|| chain(black_box(&body)));
}

/// 70 KB of `\uXXXX`: the body of a client that escapes everything but ASCII.
#[divan::bench]
fn whole_with_unicode_escapes(bencher: Bencher<'_, '_>) {
    let text = "\\u4f60".repeat(70_000 / 6);
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#).into_bytes();
    bencher.bench(|| chain(black_box(&body)));
}
