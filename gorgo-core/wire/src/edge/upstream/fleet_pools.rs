//! The data plane's implementation of [`RoundTripEstimator`], which decisions query: a look at what the pools know, without a
//! system call.

use std::sync::Arc;

use crate::edge::DataPlane;
use crate::edge::upstream::pool::ConnectionPool;
use crate::edge::upstream::slow_start::kernel_restarts;
use gorgo_routing::model::{ReplicaId, RoundTripEstimator, UnixMicros};

#[derive(Debug)]
struct FleetPools {
    /// By replica id.
    pools: Vec<Arc<ConnectionPool>>,
    restarts: bool,
}

impl DataPlane {
    /// State of the connections to the fleet. Once a replica was asked about, the window of its connections is read
    /// from the kernel with every response; if no policy asks, that system call is saved.
    pub fn connections(&self) -> Arc<dyn RoundTripEstimator> {
        let pools: Vec<_> = self.replicas.iter().map(|upstream| Arc::clone(&upstream.pool)).collect();
        Arc::new(FleetPools { pools, restarts: kernel_restarts() })
    }
}

impl RoundTripEstimator for FleetPools {
    fn round_trips(&self, replica: ReplicaId, bytes: u64, at: UnixMicros) -> Option<f64> {
        let pool = self.pools.get(replica.index())?;
        pool.sample_always();
        Some(pool.round_trips(bytes, at, self.restarts))
    }
}
