//! What is held by hand, and against a naive model.

use std::collections::HashSet;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;
use crate::model::StoredBlocks;

fn config(cases: u32, seed: u64) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..ProptestConfig::default() }
}

const A: ReplicaId = ReplicaId(0);
const B: ReplicaId = ReplicaId(1);
/// Tokens in a block.
const SIZE: u32 = 4;
/// Bytes in a block of text; a token has four.
const BYTES: u64 = 32;

fn tokens(count: u32, from: u32) -> Vec<u32> {
    (from..from + count).collect()
}

/// An engine's names of the blocks of these tokens: `salt` tells engines apart.
fn engine_names(tokens: &[u32], salt: u64) -> Vec<u64> {
    names(tokens, SIZE, salt)
}

fn stored(tokens: &[u32], from_block: usize, salt: u64) -> KvChange {
    let all = engine_names(tokens, salt);
    KvChange::Stored(StoredBlocks {
        parent: from_block.checked_sub(1).map(|before| all[before]),
        tokens: tokens[from_block * SIZE as usize..all.len() * SIZE as usize].to_vec(),
        blocks: all[from_block..].to_vec(),
        block_tokens: SIZE,
        extra_key_digests: Vec::new(),
    })
}

fn removed(tokens: &[u32], block: usize, salt: u64) -> KvChange {
    KvChange::Removed(vec![engine_names(tokens, salt)[block]])
}

fn lesson<'a>(chain: &'a [u64], tokens: &'a [u32]) -> TokenizedPrompt<'a> {
    let prompt_bytes = tokens.len() as u64 * 4;
    TokenizedPrompt { chain, prompt_bytes, block_bytes: BYTES, tokens, decision: DecisionId(7) }
}

fn settled(residency: &CacheResidency, chain: &[u64], replica: ReplicaId) -> Option<(usize, bool)> {
    residency
        .confirmed_prefixes(chain)
        .into_iter()
        .find(|settled| settled.replica == replica)
        .map(|it| (it.blocks, it.exact))
}

#[test]
fn one_prompt_maps_for_every_engine_whatever_it_calls_its_blocks() {
    let mut residency = CacheResidency::new(2, 9);
    let (text, prompt) = ([1, 2, 3], tokens(26, 100));
    residency.apply(A, &KvChange::CompleteFromStart);
    residency.apply(B, &KvChange::CompleteFromStart);
    assert_eq!(residency.apply(A, &stored(&prompt, 0, 1)), [], "nothing is mapped yet");
    residency.learn(&lesson(&text, &prompt));
    // 26 tokens: six full blocks; eight tokens to a block of text.
    assert_eq!(settled(&residency, &text, A), Some((3, false)));
    assert_eq!(settled(&residency, &text, B), None, "B has not told the size of its blocks");
    let held = residency.apply(B, &stored(&prompt[..16], 0, u64::MAX));
    assert_eq!(held, [IndexEdit::MarkCached { chain: vec![1, 2], decision: DecisionId(7) }]);
    assert_eq!(settled(&residency, &text, B), Some((2, true)));
    assert_eq!(residency.apply(B, &stored(&prompt, 4, u64::MAX)).len(), 1);
    assert_eq!(settled(&residency, &text, B), Some((3, false)));
    assert!(residency.is_mapped(A, &text, 104) && !residency.is_mapped(A, &text, 105));
}

#[test]
fn what_is_removed_leaves_the_index_and_comes_back_when_it_is_stored_again() {
    let mut residency = CacheResidency::new(1, 9);
    let (text, prompt) = ([1, 2, 3], tokens(24, 100));
    residency.apply(A, &KvChange::CompleteFromStart);
    residency.apply(A, &stored(&prompt, 0, 1));
    residency.learn(&lesson(&text, &prompt));
    assert_eq!(residency.apply(A, &removed(&prompt, 5, 1)), [IndexEdit::Unmark { root: 1, block: 3 }]);
    assert_eq!(residency.apply(A, &removed(&prompt, 5, 1)), [], "twice is once");
    assert_eq!(residency.apply(A, &removed(&prompt, 4, 1)), [], "no text ends there");
    assert_eq!(residency.apply(A, &removed(&prompt, 3, 1)), [IndexEdit::Unmark { root: 1, block: 2 }]);
    assert_eq!(settled(&residency, &text, A), Some((1, true)));
    let again = residency.apply(A, &stored(&prompt, 2, 1));
    assert_eq!(
        again,
        [IndexEdit::MarkCached { chain: vec![1, 2, 3], decision: DecisionId(7) }],
        "one edit for all of it"
    );
    assert_eq!(residency.apply(A, &KvChange::Cleared), [IndexEdit::Purge]);
    assert_eq!((settled(&residency, &text, A), residency.is_exact(A)), (Some((0, true)), true));
}

#[test]
fn a_conversation_keeps_the_places_of_its_earlier_turns() {
    let mut residency = CacheResidency::new(1, 9);
    residency.apply(A, &KvChange::CompleteFromStart);
    let first = tokens(16, 100);
    residency.apply(A, &stored(&first, 0, 1));
    residency.learn(&lesson(&[1, 2], &first));
    // The second turn has four times as many tokens to a byte; spread over all of it, block 2 would end behind token 16.
    let second = tokens(16 + 32, 100);
    let lesson = TokenizedPrompt { prompt_bytes: 96, ..lesson(&[1, 2, 3], &second) };
    residency.learn(&lesson);
    assert_eq!(settled(&residency, &[1, 2, 3], A), Some((2, true)));
}

#[test]
fn other_tokens_behind_the_same_text_are_mapped_anew() {
    let mut residency = CacheResidency::new(1, 9);
    residency.apply(A, &KvChange::CompleteFromStart);
    let (old, new) = (tokens(16, 100), tokens(16, 500));
    residency.apply(A, &stored(&old, 0, 1));
    residency.learn(&lesson(&[1, 2], &old));
    residency.learn(&lesson(&[1, 2], &new));
    assert_eq!(settled(&residency, &[1, 2], A), Some((0, true)));
    assert_eq!(residency.apply(A, &removed(&old, 3, 1)), [], "no text leads there any more");
    assert_eq!(residency.apply(A, &stored(&new, 0, 1)).len(), 1);
}

#[test]
fn what_something_else_than_tokens_tells_apart_is_no_texts() {
    let mut residency = CacheResidency::new(1, 9);
    residency.apply(A, &KvChange::CompleteFromStart);
    let prompt = tokens(8, 100);
    let KvChange::Stored(plain) = stored(&prompt, 0, 1) else { unreachable!() };
    residency.apply(A, &KvChange::Stored(StoredBlocks { extra_key_digests: vec![5, 0], ..plain }));
    residency.learn(&lesson(&[1], &prompt));
    let said = settled(&residency, &[1], A);
    assert_eq!(said, Some((0, false)), "whether this text is among them cannot be told");
    assert_eq!(residency.blocks(A), 2);
}

#[test]
fn after_a_loss_nothing_is_known_and_absence_says_nothing() {
    let mut residency = CacheResidency::new(1, 9);
    residency.apply(A, &KvChange::CompleteFromStart);
    let prompt = tokens(16, 100);
    residency.apply(A, &stored(&prompt, 0, 1));
    residency.learn(&lesson(&[1, 2], &prompt));
    assert_eq!(residency.apply(A, &KvChange::EventsLost), []);
    assert_eq!((settled(&residency, &[1, 2], A), residency.is_exact(A)), (Some((0, false)), false));
    assert_eq!(residency.apply(A, &stored(&prompt, 2, 1)), [], "what it follows on is unknown");
    assert_eq!(residency.apply(A, &stored(&prompt, 0, 1)).len(), 1);
    assert_eq!(residency.apply(A, &KvChange::Restarted), [IndexEdit::Purge]);
    assert!(residency.is_exact(A));
}

#[test]
fn nonsense_is_left_out() {
    let mut residency = CacheResidency::new(1, 9);
    let prompt = tokens(8, 100);
    let KvChange::Stored(plain) = stored(&prompt, 0, 1) else { unreachable!() };
    for odd in [
        StoredBlocks { block_tokens: 0, ..plain.clone() },
        StoredBlocks { block_tokens: 3, ..plain.clone() },
        StoredBlocks { tokens: Vec::new(), ..plain.clone() },
        StoredBlocks { parent: Some(77), ..plain.clone() },
    ] {
        assert_eq!((residency.apply(A, &KvChange::Stored(odd)), residency.blocks(A)), (Vec::new(), 0));
    }
    assert_eq!(residency.apply(ReplicaId(9), &KvChange::Cleared), [], "no such replica");
    residency.apply(A, &KvChange::Stored(plain.clone()));
    let second_pool = StoredBlocks { block_tokens: 2, blocks: vec![1, 2, 3, 4], ..plain };
    residency.apply(A, &KvChange::Stored(second_pool));
    assert_eq!(residency.blocks(A), 2);
}

#[test]
fn the_map_is_bounded_and_forgets_the_end_of_what_was_used_longest_ago() {
    let mut bindings = BlockBindings::default();
    for prompt in 0..3_000_u64 {
        let chain: Vec<u64> = (0..100).map(|block| prompt * 1_000 + block).collect();
        let tokens = tokens(800, u32::try_from(prompt).unwrap() * 1_000);
        bindings.learn(&lesson(&chain, &tokens), SIZE, 9);
    }
    let (texts, endings, uses) = bindings.sizes();
    assert_eq!((texts, endings), (1 << 18, 1 << 18));
    assert!(uses <= 2 * texts + 64, "{uses}");
    let chain = |prompt: u64| (0..100).map(|block| prompt * 1_000 + block).collect::<Vec<_>>();
    assert_eq!((bindings.mapped_blocks(&chain(0)), bindings.mapped_blocks(&chain(2_999))), (0, 100));
    // 300,000 were mapped: of the one at the edge, the end went first.
    let edge = bindings.mapped_blocks(&chain((300_000 - (1 << 18)) / 100));
    assert_eq!(edge, 100 - (300_000 - (1 << 18)) % 100);
    assert!(!bindings.is_whole(&chain(0), 3_200));
}

/// A step of an engine: a prompt is stored from some block on, or a block of it removed; or all is cleared.
#[derive(Debug, Clone)]
enum CacheStep {
    Store { prompt: u32, blocks: usize },
    Remove { prompt: u32, block: usize },
    Clear,
    Learn { prompt: u32 },
}

fn steps() -> impl Strategy<Value = Vec<CacheStep>> {
    let step = prop_oneof![
        4 => (0..4_u32, 1..=8_usize).prop_map(|(prompt, blocks)| CacheStep::Store { prompt, blocks }),
        4 => (0..4_u32, 0..8_usize).prop_map(|(prompt, block)| CacheStep::Remove { prompt, block }),
        1 => Just(CacheStep::Clear),
        3 => (0..4_u32).prop_map(|prompt| CacheStep::Learn { prompt }),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(config(256, 21))]

    /// Prompts of eight token blocks that share their first four in pairs, two token blocks to a block of text.
    #[test]
    fn settles_as_a_set_of_blocks_would(steps in steps()) {
        let prompt = |number: u32| [tokens(16, number / 2 * 1_000), tokens(16, 10_000 + number * 1_000)].concat();
        let text = |number: u32| [u64::from(number / 2) * 10, u64::from(number / 2) * 10 + 1,
                                  u64::from(number) * 100 + 500, u64::from(number) * 100 + 501];
        let mut residency = CacheResidency::new(1, 9);
        residency.apply(A, &KvChange::CompleteFromStart);
        let (mut held, mut learned) = (HashSet::new(), HashSet::new());
        for step in steps {
            match step {
                CacheStep::Store { prompt: number, blocks } => {
                    let tokens = prompt(number);
                    let all = engine_names(&tokens, 1);
                    let known = all.iter().take_while(|name| held.contains(*name)).count();
                    if known < blocks {
                        residency.apply(A, &stored(&tokens[..blocks * SIZE as usize], known, 1));
                        held.extend(all[..blocks].iter().copied());
                    }
                }
                CacheStep::Remove { prompt: number, block } => {
                    let tokens = prompt(number);
                    residency.apply(A, &removed(&tokens, block, 1));
                    held.remove(&engine_names(&tokens, 1)[block]);
                }
                CacheStep::Clear => {
                    residency.apply(A, &KvChange::Cleared);
                    held.clear();
                }
                CacheStep::Learn { prompt: number } => {
                    residency.learn(&lesson(&text(number), &prompt(number)));
                    // The engine tells its block size with its first store; lessons before that are for nobody.
                    if residency.is_mapped(A, &text(number), 128) {
                        learned.insert(number);
                    }
                }
            }
            prop_assert_eq!(residency.blocks(A), held.len());
            for number in &learned {
                let names = engine_names(&prompt(*number), 1);
                let ends = names.iter().skip(1).step_by(2);
                let expected = ends.take_while(|name| held.contains(*name)).count();
                prop_assert_eq!(settled(&residency, &text(*number), A), Some((expected, expected < 4)));
            }
        }
    }
}
