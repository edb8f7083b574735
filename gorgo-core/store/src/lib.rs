//! Ring 3: the history database. Records go in through [`HistorySink`], which never waits, and [`HistoryWriter`], which owns the only
//! connection that writes; they come back through [`HistoryReader`], or with any SQL tool through the views.
//!
//! ```text
//! Listener::record → Queue (bounded, counts what it drops) → Writer (batches) → SQLite (WAL) → Reader, views
//! ```
//!
//! The folders follow a row: `open` creates or migrates the file and begins a run, `write` takes records and writes
//! them in batches, `table` defines the rows of each table, `read` reads them, `retain` deletes them. A new table is a
//! file in
//! `table` and its lines in the lists there.
//!
//! `migrations/README.md` is the data dictionary.

mod codes;
mod error;
mod memory;
mod open;
mod read;
mod retain;
mod sql;
mod table;
mod write;

#[cfg(test)]
mod tests;

pub use error::StoreError;
pub use memory::MemoryListener;
pub use open::resume::{LastTuning, StoredIndex, StoredLearning, StoredProbe};
pub use open::run::{PolicyInfo, ReplicaInfo, RunInfo, TermInfo};
pub use open::{HistoryDatabase, open};
pub use read::HistoryReader;
pub use read::bench::{FallbackCounts, StoredRun};
pub use read::requests::StoredRequest;
pub use read::stored::{StoredAttempt, StoredCandidate, StoredDecision, StoredPolicy, StoredShadow};
pub use read::weights::{StoredRate, StoredWeights};
pub use write::sink::{HistorySink, StoreTrouble};
pub use write::writer::HistoryWriter;
