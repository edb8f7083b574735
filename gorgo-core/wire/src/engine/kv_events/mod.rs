//! Cache events of engines: which token blocks they have cached, as they report it themselves (feature `kv-events`).
//!
//! ```text
//! publisher → subscriber → decode → sequence → CacheFacts      what is cached
//!                 └ asks the engine for what it missed
//! answered request → lessons → POST /tokenize → CacheFacts     which of the index's blocks that is
//! ```
//!
//! All of this runs beside the requests: a publisher that is gone, slow or broken costs knowledge, not service.

pub mod decode;
mod listener;
#[cfg(test)]
mod msgpack_writer;
mod replay;
pub mod sequence;
#[cfg(test)]
mod tests;
mod tokenize;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

pub use listener::{KvEventSource, listen_loop};
pub use tokenize::{TokenizeQueue, TokenizeWorker};

use gorgo_routing::model::{DecisionId, KvChange, KvEventStats, ParsedRequest, ReplicaId};

/// Receiver of what engines report. Called beside requests; may lock, must not wait.
pub trait CacheFacts: Send + Sync {
    /// Applies changes of a replica's cache.
    fn apply(&self, replica: ReplicaId, changes: &[KvChange]);
    /// Returns `true` if the cache of a replica is known completely.
    fn is_exact(&self, replica: ReplicaId) -> bool;
    /// Current moment, to be passed to `settle` later.
    fn moment(&self) -> u64;
    /// Returns `true` if the tokens of a prompt are known for a replica's engine.
    fn is_mapped(&self, replica: ReplicaId, prompt: &ParsedRequest) -> bool;
    /// Stores the tokens of a prompt as an engine reported them.
    fn learn(&self, prompt: &ParsedRequest, decision: DecisionId, tokens: &[u32]);
    /// Corrects what is believed of a prompt, except for what was used since.
    fn settle(&self, prompt: &ParsedRequest, decision: DecisionId, since: u64);
}

/// Counters of one replica.
#[derive(Debug, Default)]
pub struct KvEventCounters {
    connected: AtomicBool,
    batches: AtomicU64,
    gaps: AtomicU64,
    replays: AtomicU64,
    bad_frames: AtomicU64,
    unknown_events: AtomicU64,
    mapped: AtomicU64,
    unmapped: AtomicU64,
    answers_since_batch: AtomicU64,
}

impl KvEventCounters {
    /// Current counts.
    #[must_use]
    pub fn count(&self, replica: Arc<str>, exact: bool) -> KvEventStats {
        KvEventStats {
            replica,
            connected: self.connected.load(Relaxed),
            exact,
            batches: self.batches.load(Relaxed),
            gaps: self.gaps.load(Relaxed),
            replays: self.replays.load(Relaxed),
            bad_frames: self.bad_frames.load(Relaxed),
            unknown_events: self.unknown_events.load(Relaxed),
            mapped: self.mapped.load(Relaxed),
            unmapped: self.unmapped.load(Relaxed),
            answers_since_batch: self.answers_since_batch.load(Relaxed),
        }
    }
}
