//! The simulated world: a client that replays a trace, the real router, links that drift, and simulated engines, as
//! discrete events on virtual time.
//!
//! ```text
//! Workload ─ rows ─→ client (open loop, cap) ─→ Router::decide ─→ path ─→ Engine ─→ path ─→ Sample
//!                                                  ↑ probes, reports, each as late as its path makes it
//! ```
//!
//! The router in it is the one of `serve`, called in the same order, and it knows only what a router can know. All
//! randomness comes from the seed: the same setup, policy and seed give the same samples, bit for bit. What happens on
//! the network (drift, spikes, jitter of a request) depends on the seed alone and not on the policy, so policies are
//! compared in the same weather.
//!
//! Where its policy is tuned, the same tuner tunes it, on records that the world makes as `serve` does (`book`).
//!
//! Not modelled, though `serve` does it: hedging, the kernel's RTT estimate, connection set-up, tokenizing.

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

pub use book::Tuning;
pub use fleet::{Member, MemberError, members};
pub use network::Network;
pub use run::{BEGINNING, Chooser, Run, Setup, SimulateError, simulate, simulate_recorded};
pub use scenario::{Fault, FaultKind, RouterPace, Scenario, ScenarioError};
pub use workload::Workload;

#[cfg(test)]
mod tests;
