//! Ring 3: engines. One adapter row per engine holds paths and metric names; the loops measure each replica's round
//! trip ([`probe`]), load and models ([`scrape`]), and health ([`health`]). Results go through the
//! [`FactOutlet`](gorgo_observe::FactOutlet), to the facts and to the store at once. The `stream` files and `answer`
//! read the responses of engines.

mod answer;
pub mod client;
pub mod ejection;
pub mod examine;
pub mod health;
#[cfg(feature = "kv-events")]
pub mod kv_events;
pub mod limits;
pub mod metrics;
pub mod probe;
pub mod scrape;
mod served;

mod stream;
mod stream_events;
mod stream_gaps;
mod stream_unpack;
mod stream_usage;
pub mod watch;

#[cfg(test)]
mod mock;

pub use answer::AnswerReader;
pub use client::{Endpoint, EndpointError};
pub use health::Vitals;
pub use served::{Served, TellServed};
pub use stream::{Observed, StreamReader};
pub use stream_events::{Dialect, StreamError};
pub use stream_gaps::Gaps;
pub use stream_unpack::PackedReader;
pub use watch::{Senses, Watched};
