//! The simulated world: a client that replays a trace, the real router, links with drift, and simulated engines, as a
//! discrete-event simulation on virtual time.
//!
//! ```text
//! Workload ─ rows ─→ client (open loop, cap) ─→ Router::decide ─→ path ─→ Engine ─→ path ─→ Sample
//!                                                  ↑ probes, reports, each delayed by its path
//! ```
//!
//! The router is that of `serve`, called in the same order, and it knows only what a router can know. All randomness
//! comes from the seed: the same setup, policy and seed give the same samples, bit for bit. The state of the network
//! (drift, spikes, jitter of a request) depends only on the seed, not on the policy, so that policies are compared
//! under the same conditions.
//!
//! If the policy has a tuner, that tuner runs as well, on records that the world writes as `serve` does (`recorder`).
//!
//! Not modelled, although `serve` does it: hedging, the kernel's RTT estimate, connection set-up, tokenizing.

mod admission;
mod clairvoyant;
mod client;
mod engine_output;
mod event_queue;
mod health;
mod live_request;
mod monitoring;
mod network;
mod randomness;
mod recorder;
mod replica_spec;
mod run;
mod scenario;
mod workload;

pub use network::NetworkModel;
pub use recorder::TuningSummary;
pub use replica_spec::{ReplicaSpec, ReplicaSpecError, replica_specs};
pub use run::{
    DecisionMaker, START_TIME, SimulateError, SimulationResult, SimulationSetup, simulate, simulate_recorded,
};
pub use scenario::{FaultKind, RouterPace, Scenario, ScenarioError, ScenarioFault};
pub use workload::SimulatedWorkload;

#[cfg(test)]
mod tests;
