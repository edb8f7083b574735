//! Facts per replica, each a pure state machine fed with events and a time.

pub mod prefix;
pub mod tokens;
