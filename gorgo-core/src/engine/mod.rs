//! Ring 3: what differs from engine to engine, and how their answers are read.

mod answer;
mod stream;
mod stream_events;
mod stream_gaps;
mod stream_unpack;
mod stream_usage;

pub use answer::AnswerReader;
pub use stream::{Observed, StreamReader};
pub use stream_events::{Dialect, StreamError};
pub use stream_gaps::Gaps;
pub use stream_unpack::PackedReader;
