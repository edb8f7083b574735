//! Cache events in a gorgo that was built without them: nobody is listened to. The configuration check says so where
//! somebody is to be.

use std::sync::Arc;

use super::fleet::Member;
use crate::engine::{Senses, TellServed};
use crate::model::KvCount;
use crate::policy::Router;

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
