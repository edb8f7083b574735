//! The data plane's implementation of [`Connections`], which decisions query: a look at what the pools know, without a
//! system call.

use std::sync::Arc;

use crate::edge::Data;
use crate::edge::upstream::pool::Pool;
use crate::edge::upstream::slow_start::kernel_restarts;
use gorgo_routing::model::{At, Connections, ReplicaId};

#[derive(Debug)]
struct Held {
    /// By replica id.
    pools: Vec<Arc<Pool>>,
    restarts: bool,
}

impl Data {
    /// State of the connections to the fleet. Once a replica was asked about, the window of its connections is read
    /// from the kernel with every response; if no policy asks, that system call is saved.
    pub fn connections(&self) -> Arc<dyn Connections> {
        let pools: Vec<_> = self.upstreams.iter().map(|upstream| Arc::clone(&upstream.pool)).collect();
        Arc::new(Held { pools, restarts: kernel_restarts() })
    }
}

impl Connections for Held {
    fn round_trips(&self, replica: ReplicaId, bytes: u64, at: At) -> Option<f64> {
        let pool = self.pools.get(replica.index())?;
        pool.watch();
        Some(pool.round_trips(bytes, at, self.restarts))
    }
}
