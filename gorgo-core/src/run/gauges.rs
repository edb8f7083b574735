//! Gauges of the metrics page, read when the page is requested.

use std::sync::Arc;

use super::kv_events::Heard;
use gorgo_observe::meter::{Gauges, ReplicaLoad, StoreState};
use gorgo_routing::model::{KvCount, PluginCount};
use gorgo_routing::policy::Router;
use gorgo_store::Sink;
use gorgo_wire::edge::UnreadHints;

/// Gauges read from the same facts that decisions use.
#[derive(Debug)]
pub(super) struct LiveGauges {
    pub(super) router: Arc<Router>,
    pub(super) sink: Sink,
    pub(super) unread_hints: UnreadHints,
    pub(super) heard: Heard,
}

impl Gauges for LiveGauges {
    fn loads(&self) -> Vec<ReplicaLoad> {
        self.router
            .fleet()
            .iter()
            .map(|replica| {
                let (inflight, queued_tokens, queued_uncached_tokens) = self.router.load(replica.id);
                ReplicaLoad {
                    replica: Arc::clone(&replica.name),
                    inflight: u64::from(inflight),
                    queued_tokens,
                    queued_uncached_tokens,
                    // The same condition as `/ready` (`welcomes`), for one replica.
                    available: self.router.replica_state(replica.id).is_up() && !self.router.is_draining(replica.id),
                    held: u64::from(self.router.held(replica.id)),
                }
            })
            .collect()
    }

    fn caches(&self) -> Vec<KvCount> {
        self.heard.counts()
    }

    fn plugins(&self) -> Vec<PluginCount> {
        self.router.policies().loader.as_ref().map_or_else(Vec::new, |loader| loader.counts())
    }

    fn unread_hints(&self) -> u64 {
        self.unread_hints.get()
    }

    fn store(&self) -> StoreState {
        StoreState { dropped_rows: self.sink.dropped_rows(), queued_records: self.sink.queued_rows() }
    }
}
