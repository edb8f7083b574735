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
//! If the policy has a tuner, that tuner runs as well, on records that the world writes as `serve` does ([`book`]).
//!
//! Not modelled, although `serve` does it: hedging, the kernel's RTT estimate, connection set-up, tokenizing.

mod agenda;
mod answers;
mod book;
mod chance;
mod clairvoyant;
mod client;
mod fleet;
mod health;
mod live;
mod network;
mod run;
mod scenario;
mod turns;
mod watch;
mod workload;

pub use book::TuningSummary;
pub use fleet::{ReplicaSpec, ReplicaSpecError, replica_specs};
pub use network::NetworkModel;
pub use run::{
    DecisionMaker, START_TIME, SimulateError, SimulationResult, SimulationSetup, simulate, simulate_recorded,
};
pub use scenario::{FaultKind, RouterPace, Scenario, ScenarioError, ScenarioFault};
pub use workload::SimulatedWorkload;

#[cfg(test)]
mod tests;
