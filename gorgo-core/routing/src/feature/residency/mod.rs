//! Cache contents that engines really hold, from the cache events that they publish: token blocks → blocks of text in
//! the index.
//!
//! ```text
//! events    → EngineCache (per replica): which token blocks are held       ┐
//!                                                                          ├→ Edit: hold or drop blocks of the index
//! a prompt's tokens → Bindings: which token block each block of text ends in ┘
//! ```
//!
//! Token blocks get names of this router's own, chained hashes of their tokens. They are the same for every engine with
//! that block size, whatever its ids are, so one answer to `/tokenize` maps a prompt for the whole fleet, and no event
//! needs to have come before. A block with an adapter, a salt or a picture gets a different name than its tokens alone:
//! no text leads to it, and the prompt's part of the index stays as it would be without events.
//!
//! A replica is *exact* while every event since its engine's start was seen. Only then is a block without an event
//! known to be absent; otherwise the index changes only by what events report.

mod bindings;
mod cache;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::bindings::BlockBindings;
use self::cache::EngineCache;
use crate::model::{DecisionId, KvChange, ReplicaId};

/// Most block sizes in one fleet that are tracked; events of engines with further sizes have no effect.
const MOST_SIZES: usize = 4;

/// Change that the index must make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexEdit {
    /// The replica holds all of this chain.
    MarkCached {
        /// Chain of blocks from the prompt's first one on.
        chain: Vec<u64>,
        /// Last decision known to have used it.
        decision: DecisionId,
    },
    /// The replica no longer holds this block, nor any that follows on it.
    Unmark {
        /// First block of its chain.
        root: u64,
        /// The block.
        block: u64,
    },
    /// The replica holds nothing.
    Purge,
}

/// Prompt with the tokens that its engine makes of it.
#[derive(Debug, Clone, Copy)]
pub struct TokenizedPrompt<'a> {
    /// Blocks of its text.
    pub chain: &'a [u64],
    /// Length of the prompt, bytes.
    pub prompt_bytes: u64,
    /// Length of one block, bytes.
    pub block_bytes: u64,
    /// Tokens of the whole prompt.
    pub tokens: &'a [u32],
    /// Decision that the prompt came with.
    pub decision: DecisionId,
}

/// Part of a prompt that a replica holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfirmedPrefix {
    /// Replica that holds it.
    pub replica: ReplicaId,
    /// Leading blocks of text that it certainly holds.
    pub blocks: usize,
    /// True when it certainly does not hold the next block.
    pub exact: bool,
}

/// Caches and bindings of a fleet; see the module.
#[derive(Debug)]
pub struct CacheResidency {
    secret: u64,
    caches: Vec<EngineCache>,
    /// Bindings with the number of tokens in a block.
    bindings: Vec<(u32, BlockBindings)>,
}

impl CacheResidency {
    /// Creates the state of a fleet of `replicas` without any event. Names are keyed with `secret`.
    #[must_use]
    pub fn new(replicas: usize, secret: u64) -> Self {
        Self { secret, caches: vec![EngineCache::new(secret); replicas], bindings: Vec::new() }
    }

    /// Applies a change of a replica's cache. Returns the changes that the index must make.
    pub fn apply(&mut self, replica: ReplicaId, change: &KvChange) -> Vec<IndexEdit> {
        let Some(cache) = self.caches.get_mut(replica.index()) else { return Vec::new() };
        match change {
            KvChange::Stored(stored) => {
                let fresh = cache.stored(stored);
                self.edits_for_stored(replica, &fresh)
            }
            KvChange::Removed(blocks) => {
                let gone = cache.removed(blocks);
                self.edits_for_removed(replica, &gone)
            }
            KvChange::Cleared | KvChange::Restarted => {
                // The cache is known to be empty, and so must be the replica's part of the index.
                cache.clear(true);
                vec![IndexEdit::Purge]
            }
            KvChange::CompleteFromStart => {
                // The event stream is complete from here on, but what the index believes was not contradicted.
                cache.clear(true);
                Vec::new()
            }
            KvChange::EventsLost => {
                // Events were missed: what is held is unknown, which is no reason to purge the index.
                cache.clear(false);
                Vec::new()
            }
        }
    }

    /// Returns true when a prompt of `prompt_bytes` is mapped for the block size of the replica's engine.
    #[must_use]
    pub fn is_mapped(&self, replica: ReplicaId, chain: &[u64], prompt_bytes: u64) -> bool {
        self.bindings_of(replica).is_some_and(|bindings| bindings.is_whole(chain, prompt_bytes))
    }

    /// Learns the tokens of a prompt, for every block size that engines have reported.
    pub fn learn(&mut self, lesson: &TokenizedPrompt<'_>) {
        for size in self.caches.iter().filter_map(EngineCache::block_tokens) {
            // The number of sizes is limited: each costs a complete map of the prompts.
            if self.bindings.iter().all(|(known, _)| *known != size) && self.bindings.len() < MOST_SIZES {
                self.bindings.push((size, BlockBindings::default()));
            }
        }
        for (size, bindings) in &mut self.bindings {
            bindings.learn(lesson, *size, self.secret);
        }
    }

    /// Part of a chain that each replica with cache events holds.
    #[must_use]
    pub fn confirmed_prefixes(&self, chain: &[u64]) -> Vec<ConfirmedPrefix> {
        let told = self.caches.iter().zip(0_u16..).filter(|(cache, _)| cache.block_tokens().is_some());
        told.filter_map(|(cache, id)| {
            let replica = ReplicaId(id);
            let bindings = self.bindings_of(replica)?;
            let (bound, blocks) = (bindings.mapped_blocks(chain), bindings.leading(chain, |name| cache.has(name)));
            // Only a block that is mapped can be known to be absent; and none can where the engine holds blocks that
            // something other than their tokens distinguishes, since the prompt's block may be one of them.
            let exact = cache.is_exact() && !cache.has_extra_keys() && blocks < bound;
            (bound > 0).then_some(ConfirmedPrefix { replica, blocks, exact })
        })
        .collect()
    }

    /// Returns true when everything that the engine holds is known.
    #[must_use]
    pub fn is_exact(&self, replica: ReplicaId) -> bool {
        self.caches.get(replica.index()).is_some_and(EngineCache::is_exact)
    }

    /// Number of token blocks that the replica is known to hold.
    #[must_use]
    pub fn blocks(&self, replica: ReplicaId) -> usize {
        self.caches.get(replica.index()).map_or(0, EngineCache::len)
    }

    fn bindings_of(&self, replica: ReplicaId) -> Option<&BlockBindings> {
        let size = self.caches.get(replica.index())?.block_tokens()?;
        self.bindings.iter().find(|(known, _)| *known == size).map(|(_, bindings)| bindings)
    }

    /// Edits for newly held token blocks: one per longest chain of text blocks that end in them.
    fn edits_for_stored(&self, replica: ReplicaId, names: &[u64]) -> Vec<IndexEdit> {
        let (Some(bindings), Some(cache)) = (self.bindings_of(replica), self.caches.get(replica.index())) else {
            return Vec::new();
        };
        let mut texts: Vec<u64> = names.iter().flat_map(|name| bindings.ending_in(*name)).copied().collect();
        // A text block counts only if the token block of its predecessor is held: indexes hold prefixes.
        texts.retain(|text| bindings.parent_name(*text).is_none_or(|name| cache.has(name)));
        // A chain covers its inner blocks, so only its last block needs an edit.
        let inner: HashSet<u64> = texts.iter().filter_map(|text| bindings.parent(*text)).collect();
        let ends = texts.into_iter().filter(|text| !inner.contains(text));
        ends.filter_map(|text| bindings.path(text))
            .map(|(chain, decision)| IndexEdit::MarkCached { chain, decision })
            .collect()
    }

    fn edits_for_removed(&self, replica: ReplicaId, names: &[u64]) -> Vec<IndexEdit> {
        let Some(bindings) = self.bindings_of(replica) else { return Vec::new() };
        let texts = names.iter().flat_map(|name| bindings.ending_in(*name));
        texts.filter_map(|text| Some(IndexEdit::Unmark { root: bindings.root(*text)?, block: *text })).collect()
    }
}

/// Name of a token block that follows the one named `before`. `apart`: 0 where only its tokens distinguish it.
fn name(before: u64, tokens: &[u32], apart: u64, scratch: &mut Vec<u8>) -> u64 {
    scratch.clear();
    scratch.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
    xxh3_64_with_seed(scratch, before.rotate_left(17) ^ apart)
}

/// Names of a prompt's full token blocks.
fn names(tokens: &[u32], block_tokens: u32, secret: u64) -> Vec<u64> {
    let size = usize::try_from(block_tokens).unwrap_or(usize::MAX).max(1);
    let mut scratch = Vec::with_capacity(size.min(1 << 16) * 4);
    let mut before = secret;
    let blocks = tokens.chunks_exact(size);
    blocks
        .map(|block| {
            before = name(before, block, 0, &mut scratch);
            before
        })
        .collect()
}
