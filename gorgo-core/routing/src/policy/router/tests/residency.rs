//! What engines say of their caches is what decisions believe.

use super::*;
use crate::model::{KvChange, StoredBlocks};

const SIZE: u32 = 16;

/// All of a prompt's full token blocks, named by their first tokens.
fn stored(tokens: &[u32]) -> KvChange {
    let blocks = tokens.chunks_exact(SIZE as usize).map(|block| u64::from(block[0]) + 7).collect();
    let full = tokens.len() / SIZE as usize * SIZE as usize;
    let tokens = tokens[..full].to_vec();
    KvChange::Stored(StoredBlocks { blocks, parent: None, tokens, block_tokens: SIZE, extra_key_digests: Vec::new() })
}

/// Tokens that the next decision believes cached at each replica.
fn believed(router: &Router, prompt: &ParsedRequest, number: u64) -> Vec<u32> {
    let routed = route(router, "gorgo", prompt, number, UnixMicros(9));
    let cached = routed.record.candidates.iter().map(|row| row.cached_tokens).collect();
    router.finish(routed.reservation, prompt, &RequestOutcome::default(), UnixMicros(9));
    cached
}

#[test]
fn decisions_believe_what_engines_say() {
    let router = probed(2, "", 20.0);
    let prompt = unique(&router, 1, 1_000);
    let tokens: Vec<u32> = (0..1_000).collect();
    assert_eq!(believed(&router, &prompt, 1), [0, 0]);
    router.apply_cache_changes(ReplicaId(0), &[KvChange::CompleteFromStart, stored(&tokens)]);
    router.apply_cache_changes(ReplicaId(1), &[KvChange::CompleteFromStart, stored(&tokens[..512])]);
    let since = router.index_stamp();
    router.learn_tokens(&prompt, DecisionId(1), &tokens);
    assert!(router.is_mapped(ReplicaId(0), &prompt));
    router.reconcile_cached(&prompt, DecisionId(1), since);
    let [all, half] = believed(&router, &prompt, 2)[..] else { panic!("two replicas") };
    assert!(all >= 992 - 64 && (512 - 64..=512).contains(&half), "{all} {half}");

    // Evicted from its end; stored again; cleared.
    router
        .apply_cache_changes(ReplicaId(0), &[KvChange::Removed((512..992).step_by(16).map(|name| name + 7).collect())]);
    assert_eq!(believed(&router, &prompt, 3), [half, half]);
    router.apply_cache_changes(ReplicaId(0), &[stored(&tokens)]);
    assert_eq!(believed(&router, &prompt, 4), [all, half]);
    router.apply_cache_changes(ReplicaId(1), &[KvChange::Cleared]);
    assert_eq!(believed(&router, &prompt, 5), [all, 0]);
    router.apply_cache_changes(ReplicaId(0), &[KvChange::Restarted]);
    assert_eq!(believed(&router, &prompt, 6), [0, 0]);
}

#[test]
fn what_is_on_its_way_is_not_taken_for_missing() {
    let router = probed(2, "", 20.0);
    let prompt = unique(&router, 1, 1_000);
    let tokens: Vec<u32> = (0..1_000).collect();
    router.apply_cache_changes(ReplicaId(0), &[KvChange::CompleteFromStart, stored(&tokens[..512])]);
    router.learn_tokens(&prompt, DecisionId(1), &tokens);
    let since = router.index_stamp();
    let routed = route(&router, "gorgo", &prompt, 1, UnixMicros(1));
    let replica = routed.reservation.replica();
    router.reconcile_cached(&prompt, DecisionId(1), since);
    let next = route(&router, "gorgo", &prompt, 2, UnixMicros(1));
    let row = &next.record.candidates[replica.index()];
    assert!(row.cached_tokens > 900, "the request that is on its way will be there: {}", row.cached_tokens);
    for reservation in [routed.reservation, next.reservation] {
        router.finish(reservation, &prompt, &RequestOutcome::default(), UnixMicros(2));
    }
}
