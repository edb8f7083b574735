//! Contents of the engines' KV caches as they report them, and statistics of those reports. Blocks are token blocks here,
//! named by the engine.

use std::sync::Arc;

/// A change of an engine's cache, in the order in which they happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvChange {
    /// Blocks were stored.
    Stored(StoredBlocks),
    /// Blocks were removed; the engine's names.
    Removed(Vec<u64>),
    /// The cache was emptied.
    Cleared,
    /// The engine restarted: the cache is empty, and what follows is its complete history.
    Restarted,
    /// Nothing was known before, and what follows is the engine's complete history.
    CompleteFromStart,
    /// Changes were lost: the known state may be wrong, and what follows is incomplete.
    EventsLost,
}

/// Blocks that an engine has cached now: one after the other in one prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlocks {
    /// The engine's names of the blocks. Signed ones keep their bits.
    pub blocks: Vec<u64>,
    /// The name of the block before them; `None`: they begin a prompt.
    pub parent: Option<u64>,
    /// The tokens of all of them, in order.
    pub tokens: Vec<u32>,
    /// Tokens in one block.
    pub block_tokens: u32,
    /// Per block, a digest of what besides its tokens distinguishes it (an adapter, a salt, a picture); empty: nothing.
    pub extra_key_digests: Vec<u64>,
}

/// Statistics of one replica's cache events since the start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KvEventStats {
    /// Name of the replica.
    pub replica: Arc<str>,
    /// True if the publisher is connected.
    pub connected: bool,
    /// True if the cache contents are known completely.
    pub exact: bool,
    /// Batches of events taken in.
    pub batches: u64,
    /// Number of times that batches were missing.
    pub gaps: u64,
    /// Number of times that missing batches were requested from the engine.
    pub replays: u64,
    /// Frames that could not be read.
    pub bad_frames: u64,
    /// Events of a kind that is not known.
    pub unknown_events: u64,
    /// Prompts whose tokens the engine returned.
    pub mapped: u64,
    /// Prompts whose tokens it did not return, or that it was not asked for because too many waited.
    pub unmapped: u64,
    /// Requests that it answered since the last batch.
    pub answers_since_batch: u64,
}
