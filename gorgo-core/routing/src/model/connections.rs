//! Questions that a decision may ask about the router's connections to the replicas. The data plane answers them; the
//! facts of ring 1 know nothing of sockets.

use std::fmt::Debug;

use super::{ReplicaId, UnixMicros};

/// The connections to the fleet.
pub trait RoundTripEstimator: Debug + Send + Sync {
    /// Round trips from now until a request of `bytes` bytes has arrived at the replica and the first byte of an answer
    /// could be back, on the connection that it would get: at least 1. `None` if nothing is known of the connection.
    fn round_trips(&self, replica: ReplicaId, bytes: u64, at: UnixMicros) -> Option<f64>;
}
