//! Gauges of the metrics page, read when the page is requested.

use std::sync::Arc;

use super::kv_events::KvEventGauges;
use gorgo_observe::meter::{GaugeSource, ReplicaLoad, StoreState};
use gorgo_routing::model::{KvEventStats, PluginCounts};
use gorgo_routing::policy::Router;
use gorgo_store::HistorySink;
use gorgo_wire::edge::UnreadHints;

/// Gauges read from the same facts that decisions use.
#[derive(Debug)]
pub(super) struct LiveGauges {
    pub(super) router: Arc<Router>,
    pub(super) sink: HistorySink,
    pub(super) unread_hints: UnreadHints,
    pub(super) heard: KvEventGauges,
}

impl GaugeSource for LiveGauges {
    fn loads(&self) -> Vec<ReplicaLoad> {
        self.router
            .fleet()
            .iter()
            .map(|replica| {
                let (inflight, queued_tokens, queued_uncached_tokens) = self.router.load_totals(replica.id);
                ReplicaLoad {
                    replica: Arc::clone(&replica.name),
                    inflight: u64::from(inflight),
                    queued_tokens,
                    queued_uncached_tokens,
                    // The same condition as `/ready` (`welcomes`), for one replica.
                    available: self.router.replica_state(replica.id).is_up() && !self.router.is_draining(replica.id),
                    waiting: u64::from(self.router.waiting_requests(replica.id)),
                }
            })
            .collect()
    }

    fn caches(&self) -> Vec<KvEventStats> {
        self.heard.counts()
    }

    fn plugins(&self) -> Vec<PluginCounts> {
        self.router.policies().loader.as_ref().map_or_else(Vec::new, |loader| loader.counts())
    }

    fn unread_hints(&self) -> u64 {
        self.unread_hints.get()
    }

    fn store(&self) -> StoreState {
        StoreState { dropped_rows: self.sink.dropped_rows(), queued_records: self.sink.queued_rows() }
    }
}
