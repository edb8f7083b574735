//! Recorded traffic: reads trace files, shapes them for a replay, writes their prompts, and summarises what was
//! measured on them.
//!
//! ```text
//! bytes → read → Trace → shape → Shaped → replay (over the wire) or the simulator → Sample → Summary
//!                                  └→ PromptText: the text of each row
//! ```
//!
//! ```text
//! generate: profile, seed → Trace → write → bytes        history: decisions → Trace        Trace → stats
//! ```
//!
//! Nothing here reads a clock or a file: callers pass in bytes and measured times.

mod azure;
mod blocks;
pub mod generate;
mod history;
mod interval;
mod mooncake;
mod prompt;
mod read;
mod row;
mod sample;
mod shape;
mod slice;
mod stats;
mod summary;
mod write;

pub use history::{HistoryRow, from_history};
pub use interval::{ConfidenceInterval, LatencyIntervals, RunIntervals};
pub use prompt::{BYTES_PER_TOKEN, PromptText};
pub use read::{RecordedTrace, TraceError, TraceFault, TraceFormat, read};
pub use row::TraceRow;
pub use sample::RequestSample;
pub use shape::{ShapeCounts, ShapeOptions, ShapedTrace, shape};
pub use slice::{SliceCounts, SliceOptions, slice};
pub use stats::{DistributionStats, FANO_SECS, ReuseStats, SessionSource, SessionStats, TraceStats};
pub use summary::{
    FailureCount, LatencyQuantiles, LatencySummary, ReplicaTraffic, RunSummary, SHORT_INPUT_TOKENS, SLIP_LIMIT_MS,
    SendSlip, mean,
};
pub use write::{TraceCompression, write};
