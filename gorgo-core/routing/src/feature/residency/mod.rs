//! What engines really hold, from the cache events that they publish: token blocks → the index's blocks of text.
//!
//! ```text
//! events    → EngineCache (per replica): which token blocks are held       ┐
//!                                                                          ├→ Edit: hold or drop blocks of the index
//! a prompt's tokens → Bindings: which token block each block of text ends in ┘
//! ```
//!
//! Token blocks get names of our own, chained hashes of their tokens. They are the same for every engine with blocks of
//! that size, whatever it calls them, so one answer to `/tokenize` maps a prompt for the whole fleet, and needs no event
//! to have come before. A block with an adapter, a salt or a picture gets another name than its tokens alone would give:
//! no text leads to it, and the prompt's part of the index stays what it is without events.
//!
//! A replica is *exact* while every event of its engine's life was seen. Only then is a block that nobody told of one
//! that is not held; else only what is told changes the index.

mod bindings;
mod cache;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::bindings::Bindings;
use self::cache::EngineCache;
use crate::model::{DecisionId, KvChange, ReplicaId};

/// Different block sizes in one fleet that are told apart; engines beyond are listened to in vain.
const MOST_SIZES: usize = 4;

/// What the index is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// The replica holds all of this chain.
    Hold {
        /// From the prompt's first block on.
        chain: Vec<u64>,
        /// The last decision that was known to use it.
        decision: DecisionId,
    },
    /// The replica does not hold this block any more, nor what follows on it.
    Drop {
        /// The first block of its chain.
        root: u64,
        /// The block.
        block: u64,
    },
    /// The replica holds nothing.
    Purge,
}

/// A prompt, and the tokens that its engine makes of it.
#[derive(Debug, Clone, Copy)]
pub struct Lesson<'a> {
    /// Its blocks of text.
    pub chain: &'a [u64],
    /// All its bytes.
    pub prompt_bytes: u64,
    /// Bytes in one block.
    pub block_bytes: u64,
    /// All its tokens.
    pub tokens: &'a [u32],
    /// The decision that it came with.
    pub decision: DecisionId,
}

/// How much of a prompt a replica holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// Which.
    pub replica: ReplicaId,
    /// Leading blocks of text that it holds for certain.
    pub blocks: usize,
    /// Whether it does not hold the next one for certain, too.
    pub exact: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Residency {
    secret: u64,
    caches: Vec<EngineCache>,
    /// By tokens in a block.
    bindings: Vec<(u32, Bindings)>,
}

impl Residency {
    /// For a fleet of `replicas`; nothing was heard. Names are keyed with `secret`.
    #[must_use]
    pub fn new(replicas: usize, secret: u64) -> Self {
        Self { secret, caches: vec![EngineCache::new(secret); replicas], bindings: Vec::new() }
    }

    /// Takes in a change of a replica's cache.
    pub fn apply(&mut self, replica: ReplicaId, change: &KvChange) -> Vec<Edit> {
        let Some(cache) = self.caches.get_mut(replica.index()) else { return Vec::new() };
        match change {
            KvChange::Stored(stored) => {
                let fresh = cache.stored(stored);
                self.held(replica, &fresh)
            }
            KvChange::Removed(blocks) => {
                let gone = cache.removed(blocks);
                self.gone(replica, &gone)
            }
            KvChange::Cleared | KvChange::Restarted => {
                cache.empty(true);
                vec![Edit::Purge]
            }
            KvChange::Whole => {
                cache.empty(true);
                Vec::new()
            }
            KvChange::Unsure => {
                cache.empty(false);
                Vec::new()
            }
        }
    }

    /// Whether a prompt of so many bytes is mapped for the replica's engine.
    #[must_use]
    pub fn is_mapped(&self, replica: ReplicaId, chain: &[u64], prompt_bytes: u64) -> bool {
        self.bindings_of(replica).is_some_and(|bindings| bindings.is_whole(chain, prompt_bytes))
    }

    /// Takes in the tokens of a prompt, for all engines that told the size of their blocks.
    pub fn learn(&mut self, lesson: &Lesson<'_>) {
        for size in self.caches.iter().filter_map(EngineCache::block_tokens) {
            if self.bindings.iter().all(|(known, _)| *known != size) && self.bindings.len() < MOST_SIZES {
                self.bindings.push((size, Bindings::default()));
            }
        }
        for (size, bindings) in &mut self.bindings {
            bindings.learn(lesson, *size, self.secret);
        }
    }

    /// How much of a chain each replica holds whose engine tells.
    #[must_use]
    pub fn settle(&self, chain: &[u64]) -> Vec<Settled> {
        let told = self.caches.iter().zip(0_u16..).filter(|(cache, _)| cache.block_tokens().is_some());
        told.filter_map(|(cache, id)| {
            let replica = ReplicaId(id);
            let bindings = self.bindings_of(replica)?;
            let (bound, blocks) = (bindings.bound(chain), bindings.leading(chain, |name| cache.has(name)));
            // Only of a block that is mapped can be said that it is not there; and of none where the engine holds blocks
            // that something else than tokens tells apart, as this one's may be.
            let exact = cache.is_exact() && !cache.tells_apart() && blocks < bound;
            (bound > 0).then_some(Settled { replica, blocks, exact })
        })
        .collect()
    }

    /// Whether all that the engine holds is known.
    #[must_use]
    pub fn is_exact(&self, replica: ReplicaId) -> bool {
        self.caches.get(replica.index()).is_some_and(EngineCache::is_exact)
    }

    /// Token blocks that the replica is known to hold.
    #[must_use]
    pub fn blocks(&self, replica: ReplicaId) -> usize {
        self.caches.get(replica.index()).map_or(0, EngineCache::len)
    }

    fn bindings_of(&self, replica: ReplicaId) -> Option<&Bindings> {
        let size = self.caches.get(replica.index())?.block_tokens()?;
        self.bindings.iter().find(|(known, _)| *known == size).map(|(_, bindings)| bindings)
    }

    /// Blocks of text that end in token blocks held only now: the longest chains of them.
    fn held(&self, replica: ReplicaId, names: &[u64]) -> Vec<Edit> {
        let (Some(bindings), Some(cache)) = (self.bindings_of(replica), self.caches.get(replica.index())) else {
            return Vec::new();
        };
        let mut texts: Vec<u64> = names.iter().flat_map(|name| bindings.ending_in(*name)).copied().collect();
        texts.retain(|text| bindings.parent_name(*text).is_none_or(|name| cache.has(name)));
        let inner: HashSet<u64> = texts.iter().filter_map(|text| bindings.parent(*text)).collect();
        let ends = texts.into_iter().filter(|text| !inner.contains(text));
        ends.filter_map(|text| bindings.path(text)).map(|(chain, decision)| Edit::Hold { chain, decision }).collect()
    }

    fn gone(&self, replica: ReplicaId, names: &[u64]) -> Vec<Edit> {
        let Some(bindings) = self.bindings_of(replica) else { return Vec::new() };
        let texts = names.iter().flat_map(|name| bindings.ending_in(*name));
        texts.filter_map(|text| Some(Edit::Drop { root: bindings.root(*text)?, block: *text })).collect()
    }
}

/// The name of a token block that follows the one named `before`. `apart`: 0 where nothing but the tokens tells it.
fn name(before: u64, tokens: &[u32], apart: u64, scratch: &mut Vec<u8>) -> u64 {
    scratch.clear();
    scratch.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
    xxh3_64_with_seed(scratch, before.rotate_left(17) ^ apart)
}

/// The names of a prompt's full token blocks.
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
