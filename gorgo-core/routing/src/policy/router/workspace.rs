//! Where decisions are worked out: columns that are filled anew for each and never freed.

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use super::request::Reach;
use crate::model::{Candidates, Replica, ReplicaId};
use crate::policy::Scratch;

/// One decision's columns.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    pub(super) candidates: Candidates,
    pub(super) scratch: Scratch,
    /// Leading blocks held, per replica.
    pub(super) blocks: Vec<u32>,
    /// Round trips that the request needs, per replica.
    pub(super) trips: Vec<Option<f64>>,
    /// Turns of the policy's shadows, as it lists them.
    pub(super) shadow_turns: Vec<u64>,
    /// What never changes: who is in which row.
    columns: Columns,
}

#[derive(Debug, Clone, Default)]
struct Columns {
    replica: Vec<ReplicaId>,
    name_hash: Vec<u64>,
    region: Vec<u16>,
    windows: usize,
}

impl Workspace {
    /// Nothing known but who the candidates are and how much of the prompt each holds (`blocks`).
    pub(super) fn begin(&mut self, reach: Reach) {
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

/// As many workspaces as decisions were ever being made at once. A decision that fails lets its own go.
#[derive(Debug)]
pub(super) struct Workspaces {
    free: Mutex<Vec<Workspace>>,
    columns: Columns,
}

impl Workspaces {
    /// For this fleet; row *i* is replica *i*.
    pub(super) fn new(fleet: &[Replica], windows: usize) -> Self {
        let mut regions: Vec<&str> = Vec::new();
        let mut region_of = |name| {
            let place = regions.iter().position(|known| *known == name).unwrap_or_else(|| {
                regions.push(name);
                regions.len() - 1
            });
            u16::try_from(place).unwrap_or(u16::MAX)
        };
        let columns = Columns {
            replica: fleet.iter().map(|replica| replica.id).collect(),
            name_hash: fleet.iter().map(|replica| name_hash(&replica.name)).collect(),
            region: fleet.iter().map(|replica| region_of(&*replica.region)).collect(),
            windows,
        };
        Self { free: Mutex::new(Vec::new()), columns }
    }

    /// A workspace of this fleet.
    pub(super) fn take(&self) -> Workspace {
        let kept = self.free.lock().pop();
        kept.unwrap_or_else(|| {
            let blocks = vec![0; self.columns.replica.len()];
            let trips = vec![None; blocks.len()];
            Workspace { blocks, trips, columns: self.columns.clone(), ..Workspace::default() }
        })
    }

    /// Keeps a workspace for the next decision.
    pub(super) fn put(&self, work: Workspace) {
        self.free.lock().push(work);
    }
}

/// The same for a name in every process and version: sessions must find their replica again after a restart.
fn name_hash(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}
