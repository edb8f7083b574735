//! Ring 2: the simulated world: an inference engine, the link to it, and the clock they live on.
//!
//! Everything here is a pure state machine on virtual time: no I/O, no wall clock, no runtime, and in engines no
//! randomness. The HTTP shell of `engine::simulated` drives an [`Engine`] on real time; [`world`] drives many of them,
//! with the router and its client, on virtual time.

mod batch;
mod cache;
mod engine;
mod job;
mod link;
mod profile;
mod state;
pub mod world;

pub use engine::{Engine, EngineError, Numbers, Totals};
pub use job::{FinishReason, Job, Output};
pub use link::{Link, LinkError};
pub use profile::{BeyondGraph, PAGE_TOKENS, PROFILES, PrefixCache, Profile, Reserve, Schedule};

#[cfg(test)]
mod tests;
