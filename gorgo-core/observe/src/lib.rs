//! Output of the router for people and for the store: log lines, metrics, records.

pub mod fan;
pub mod log;
pub mod meter;
mod outlet;

pub use outlet::{FactOutlet, TakeEvent};

use gorgo_routing::model::StoreRecord;

/// Consumer of records that never waits. The store's queue is one; tests have others.
pub trait RecordListener: Send + Sync {
    /// Takes one record. A full queue drops it and counts the loss.
    fn record(&self, record: StoreRecord);
}
