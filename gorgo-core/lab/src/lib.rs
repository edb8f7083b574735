//! The lab: recorded and generated traffic, engine constants fitted to measurements, and a simulated world of engines
//! and links in which the real policy core routes in virtual time.

pub mod calibrate;
mod records;
pub mod sim;
pub mod trace;
