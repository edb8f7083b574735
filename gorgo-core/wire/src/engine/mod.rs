//! Ring 3: engines. One adapter row per engine says where things are and what they are called; the loops ask each
//! replica how far it is ([`probe`]), how busy it is and what it serves ([`scrape`]), and whether it lives
//! ([`health`]). What they find leaves by the [`FactOutlet`](gorgo_observe::FactOutlet), for the facts and for the store at
//! once. The `stream` files and `answer` read what engines answer.

pub mod client;
#[cfg(feature = "kv-events")]
pub mod kv_events;
mod monitor;
mod served;
mod stream;

pub use client::{Endpoint, EndpointError};
pub use monitor::health::Vitals;
pub use monitor::{Senses, Watched};
pub use monitor::{ejection, examine, health, limits, metrics, probe, scrape};
pub use served::{Served, TellServed};
pub use stream::compressed::PackedReader;
pub use stream::events::{Dialect, StreamError};
pub use stream::gaps::Gaps;
pub use stream::whole_response::AnswerReader;
pub use stream::{Observed, StreamReader};
