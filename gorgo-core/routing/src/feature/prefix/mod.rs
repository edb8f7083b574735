//! Which part of a prompt each replica still holds: prompt → chain of block hashes → index block → replicas.
//!
//! ```text
//! canonical bytes → Chainer → chain ─ lookup (before the choice) → cached blocks per replica
//!                                   ─ insert (at dispatch)       → Ticket
//!                                   ─ confirm | retract (at the end, with what the engine said)
//! ```
//!
//! No tokenizer: blocks are of bytes, and `feature::tokens` knows how many tokens a model makes of them.

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

pub use chain::{Chain, ChainKey, Chainer, HEAD_BYTES};
pub use export::{Remembered, Restored};
pub use index::{PrefixIndex, PrefixStats, ReplicaStats, Shared, Ticket};
pub use snapshot::{MAX_BLOCKS, SnapshotError, SnapshotKey, decode, encode};
