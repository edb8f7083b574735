//! Cache events in a gorgo that was built without them: nobody is listened to. The configuration check says so where
//! somebody is to be.

use std::sync::Arc;

use super::fleet::Member;
use gorgo_routing::model::KvCount;
use gorgo_routing::policy::Router;
use gorgo_wire::engine::{Senses, TellServed};

/// Nobody.
pub(super) struct Caches;

/// Nothing.
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
