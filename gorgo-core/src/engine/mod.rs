//! Ring 3: engines. One adapter row per engine says where things are and what they are called; the loops ask each
//! replica how far it is ([`probe`]), how busy it is and what it serves ([`scrape`]), and whether it lives
//! ([`health`]). What they find leaves as [`Event`](crate::model::Event)s for the facts and as
//! [`Record`](crate::model::Record)s for the store.

pub mod adapter;
pub mod client;
pub mod health;
pub mod metrics;
pub mod probe;
pub mod scrape;
pub mod simulated;
pub mod watch;

#[cfg(test)]
mod mock;

pub use adapter::{Adapter, ENGINES, adapter};
pub use client::{Endpoint, EndpointError};
pub use health::Vitals;
pub use watch::{Senses, Watched};
