//! Ring 3: what differs from engine to engine.

pub mod simulated;
