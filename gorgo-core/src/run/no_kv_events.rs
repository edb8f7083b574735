//! Stand-in for cache events in a gorgo that was built without them. The configuration check reports replicas that name
//! a publisher.

use std::sync::Arc;

use super::fleet::Member;
use gorgo_routing::model::KvCount;
use gorgo_routing::policy::Router;
use gorgo_wire::engine::{Senses, TellServed};

/// No subscriptions.
pub(super) struct Caches;

/// No counters.
#[derive(Debug)]
pub(super) struct Heard;

impl Heard {
    pub(super) fn counts(&self) -> Vec<KvCount> {
        Vec::new()
    }
}

impl Caches {
    pub(super) fn new(_: &Arc<Router>, _: &[Member]) -> Self {
        Self
    }

    pub(super) fn heard(&self) -> Heard {
        Heard
    }

    pub(super) fn start(self, _: &Senses) -> Option<TellServed> {
        None
    }
}
