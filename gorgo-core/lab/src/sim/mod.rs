//! The simulated world: an inference engine, the link to it, and many of both under a router.
//!
//! Everything here is a pure state machine on virtual time: no I/O, no wall clock, no async runtime, and no randomness
//! in engines. The HTTP server of the crate `gorgo-simulated` drives an [`SimulatedEngine`] on real time; [`world`] drives many
//! of them, with the router and its client, on virtual time.

mod batch;
mod cache;
mod engine;
mod job;
mod link;
mod profile;
mod state;
pub mod world;

pub use engine::{EngineError, EngineStats, EngineTotals, SimulatedEngine};
pub use job::{EngineOutput, FinishReason, SimulatedRequest};
pub use link::{LinkError, SimulatedLink};
pub use profile::{AnswerReserve, CudaGraphCliff, EngineProfile, PAGE_TOKENS, PROFILES, PrefixCacheKind, StepSchedule};

#[cfg(test)]
mod tests;
