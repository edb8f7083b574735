//! Ring 2: the simulated world: an inference engine, the link to it, and the clock they live on.
//!
//! Everything here is a pure state machine on virtual time: no I/O, no wall clock, no runtime, no randomness. The HTTP
//! shell of `engine::simulated` drives an [`Engine`] on real time; `simulate` drives many on a [`VirtualClock`].

mod batch;
mod cache;
mod clock;
mod engine;
mod job;
mod link;
mod profile;
mod state;

pub use clock::VirtualClock;
pub use engine::{Engine, EngineError, Numbers, Totals};
pub use job::{FinishReason, Job, Output};
pub use link::{Link, LinkError};
pub use profile::{BeyondGraph, PAGE_TOKENS, PROFILES, PrefixCache, Profile, Reserve, Schedule};

#[cfg(test)]
mod tests;
