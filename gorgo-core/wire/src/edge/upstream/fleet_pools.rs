//! The data plane's answer to what a decision may ask of connections ([`Connections`]): nothing but a look at what the
//! pools hold, no system call.

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
    /// What is known of the connections to the fleet. A replica that was once asked about has each connection's window
    /// read from the kernel with every answer from then on; where no policy asks, that system call is saved.
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
