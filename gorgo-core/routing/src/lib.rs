//! The pure policy core: everything from a configuration and a request's bytes to the choice of a replica.
//!
//! ```text
//! request → parse → feature → score → constrain → pick
//!            └────────────── policy::decide ─────────┘
//! ```
//!
//! No runtime, no sockets, no disk, no clock: time, randomness and facts are arguments, so that a decision can be
//! repeated from its stored rows and simulated as it is served.

pub mod config;
pub mod constrain;
pub mod expr;
pub mod feature;
pub mod model;
pub mod parse;
pub mod pick;
pub mod policy;
pub mod score;
pub mod tune;
