//! Token blocks that one engine holds, according to its events.

use std::collections::HashMap;

use super::name;
use crate::model::StoredBlocks;

/// Most blocks of one engine that are tracked: 16 million tokens at 16 to a block, 50 MiB. Blocks stored beyond are
/// ignored, and the replica is no longer exact.
const MOST_BLOCKS: usize = 1 << 20;

/// Cache contents of one engine; see the module.
#[derive(Debug, Clone)]
pub(super) struct EngineCache {
    secret: u64,
    block_tokens: Option<u32>,
    /// The engine's name of a block → ours.
    names: HashMap<u64, u64>,
    /// Our name of a block → the engine's.
    held: HashMap<u64, u64>,
    exact: bool,
    /// True when it holds, or has held since it was last emptied, blocks that an adapter, a salt or a picture
    /// distinguishes.
    has_extra_keys: bool,
}

impl EngineCache {
    pub(super) fn new(secret: u64) -> Self {
        Self {
            secret,
            block_tokens: None,
            names: HashMap::new(),
            held: HashMap::new(),
            exact: false,
            has_extra_keys: false,
        }
    }

    /// Tokens in a block, once an event has shown it.
    pub(super) const fn block_tokens(&self) -> Option<u32> {
        self.block_tokens
    }

    pub(super) const fn is_exact(&self) -> bool {
        self.exact
    }

    pub(super) const fn has_extra_keys(&self) -> bool {
        self.has_extra_keys
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn has(&self, name: u64) -> bool {
        self.held.contains_key(&name)
    }

    /// Forgets everything. `exact`: the engine is known to hold nothing.
    pub(super) fn clear(&mut self, exact: bool) {
        self.names = HashMap::new();
        self.held = HashMap::new();
        self.exact = exact;
        self.has_extra_keys = false;
    }

    /// Applies stored blocks. Returns our names of those that were not held before. Blocks after an unknown one get no
    /// name, and the contents are no longer exact. Blocks of another size than the first belong to a second pool (a
    /// hybrid model's state) and are ignored.
    pub(super) fn stored(&mut self, stored: &StoredBlocks) -> Vec<u64> {
        let size = usize::try_from(stored.block_tokens).unwrap_or(usize::MAX);
        // A malformed event: the tokens do not fill the blocks, so no block can be named.
        if size == 0 || stored.blocks.len().checked_mul(size) != Some(stored.tokens.len()) {
            return Vec::new();
        }
        // The size may change only while nothing is held: names of different sizes are not comparable.
        if self.held.is_empty() {
            self.block_tokens = Some(stored.block_tokens);
        }
        let known = match stored.parent {
            None => Some(self.secret),
            Some(parent) => self.names.get(&parent).copied(),
        };
        if self.block_tokens != Some(stored.block_tokens) {
            return Vec::new();
        }
        // The parent was stored before we listened, or was not tracked: its chain of hashes is unknown.
        let Some(mut before) = known else {
            self.exact = false;
            return Vec::new();
        };
        // Only `empty` clears it: removals name blocks by id, which does not show what distinguished them.
        self.has_extra_keys |= stored.extra_key_digests.iter().any(|apart| *apart != 0);
        let (mut fresh, mut scratch) = (Vec::new(), Vec::new());
        for (place, (block, tokens)) in stored.blocks.iter().zip(stored.tokens.chunks_exact(size)).enumerate() {
            let apart = stored.extra_key_digests.get(place).copied().unwrap_or(0);
            before = name(before, tokens, apart, &mut scratch);
            // Stops here, because a block that is not tracked cannot be the parent of tracked ones.
            if self.held.len() >= MOST_BLOCKS && !self.held.contains_key(&before) {
                self.exact = false;
                break;
            }
            // An engine that reuses a block id for other tokens has evicted the tokens before.
            if let Some(other) = self.names.insert(*block, before).filter(|other| *other != before) {
                self.held.remove(&other);
            }
            match self.held.insert(before, *block) {
                None => fresh.push(before),
                // The same tokens under another id: the last one counts.
                Some(other) if other != *block => drop(self.names.remove(&other)),
                Some(_) => {}
            }
        }
        fresh
    }

    /// Applies removed blocks. Returns our names of those that are no longer held.
    pub(super) fn removed(&mut self, blocks: &[u64]) -> Vec<u64> {
        let names = blocks.iter().filter_map(|block| self.names.remove(block));
        let gone: Vec<u64> = names.collect();
        for name in &gone {
            self.held.remove(name);
        }
        gone
    }
}
