//! The data plane's answer to what a decision may ask of connections ([`Connections`]): nothing but a look at what the
//! pools hold, no system call.

use std::sync::Arc;

use super::Data;
use super::pool::Pool;
use super::slow_start::kernel_restarts;
use crate::model::{At, Connections, ReplicaId};

#[derive(Debug)]
struct Held {
    /// By replica id.
    pools: Vec<Arc<Pool>>,
    restarts: bool,
}

impl Data {
    /// What is known of the connections to the fleet. From now on every connection's window is read from the kernel with
    /// each answer: ask for it only where a policy has a use for it.
    pub fn connections(&self) -> Arc<dyn Connections> {
        let pools: Vec<_> = self.upstreams.iter().map(|upstream| Arc::clone(&upstream.pool)).collect();
        pools.iter().for_each(|pool| pool.watch());
        Arc::new(Held { pools, restarts: kernel_restarts() })
    }
}

impl Connections for Held {
    fn round_trips(&self, replica: ReplicaId, bytes: u64, at: At) -> Option<f64> {
        Some(self.pools.get(replica.index())?.round_trips(bytes, at, self.restarts))
    }
}
