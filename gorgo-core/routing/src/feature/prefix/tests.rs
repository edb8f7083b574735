//! The prefix index against a naive model; laws of chains.

mod export;
mod residency;

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::shard::{IndexShard, NIL};
use super::*;
use crate::model::{CanonicalSink, DecisionId, ReplicaId, UnixMicros};

fn config(cases: u32, seed: u64) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..ProptestConfig::default() }
}

const ROOM: u64 = 64 << 20;

fn chain(seed: u64, bytes: &[u8]) -> PromptChain {
    let mut chainer = ChainHasher::new(16, seed, bytes.len());
    chainer.update(bytes);
    chainer.finish()
}

/// Links of a path of small numbers: each stands for a block.
fn links(path: &[u8]) -> Vec<u64> {
    let blocks: Vec<u8> = path.iter().flat_map(|block| [*block; 16]).collect();
    chain(1, &blocks).blocks
}

fn put(index: &PrefixIndex, path: &[u8], replica: u16, at: u64) -> PrefixTicket {
    let decision = DecisionId(i64::try_from(at).unwrap());
    index.insert(&links(path), ReplicaId(replica), decision, UnixMicros(at)).unwrap()
}

fn matches(index: &PrefixIndex, path: &[u8], replicas: usize) -> Vec<u32> {
    let mut out = vec![7; replicas];
    index.lookup(&links(path), &mut out);
    out
}

/// What holds after each step, see `shard`: closed, dated, every block reachable from a queue, counts right.
fn check_invariants(index: &PrefixIndex, replicas: u16) {
    let mut held = vec![0_u64; usize::from(replicas)];
    let (mut blocks, mut bytes) = (0, 0);
    index.each_shard(|shard| {
        let words = shard.words;
        let live: Vec<u32> = (0..u32::try_from(shard.nodes.len()).unwrap())
            .filter(|&at| !shard.node(at).holders.is_empty(words))
            .collect();
        assert_eq!(live.len(), shard.live);
        blocks += live.len() as u64;
        bytes += shard.bytes() as u64;
        for replica in 0..replicas {
            let mut mine = 0;
            let stamp = |at: u32| shard.node(at).holders.stamp(replica, words);
            let mut reached = std::collections::HashSet::new();
            let mut last = 0;
            for (used, node) in shard.uses(replica) {
                assert!(used > last, "queue out of order");
                last = used;
                let mut at = node;
                while at != NIL && (at as usize) < shard.nodes.len() && stamp(at) == Some(used) {
                    reached.insert(at);
                    at = shard.node(at).parent;
                }
            }
            for &at in &live {
                let Some(used) = stamp(at) else { continue };
                mine += 1;
                assert!(reached.contains(&at), "a block that eviction cannot reach");
                let parent = shard.node(at).parent;
                if parent != NIL {
                    assert!(stamp(parent).is_some_and(|above| above >= used), "parent missing or older");
                }
            }
            assert_eq!(mine, u64::from(shard.lanes[usize::from(replica)].blocks));
            held[usize::from(replica)] += mine;
        }
        check_links(shard, &live);
    });
    let stats = index.stats();
    assert_eq!((stats.blocks, stats.held, stats.bytes), (blocks, held.iter().sum(), bytes));
    for (replica, held) in (0..replicas).zip(held) {
        assert_eq!(index.replica_stats(ReplicaId(replica)).unwrap().blocks, held);
    }
}

fn check_links(shard: &IndexShard, live: &[u32]) {
    for &at in live {
        assert_eq!(shard.find(NIL, shard.node(at).hash), Some(at));
        let mut child = shard.node(at).child;
        let mut prev = NIL;
        while child != NIL {
            assert_eq!((shard.node(child).parent, shard.node(child).prev), (at, prev));
            (prev, child) = (child, shard.node(child).next);
        }
    }
}

// The chain.

proptest! {
    #![proptest_config(config(256, 11))]

    #[test]
    fn a_shared_beginning_gives_equal_links(
        shared in proptest::collection::vec(any::<u8>(), 0..200),
        one in proptest::collection::vec(any::<u8>(), 0..100),
        other in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let (a, b) = ([&shared[..], &one].concat(), [&shared[..], &other].concat());
        let same = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
        let (a, b) = (chain(3, &a), chain(3, &b));
        let equal = a.blocks.iter().zip(&b.blocks).take_while(|(a, b)| a == b).count();
        prop_assert_eq!(equal, same / 16);
        // and never again after the first difference
        prop_assert!(a.blocks.iter().zip(&b.blocks).skip(equal).all(|(a, b)| a != b));
    }

    #[test]
    fn how_a_prompt_is_cut_into_pieces_does_not_matter(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..40),
    ) {
        let mut chainer = ChainHasher::new(16, 5, 0);
        pieces.iter().for_each(|piece| chainer.bytes(piece));
        let whole = pieces.concat();
        let built = chainer.finish();
        prop_assert_eq!(built.blocks.len(), whole.len() / 16);
        prop_assert_eq!(built, chain(5, &whole));
    }
}

#[test]
fn what_an_engine_keeps_apart_has_another_seed() {
    let plain = ChainKey { secret: 1, model: Some("m"), ..ChainKey::default() };
    let keys = [
        plain,
        ChainKey { secret: 2, ..plain },
        ChainKey { model: Some("n"), ..plain },
        ChainKey { model: None, ..plain },
        ChainKey { adapter: Some("a"), ..plain },
        ChainKey { cache_salt: Some("a"), ..plain },
        ChainKey { cache_salt: Some(""), ..plain },
        ChainKey { adapter: Some("a"), cache_salt: Some("a"), ..plain },
    ];
    let mut seeds: Vec<u64> = keys.iter().map(ChainKey::seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), keys.len());
    assert_eq!(plain.seed(), ChainKey { ..plain }.seed());
}

#[test]
fn the_head_hash_is_of_the_first_kilobyte() {
    let text = vec![b'x'; 3000];
    let mut other = text.clone();
    other[HEAD_BYTES] = b'y';
    assert_eq!(chain(1, &text).head_hash, chain(1, &other).head_hash);
    other[HEAD_BYTES - 1] = b'y';
    assert_ne!(chain(1, &text).head_hash, chain(1, &other).head_hash);
    assert_ne!(chain(1, &text).head_hash, chain(2, &text).head_hash);
    assert_ne!(chain(1, b"a").head_hash, chain(1, b"b").head_hash);
}

#[test]
fn pictures_are_counted_apart_and_change_the_chain() {
    let with = |digest: u64| {
        let mut chainer = ChainHasher::new(16, 1, 0);
        chainer.bytes(&[1; 16]);
        chainer.media(digest, 40_000);
        chainer.bytes(&[2; 16]);
        chainer.finish()
    };
    let (a, b) = (with(1), with(2));
    assert_eq!((a.media_bytes, a.prompt_bytes), (40_000, 41));
    assert_eq!(a.blocks[0], b.blocks[0]);
    assert_ne!(a.blocks[1], b.blocks[1]);
}

// The index.

#[test]
fn one_walk_tells_the_match_of_every_replica() {
    let index = PrefixIndex::new(3, ROOM);
    let _ = put(&index, &[1, 2, 3, 4], 0, 10);
    let _ = put(&index, &[1, 2, 9], 1, 20);
    let mut out = [7; 3];
    let shared = index.lookup(&links(&[1, 2, 3, 5]), &mut out);
    assert_eq!(out, [3, 2, 0]);
    assert_eq!(shared, SharedPrefix { parent: Some(DecisionId(10)), blocks: 3 });
    let shared = index.lookup(&links(&[1, 2]), &mut out);
    assert_eq!((out, shared.parent), ([2, 2, 0], Some(DecisionId(20))));
    assert_eq!(index.lookup(&links(&[8]), &mut out), SharedPrefix::default());
    assert_eq!(index.lookup(&[], &mut out), SharedPrefix::default());
    assert_eq!(out, [0; 3]);
    check_invariants(&index, 3);
}

#[test]
fn a_thousand_replicas_on_one_block_are_told_apart() {
    let index = PrefixIndex::new(1000, ROOM);
    for replica in 0..1000 {
        let path: Vec<u8> = (0..=u8::try_from(replica % 5).unwrap()).collect();
        let _ = put(&index, &path, replica, u64::from(replica) + 1);
    }
    let expected: Vec<u32> = (0..1000).map(|replica| replica % 5 + 1).collect();
    assert_eq!(matches(&index, &[0, 1, 2, 3, 4, 5], 1000), expected);
    for replica in (0..1000).filter(|replica| replica % 3 != 0) {
        index.purge(ReplicaId(replica));
    }
    let expected: Vec<u32> = (0..1000).map(|replica| if replica % 3 == 0 { replica % 5 + 1 } else { 0 }).collect();
    assert_eq!(matches(&index, &[0, 1, 2, 3, 4, 5], 1000), expected);
    check_invariants(&index, 1000);
}

#[test]
fn more_replicas_than_the_stack_has_bits_for() {
    let index = PrefixIndex::new(1500, ROOM);
    let _ = put(&index, &[1, 2], 1499, 1);
    let out = matches(&index, &[1, 2, 3], 1500);
    assert_eq!((out[1499], out.iter().sum::<u32>()), (2, 2));
}

#[test]
fn the_least_recently_used_path_goes_first_from_its_deep_end() {
    let index = PrefixIndex::new(1, ROOM);
    index.set_capacity(ReplicaId(0), 5);
    let _ = put(&index, &[1, 2, 3], 0, 1);
    let _ = put(&index, &[5, 6], 0, 2);
    let _ = put(&index, &[1], 0, 3); // only its head is young now
    let _ = put(&index, &[7], 0, 4);
    assert_eq!(matches(&index, &[1, 2, 3], 1), [2]);
    assert_eq!(matches(&index, &[5, 6], 1), [2]);
    index.set_capacity(ReplicaId(0), 2);
    assert_eq!(matches(&index, &[1, 2, 3], 1), [1]);
    assert_eq!(matches(&index, &[5, 6], 1), [0]);
    assert_eq!(matches(&index, &[7], 1), [1]);
    assert_eq!(index.stats().evictions, 4);
    check_invariants(&index, 1);
}

#[test]
fn a_prompt_longer_than_the_cache_keeps_its_head() {
    let index = PrefixIndex::new(1, ROOM);
    index.set_capacity(ReplicaId(0), 3);
    let _ = put(&index, &[1, 2, 3, 4, 5, 6], 0, 1);
    assert_eq!(matches(&index, &[1, 2, 3, 4, 5, 6], 1), [3]);
}

#[test]
fn a_purged_replica_holds_nothing_and_gives_its_memory_back() {
    let index = PrefixIndex::new(2, ROOM);
    let empty = index.stats().bytes;
    let mut tickets = Vec::new();
    for prompt in 0..5000_u64 {
        let chain = chain(prompt, &[3; 160]).blocks;
        tickets.push((chain.clone(), index.insert(&chain, ReplicaId(1), DecisionId(1), UnixMicros(prompt)).unwrap()));
    }
    assert_eq!(index.stats().blocks, 50_000);
    index.purge(ReplicaId(1));
    let after = index.stats();
    assert_eq!((after.blocks, after.held), (0, 0));
    assert!(after.bytes < empty + 4096, "{} of {empty}", after.bytes);
    // A request that was under way when the engine went away brings nothing back.
    for (chain, ticket) in tickets {
        index.confirm(&chain, ticket, 10);
        index.retract(&chain, ticket);
    }
    assert_eq!(index.stats().held, 0);
    let _ = put(&index, &[1], 1, 9000);
    assert_eq!(matches(&index, &[1], 2), [0, 1]);
    check_invariants(&index, 2);
}

#[test]
fn a_failed_request_takes_back_only_what_it_reserved() {
    let index = PrefixIndex::new(2, ROOM);
    let _ = put(&index, &[1, 2], 0, 1);
    let failed = put(&index, &[1, 2, 3, 4], 0, 2);
    assert_eq!(failed.held_blocks(), 2);
    index.retract(&links(&[1, 2, 3, 4]), failed);
    assert_eq!(matches(&index, &[1, 2, 3, 4], 2), [2, 0]);
    check_invariants(&index, 2);
    // Another request has used a part of it meanwhile.
    let failed = put(&index, &[1, 2, 3, 4], 0, 3);
    let _ = put(&index, &[1, 2, 3, 5], 0, 4);
    index.retract(&links(&[1, 2, 3, 4]), failed);
    assert_eq!(matches(&index, &[1, 2, 3, 4], 2), [3, 0]);
    check_invariants(&index, 2);
}

#[test]
fn what_the_engine_disproves_is_dropped_and_what_it_read_stays() {
    let index = PrefixIndex::new(1, ROOM);
    let long: Vec<u8> = (0..40).collect();
    let mut branch = long[..30].to_vec();
    branch.extend([90, 91]);
    let mut early = long[..4].to_vec();
    early.push(80);
    let _ = put(&index, &long, 0, 1);
    let _ = put(&index, &branch, 0, 2);
    let _ = put(&index, &early, 0, 3);
    let again = put(&index, &long, 0, 4);
    // It had ten blocks cached, not forty: what branched off after them is gone too.
    index.confirm(&links(&long), again, 10);
    assert_eq!(matches(&index, &long, 1), [40]);
    assert_eq!(matches(&index, &branch, 1), [30]);
    assert_eq!(matches(&index, &early, 1), [5]);
    check_invariants(&index, 1);
    // Within the error of the estimate nothing is dropped.
    let _ = put(&index, &branch, 0, 5);
    let again = put(&index, &long, 0, 6);
    index.confirm(&links(&long), again, 38);
    assert_eq!(matches(&index, &branch, 1), [32]);
}

#[test]
fn a_confirmed_chain_comes_back_though_it_was_evicted_meanwhile() {
    let index = PrefixIndex::new(1, ROOM);
    index.set_capacity(ReplicaId(0), 3);
    let ticket = put(&index, &[1, 2, 3], 0, 1);
    let _ = put(&index, &[5, 6, 7], 0, 2);
    assert_eq!(matches(&index, &[1, 2, 3], 1), [0]);
    index.confirm(&links(&[1, 2, 3]), ticket, 0);
    assert_eq!(matches(&index, &[1, 2, 3], 1), [3]);
    assert_eq!(matches(&index, &[5, 6, 7], 1), [0]);
}

#[test]
fn unknown_replicas_and_empty_chains_are_nothing() {
    let index = PrefixIndex::new(1, ROOM);
    assert_eq!(index.insert(&[], ReplicaId(0), DecisionId(1), UnixMicros(1)), None);
    assert_eq!(index.insert(&[1], ReplicaId(9), DecisionId(1), UnixMicros(1)), None);
    index.purge(ReplicaId(9));
    index.set_capacity(ReplicaId(9), 1);
    assert_eq!(index.replica_stats(ReplicaId(9)), None);
}

#[test]
fn a_replicas_oldest_use_has_its_time() {
    let index = PrefixIndex::new(1, ROOM);
    let _ = put(&index, &[1], 0, 1_000_000);
    let _ = put(&index, &[2], 0, 3_000_000);
    assert_eq!(index.replica_stats(ReplicaId(0)).unwrap().oldest, Some(UnixMicros(1_000_001)));
    let _ = put(&index, &[1], 0, 5_000_000);
    assert_eq!(index.replica_stats(ReplicaId(0)).unwrap().oldest, Some(UnixMicros(3_000_000)));
}

#[test]
fn memory_stays_below_its_limit_and_the_newest_prompts_stay() {
    let limit = 400 << 10;
    let index = PrefixIndex::new(8, limit);
    let newest = (0..20_000_u64).map(|prompt| {
        let chain = chain(prompt, &[1; 320]).blocks;
        let replica = ReplicaId(u16::try_from(prompt % 8).unwrap());
        let _ = index.insert(&chain, replica, DecisionId(1), UnixMicros(prompt));
        assert!(index.stats().bytes <= limit + 4096, "{:?} after {prompt}", index.stats());
        (chain, replica)
    });
    let newest: Vec<_> = newest.skip(19_990).collect();
    let mut out = [0; 8];
    for (chain, replica) in &newest {
        index.lookup(chain, &mut out);
        assert_eq!(out[replica.index()], 20);
    }
    let stats = index.stats();
    assert!(stats.blocks > 2500, "{stats:?}");
    assert!(stats.evictions > 390_000, "{stats:?}");
    check_invariants(&index, 8);
}

#[test]
fn one_prompt_used_for_ever_costs_no_more_memory() {
    let index = PrefixIndex::new(2, ROOM);
    for at in 0..100 {
        let _ = put(&index, &[1, 2, 3], 0, at);
    }
    let before = index.stats().bytes;
    for at in 100..10_000 {
        let _ = put(&index, &[1, 2, 3], 0, at);
    }
    assert!(index.stats().bytes <= before + 1024);
}

/// The figure of the README: 256-byte blocks of a quarter token per byte are 64 tokens.
#[test]
fn a_block_costs_about_eighty_bytes() {
    for (replicas, copies, most) in [(3_u16, 3_u16, 100.0), (64, 1, 100.0), (64, 16, 340.0)] {
        let index = PrefixIndex::new(usize::from(replicas), 512 << 20);
        for prompt in 0..2000_u64 {
            let chain = chain(prompt, &[1; 1600]).blocks;
            for copy in 0..copies {
                let _ = index.insert(&chain, ReplicaId(copy), DecisionId(1), UnixMicros(prompt));
            }
        }
        let stats = index.stats();
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let per_block = stats.bytes as f64 / stats.blocks as f64;
        println!("{replicas} replicas, {copies} hold each block: {per_block:.1} bytes per block");
        assert!(per_block < most, "{per_block}");
    }
}

// Against a model that is too simple to be wrong: per replica a map from path to last use, searched in full.

#[derive(Debug, Default)]
struct NaiveIndex {
    replicas: HashMap<u16, HashMap<Vec<u8>, u64>>,
    capacity: HashMap<u16, usize>,
    clock: u64,
}

impl NaiveIndex {
    fn touch(&mut self, path: &[u8], replica: u16) -> (u64, usize) {
        self.clock += 1;
        let map = self.replicas.entry(replica).or_default();
        let held = (1..=path.len()).take_while(|&length| map.contains_key(&path[..length])).count();
        for length in 1..=path.len() {
            map.insert(path[..length].to_vec(), self.clock);
        }
        self.evict(replica);
        (self.clock, held)
    }

    fn evict(&mut self, replica: u16) {
        let most = self.capacity.get(&replica).copied().unwrap_or(usize::MAX);
        let map = self.replicas.entry(replica).or_default();
        while map.len() > most {
            let oldest = map.iter().min_by_key(|(path, stamp)| (**stamp, usize::MAX - path.len())).unwrap().0.clone();
            map.remove(&oldest);
        }
    }

    fn retract(&mut self, path: &[u8], replica: u16, stamp: u64, held: usize) {
        let map = self.replicas.entry(replica).or_default();
        for length in (held + 1..=path.len()).rev() {
            match map.get(&path[..length]) {
                Some(used) if *used == stamp => _ = map.remove(&path[..length]),
                Some(_) => break,
                None => {}
            }
        }
    }

    fn prune(&mut self, path: &[u8], replica: u16, stamp: u64, from: usize) {
        let map = self.replicas.entry(replica).or_default();
        let gone: Vec<Vec<u8>> = map
            .keys()
            .filter(|other| {
                let same = other.iter().zip(path).take_while(|(a, b)| a == b).count();
                same > from && other.len() > same && map[&other[..=same]] < stamp
            })
            .cloned()
            .collect();
        map.retain(|path, _| !gone.contains(path));
    }

    fn matched(&self, path: &[u8], replica: u16) -> u32 {
        let map = self.replicas.get(&replica);
        let held = (1..=path.len()).take_while(|&n| map.is_some_and(|map| map.contains_key(&path[..n]))).count();
        u32::try_from(held).unwrap()
    }
}

#[derive(Debug, Clone)]
enum IndexStep {
    Insert(Vec<u8>, usize),
    Confirm(usize, u32),
    Retract(usize),
    Purge(usize),
    Capacity(usize, u8),
}

/// Spread over two bitmap words.
const FLEET: usize = 70;
const USED: [u16; 5] = [0, 1, 63, 64, 69];

fn step() -> impl Strategy<Value = IndexStep> {
    let path = proptest::collection::vec(0_u8..3, 1..12);
    prop_oneof![
        8 => (path, 0..USED.len()).prop_map(|(path, replica)| IndexStep::Insert(path, replica)),
        4 => (any::<usize>(), 0_u32..12).prop_map(|(which, actual)| IndexStep::Confirm(which, actual)),
        2 => any::<usize>().prop_map(IndexStep::Retract),
        1 => (0..USED.len()).prop_map(IndexStep::Purge),
        1 => (0..USED.len(), 1_u8..30).prop_map(|(replica, blocks)| IndexStep::Capacity(replica, blocks)),
    ]
}

proptest! {
    #![proptest_config(config(200, 12))]

    #[test]
    fn the_index_does_what_the_naive_model_does(steps in proptest::collection::vec(step(), 1..80)) {
        let index = PrefixIndex::new(FLEET, ROOM);
        let mut naive = NaiveIndex::default();
        let mut open: Vec<(Vec<u8>, u16, PrefixTicket, u64, usize)> = Vec::new();
        let mut purged: HashMap<u16, u64> = HashMap::new();
        let mut seen: Vec<Vec<u8>> = Vec::new();
        for step in steps {
            match step {
                IndexStep::Insert(path, replica) => {
                    let replica = USED[replica];
                    let (stamp, held) = naive.touch(&path, replica);
                    let ticket = index.insert(&links(&path), ReplicaId(replica), DecisionId(1), UnixMicros(0)).unwrap();
                    prop_assert_eq!(ticket.held_blocks() as usize, held);
                    open.push((path.clone(), replica, ticket, stamp, held));
                    seen.push(path);
                }
                IndexStep::Confirm(which, actual) if !open.is_empty() => {
                    let (path, replica, ticket, stamp, held) = open.swap_remove(which % open.len());
                    index.confirm(&links(&path), ticket, actual);
                    if purged.get(&replica).is_none_or(|purged| stamp > *purged) {
                        if actual as usize + held / 16 + 1 < held {
                            naive.prune(&path, replica, stamp, actual as usize);
                        }
                        naive.touch(&path, replica);
                    }
                }
                IndexStep::Retract(which) if !open.is_empty() => {
                    let (path, replica, ticket, stamp, held) = open.swap_remove(which % open.len());
                    index.retract(&links(&path), ticket);
                    naive.retract(&path, replica, stamp, held);
                }
                IndexStep::Purge(replica) => {
                    index.purge(ReplicaId(USED[replica]));
                    naive.replicas.remove(&USED[replica]);
                    purged.insert(USED[replica], naive.clock);
                }
                IndexStep::Capacity(replica, blocks) => {
                    index.set_capacity(ReplicaId(USED[replica]), u64::from(blocks));
                    naive.capacity.insert(USED[replica], usize::from(blocks));
                    naive.evict(USED[replica]);
                }
                IndexStep::Confirm(..) | IndexStep::Retract(_) => {}
            }
            check_invariants(&index, u16::try_from(FLEET).unwrap());
            for path in &seen {
                let out = matches(&index, path, FLEET);
                for (replica, blocks) in (0_u16..).zip(out) {
                    prop_assert_eq!(blocks, naive.matched(path, replica));
                }
            }
            for replica in USED {
                let held = naive.replicas.get(&replica).map_or(0, HashMap::len) as u64;
                prop_assert_eq!(index.replica_stats(ReplicaId(replica)).unwrap().blocks, held);
            }
        }
    }
}

#[test]
fn many_threads_leave_the_counts_right() {
    let index = PrefixIndex::new(6, 300 << 10);
    for replica in 0..3 {
        index.set_capacity(ReplicaId(replica), 200);
    }
    let decision = AtomicI64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (index, decision) = (&index, &decision);
            scope.spawn(move || {
                let mut state = thread + 1;
                let mut random = move |below: u64| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 33) % below
                };
                let mut out = [0; 6];
                for _ in 0..2000 {
                    let path: Vec<u8> = (0..=random(20)).map(|_| u8::try_from(random(3)).unwrap()).collect();
                    let replica = ReplicaId(u16::try_from(random(6)).unwrap());
                    let chain = links(&path);
                    let shared = index.lookup(&chain, &mut out);
                    assert_eq!(out.iter().max(), Some(&shared.blocks));
                    let id = DecisionId(decision.fetch_add(1, Ordering::Relaxed));
                    let Some(ticket) = index.insert(&chain, replica, id, UnixMicros(0)) else { continue };
                    match random(20) {
                        0 => index.purge(replica),
                        1..=4 => index.retract(&chain, ticket),
                        _ => index.confirm(&chain, ticket, u32::try_from(random(20)).unwrap()),
                    }
                }
            });
        }
    });
    check_invariants(&index, 6);
    assert!(index.stats().held > 0);
    for replica in 0..3 {
        assert!(index.replica_stats(ReplicaId(replica)).unwrap().blocks <= 200);
    }
}
