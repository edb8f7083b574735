//! Block ids of generated prompts. A prompt is pieces of text by different creators, one after another; a block is
//! named by who made its last token, its position, and how many tokens it holds. Since a creator's text follows one
//! fixed text, an id implies everything before it.

use std::collections::HashMap;
use std::hash::Hash;

/// Ids by name, numbered in the order in which they are first asked for.
pub(super) struct BlockIds<C> {
    block_tokens: u32,
    known: HashMap<(C, u32, u32), u64>,
}

impl<C: Copy + Eq + Hash> BlockIds<C> {
    pub(super) fn new(block_tokens: u32) -> Self {
        Self { block_tokens: block_tokens.max(1), known: HashMap::new() }
    }

    /// The blocks of a prompt of `tokens`: `head_tokens` by `head`, the rest by `rest`. A prompt shorter than its head
    /// is the beginning of it.
    pub(super) fn of(&mut self, tokens: u32, head: C, head_tokens: u32, rest: C) -> Vec<u64> {
        let size = self.block_tokens;
        let mut blocks = Vec::with_capacity(usize::try_from(tokens.div_ceil(size)).unwrap_or_default());
        for position in 0..tokens.div_ceil(size) {
            let start = position * size;
            let end = start.saturating_add(size).min(tokens);
            let creator = if end <= head_tokens { head } else { rest };
            let next = u64::try_from(self.known.len()).unwrap_or(u64::MAX);
            blocks.push(*self.known.entry((creator, position, end - start)).or_insert(next));
        }
        blocks
    }
}
