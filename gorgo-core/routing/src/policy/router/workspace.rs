//! Working memory of decisions: columns that are filled again for each and never freed.

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use super::request::BlockTokenScale;
use crate::model::{Candidates, Replica, ReplicaId};
use crate::policy::DecisionScratch;

/// One decision's columns.
#[derive(Debug, Default)]
pub(super) struct DecisionWorkspace {
    pub(super) candidates: Candidates,
    pub(super) scratch: DecisionScratch,
    /// Leading blocks held, per replica.
    pub(super) blocks: Vec<u32>,
    /// Round trips that the request needs, per replica.
    pub(super) trips: Vec<Option<f64>>,
    /// Turns of the policy's shadows, in the policy's order.
    pub(super) shadow_turns: Vec<u64>,
    /// Columns that never change: the replica of each row.
    columns: ReplicaColumns,
}

#[derive(Debug, Clone, Default)]
struct ReplicaColumns {
    replica: Vec<ReplicaId>,
    name_hash: Vec<u64>,
    region: Vec<u16>,
    windows: usize,
}

impl DecisionWorkspace {
    /// Resets all facts except the candidates' identities and the part of the prompt that each has cached (`blocks`).
    pub(super) fn begin(&mut self, reach: BlockTokenScale) {
        let Self { candidates, columns, blocks, .. } = self;
        candidates.reset(columns.replica.len(), columns.windows);
        candidates.replica.copy_from_slice(&columns.replica);
        candidates.name_hash.copy_from_slice(&columns.name_hash);
        candidates.region.copy_from_slice(&columns.region);
        for (cached, blocks) in candidates.cached_tokens.iter_mut().zip(blocks) {
            *cached = reach.tokens(*blocks);
        }
    }
}

/// As many workspaces as there ever were decisions at once. A decision that fails drops its workspace.
#[derive(Debug)]
pub(super) struct WorkspacePool {
    free: Mutex<Vec<DecisionWorkspace>>,
    columns: ReplicaColumns,
}

impl WorkspacePool {
    /// Makes the columns for this fleet; row *i* is replica *i*.
    pub(super) fn new(fleet: &[Replica], windows: usize) -> Self {
        let mut regions: Vec<&str> = Vec::new();
        let mut region_of = |name| {
            let place = regions.iter().position(|known| *known == name).unwrap_or_else(|| {
                regions.push(name);
                regions.len() - 1
            });
            // A fleet has at most 65,536 replicas, so every region has an index of its own.
            u16::try_from(place).unwrap_or(u16::MAX)
        };
        let columns = ReplicaColumns {
            replica: fleet.iter().map(|replica| replica.id).collect(),
            name_hash: fleet.iter().map(|replica| name_hash(&replica.name)).collect(),
            region: fleet.iter().map(|replica| region_of(&*replica.region)).collect(),
            windows,
        };
        Self { free: Mutex::new(Vec::new()), columns }
    }

    /// A workspace of this fleet.
    pub(super) fn take(&self) -> DecisionWorkspace {
        // The lock is held for the pop alone: a new workspace allocates, and other decisions should not wait for
        // that.
        let kept = self.free.lock().pop();
        kept.unwrap_or_else(|| {
            let blocks = vec![0; self.columns.replica.len()];
            let trips = vec![None; blocks.len()];
            DecisionWorkspace { blocks, trips, columns: self.columns.clone(), ..DecisionWorkspace::default() }
        })
    }

    /// Keeps a workspace for the next decision.
    pub(super) fn put(&self, work: DecisionWorkspace) {
        self.free.lock().push(work);
    }
}

/// Hash that is the same for a name in every process and version: sessions must find their replica again after a
/// restart.
fn name_hash(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}
