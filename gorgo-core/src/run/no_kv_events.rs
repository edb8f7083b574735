//! Stand-in for cache events in a gorgo that was built without them. The configuration check reports replicas that name
//! a publisher.

use std::sync::Arc;

use super::fleet::FleetReplica;
use gorgo_routing::model::KvEventStats;
use gorgo_routing::policy::Router;
use gorgo_wire::engine::{ProbeContext, ServedCallback};

/// No subscriptions.
pub(super) struct KvEventFeeds;

/// No counters.
#[derive(Debug)]
pub(super) struct KvEventGauges;

impl KvEventGauges {
    pub(super) fn counts(&self) -> Vec<KvEventStats> {
        Vec::new()
    }
}

impl KvEventFeeds {
    pub(super) fn new(_: &Arc<Router>, _: &[FleetReplica]) -> Self {
        Self
    }

    pub(super) fn gauges(&self) -> KvEventGauges {
        KvEventGauges
    }

    pub(super) fn start(self, _: &ProbeContext) -> Option<ServedCallback> {
        None
    }
}
