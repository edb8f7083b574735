//! Ring 3: the history database. What happened goes in by [`Sink`], which never waits, and [`Writer`], which owns the
//! one connection that writes; it comes back by [`Reader`], or by any SQL tool through the views.
//!
//! ```text
//! Listener::record → Queue (bounded, counts what it drops) → Writer (batches) → SQLite (WAL) → Reader, views
//! ```
//!
//! `migrations/README.md` is the data dictionary.

mod batch;
mod bench;
mod bind;
mod codes;
mod error;
mod insert;
mod lock;
mod loss;
mod memory;
mod open;
mod pin;
mod queue;
mod read;
mod requests;
mod retention;
mod run;
mod schema;
mod sink;
mod sql;
mod stored;
mod tuning;
mod warm;
mod weights;
mod writer;

#[cfg(test)]
mod tests;

pub use bench::{Fallbacks, StoredRun};
pub use error::StoreError;
pub use memory::Memory;
pub use open::{Store, open};
pub use read::Reader;
pub use requests::StoredRequest;
pub use run::{PolicyInfo, ReplicaInfo, RunInfo, TermInfo};
pub use sink::{Sink, Trouble};
pub use stored::{StoredAttempt, StoredCandidate, StoredDecision, StoredPolicy, StoredShadow};
pub use tuning::LastTuning;
pub use warm::{StoredIndex, StoredLearning, StoredProbe};
pub use weights::{StoredRate, StoredWeights};
pub use writer::Writer;
