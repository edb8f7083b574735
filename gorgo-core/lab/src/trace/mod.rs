//! Ring 1: recorded traffic. Reads trace files, shapes them for a replay, writes their prompts, sums up what was
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
//! Nothing here reads a clock or a file: callers hand in bytes and measured times.

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
pub use interval::{Interval, Intervals, RunIntervals};
pub use prompt::{BYTES_PER_TOKEN, PromptText};
pub use read::{Trace, TraceError, TraceFault, TraceFormat, read};
pub use row::TraceRow;
pub use sample::Sample;
pub use shape::{Shape, ShapeCounts, Shaped, shape};
pub use slice::{Slice, SliceCounts, slice};
pub use stats::{FANO_SECS, Reuse, SessionSource, Sessions, Spread, TraceStats};
pub use summary::{
    FailureCount, Latencies, Quantiles, ReplicaTraffic, SHORT_INPUT_TOKENS, SLIP_LIMIT_MS, Slip, Summary, mean,
};
pub use write::{Packing, write};
