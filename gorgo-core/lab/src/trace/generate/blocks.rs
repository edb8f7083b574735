//! Block ids of generated prompts. A prompt consists of consecutive pieces of text by different creators. A block is
//! identified by the creator of its last token, its position, and its number of tokens. Since a creator's text always
//! follows the same text, an id implies everything before it.

use std::collections::HashMap;
use std::hash::Hash;

/// Ids by creator, position and length, numbered in the order in which they are first requested.
pub(super) struct BlockIds<C> {
    block_tokens: u32,
    known: HashMap<(C, u32, u32), u64>,
}

impl<C: Copy + Eq + Hash> BlockIds<C> {
    pub(super) fn new(block_tokens: u32) -> Self {
        Self { block_tokens: block_tokens.max(1), known: HashMap::new() }
    }

    /// Returns the block ids of a prompt of `tokens`: `head_tokens` by `head`, the rest by `rest`. A prompt shorter
    /// than its head is the beginning of the head.
    pub(super) fn ids_for_prompt(&mut self, tokens: u32, head: C, head_tokens: u32, rest: C) -> Vec<u64> {
        let size = self.block_tokens;
        let mut blocks = Vec::with_capacity(usize::try_from(tokens.div_ceil(size)).unwrap_or_default());
        for position in 0..tokens.div_ceil(size) {
            let start = position * size;
            let end = start.saturating_add(size).min(tokens);
            // A block across the boundary contains text by `rest`, so only prompts with that text can share it.
            let creator = if end <= head_tokens { head } else { rest };
            let next = u64::try_from(self.known.len()).unwrap_or(u64::MAX);
            // The length is part of the key: a partial last block is not the full block at the same position.
            blocks.push(*self.known.entry((creator, position, end - start)).or_insert(next));
        }
        blocks
    }
}
