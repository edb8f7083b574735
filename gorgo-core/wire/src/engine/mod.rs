//! Ring 3: engines. One adapter row per engine says where things are and what they are called; the loops ask each
//! replica how far it is ([`probe`]), how busy it is and what it serves ([`scrape`]), and whether it lives
//! ([`health`]). What they find leaves by the [`FactOutlet`](gorgo_observe::FactOutlet), for the facts and for the store at
//! once. The `stream` files and `answer` read what engines answer.

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
