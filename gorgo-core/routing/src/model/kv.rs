//! Contents of the engines' KV caches as they report them, and statistics of those reports. Blocks are token blocks here,
//! named by the engine.

use std::sync::Arc;

/// A change of an engine's cache, in the order in which they happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvChange {
    /// Blocks are held.
    Stored(KvStored),
    /// Blocks are not held any more; the engine's names.
    Removed(Vec<u64>),
    /// Nothing is held any more.
    Cleared,
    /// The engine restarted: nothing is held, and what follows is all of its life.
    Restarted,
    /// Nothing was known before, and what follows is all of the engine's life.
    Whole,
    /// Changes were lost: what was known may be wrong, and what follows is not all.
    Unsure,
}

/// Blocks that an engine has cached now: one after the other in one prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvStored {
    /// The engine's names of the blocks. Signed ones keep their bits.
    pub blocks: Vec<u64>,
    /// The name of the block before them; `None`: they begin a prompt.
    pub parent: Option<u64>,
    /// The tokens of all of them, in order.
    pub tokens: Vec<u32>,
    /// Tokens in one block.
    pub block_tokens: u32,
    /// Per block, a digest of what besides its tokens distinguishes it (an adapter, a salt, a picture); empty: nothing.
    pub apart: Vec<u64>,
}

/// Statistics of one replica's cache events since the start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KvCount {
    /// Its name.
    pub replica: Arc<str>,
    /// Whether the publisher is connected.
    pub connected: bool,
    /// Whether all that the engine holds is known.
    pub exact: bool,
    /// Batches of events taken in.
    pub batches: u64,
    /// Times that batches were missing.
    pub gaps: u64,
    /// Times that the engine was asked for what was missing.
    pub replays: u64,
    /// Frames that could not be read.
    pub bad_frames: u64,
    /// Events of a kind that is not known.
    pub unknown_events: u64,
    /// Prompts whose tokens the engine told.
    pub mapped: u64,
    /// Prompts whose tokens it did not tell, or was not asked for: too many waited.
    pub unmapped: u64,
    /// Requests that it answered since the last batch.
    pub unheard: u64,
}
