//! Part of a prompt that each replica still holds: prompt → chain of block hashes → index block → replicas.
//!
//! ```text
//! canonical bytes → Chainer → chain ─ lookup (before the choice) → cached blocks per replica
//!                                   ─ insert (at dispatch)       → PrefixTicket
//!                                   ─ confirm | retract (at the end, with the engine's report)
//! ```
//!
//! No tokenizer: blocks are made of bytes, and `feature::tokens` knows how many tokens a model makes of them.

mod chain;
mod evict;
mod export;
mod holders;
mod index;
mod residency;
mod shard;
mod snapshot;
#[cfg(test)]
mod tests;
mod tree;

pub use chain::{ChainHasher, ChainKey, HEAD_BYTES, PromptChain};
pub use export::{RestoreCounts, SnapshotPath};
pub use index::{PrefixIndex, PrefixStats, PrefixTicket, ReplicaIndexStats, SharedPrefix};
pub use snapshot::{MAX_BLOCKS, SnapshotError, SnapshotKey, decode, encode};
