//! Ring 2: kinds, policies, decisions.

mod router;

pub use router::{DecideError, ReadError, Reservation, Routed, Router, RouterSetup};
