//! Ring 3: engines. One adapter row per engine holds paths and metric names; the loops measure each replica's round
//! trip ([`probe`]), load and models ([`scrape`]), and health ([`health`]). Results go through the
//! [`FactOutlet`](gorgo_observe::FactOutlet), to the facts and to the store at once. The `stream` files and `answer`
//! read the responses of engines.

pub mod client;
#[cfg(feature = "kv-events")]
pub mod kv_events;
mod monitor;
mod served;
mod stream;

pub use client::{EndpointError, HttpEndpoint};
pub use monitor::health::ReplicaLiveness;
pub use monitor::{MonitoredReplica, ProbeContext};
pub use monitor::{ejection, examine, health, limits, metrics, probe, scrape};
pub use served::{ServedCallback, ServedRequest};
pub use stream::compressed::CompressedStreamReader;
pub use stream::events::{StreamDialect, StreamError};
pub use stream::gaps::TokenGaps;
pub use stream::whole_response::UsageReader;
pub use stream::{StreamObservation, StreamReader};
