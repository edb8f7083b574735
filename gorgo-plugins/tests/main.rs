//! Plugins as they are built and loaded: the shipped ones, the examples, and those that misbehave.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may fail loudly")]

mod agree;
mod alike;
mod bench;
mod guide;
mod header;
mod hostile;
mod refused;
mod replaced;
mod shipped;
