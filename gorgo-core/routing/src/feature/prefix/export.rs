//! A replica's part of the index → the uses that it consists of → the index of a later run.
//!
//! A use is a path of blocks and the time at which it was last walked; of paths with a common beginning, the newest has
//! it. In newest-first order every use begins where an earlier one of the list passed, or at a first block, so a list
//! that is cut short is still complete. Collecting it holds one shard's lock for some thousand blocks at a time, and
//! never two.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;

use super::index::{NEVER, PrefixIndex, shard_of};
use super::shard::{IndexShard, NIL, PathUse};
use crate::model::{DecisionId, ReplicaId, UnixMicros};

/// Blocks and queue entries visited under one lock: about 0.1 ms.
const STEP: usize = 1_024;

/// Blocks that a replica was believed to hold, used together at one moment and not since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPath {
    /// Time of that use.
    pub at: UnixMicros,
    /// Last decision that used all of them.
    pub decision: DecisionId,
    /// Block before them, which belongs to a newer use of the list; `None`: they begin the prompt.
    pub parent: Option<u64>,
    /// Hashes of the blocks, in order.
    pub blocks: Vec<u64>,
}

/// Result of restoring a list of uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RestoreCounts {
    /// Number of blocks that the replica is believed to hold again.
    pub blocks: u64,
    /// Number of blocks that were not restored: beyond capacity or memory, without their predecessor, or used since.
    pub left_out: u64,
}

impl PrefixIndex {
    /// Uses that a replica is believed to hold, newest first, with at most `most_blocks` blocks.
    #[must_use]
    pub fn export_paths(&self, replica: ReplicaId, most_blocks: usize) -> Vec<SnapshotPath> {
        let mut uses = Vec::new();
        if self.held_blocks.get(replica.index()).is_none() {
            return uses;
        }
        for shard in &self.shards {
            let mut seen = HashSet::new();
            // In steps, with the lock released in between, so that requests do not wait for a snapshot.
            let mut below = Some(NEVER);
            while let Some(limit) = below.filter(|_| seen.len() < most_blocks) {
                below = shard.lock().export_paths(replica.0, limit, &mut seen, &mut uses);
            }
        }
        // Until here `at` holds stamps; the origin makes times of them.
        let origin = self.origin.load(Relaxed);
        uses.iter_mut().for_each(|used| used.at = UnixMicros(origin.saturating_add(used.at.0)));
        uses.sort_by_key(|used| Reverse(used.at));
        let mut left = most_blocks;
        // The first use that does not fit ends the list: later ones may continue it.
        let fits = uses.iter().take_while(|used| {
            let fits = used.blocks.len() <= left;
            left = left.saturating_sub(used.blocks.len());
            fits
        });
        let fits = fits.count();
        uses.truncate(fits);
        uses
    }

    /// Announces that uses from `oldest` on will be restored. Must be called before the first insert, because stamps
    /// count from the first moment known.
    pub fn set_clock_origin(&self, oldest: UnixMicros) {
        let _ = self.origin.compare_exchange(NEVER, oldest.0.saturating_sub(1), Relaxed, Relaxed);
    }

    /// Restores what a replica held, newest use first as [`PrefixIndex::export_paths`] returns it, into its present
    /// contents. Blocks used since are newer and stay so. Uses that do not fit are left out.
    pub fn restore(&self, replica: ReplicaId, uses: &[SnapshotPath]) -> RestoreCounts {
        let mut done = RestoreCounts::default();
        let (Some(held), Some(newest)) = (self.held_blocks.get(replica.index()), uses.first()) else { return done };
        let (purged, capacity) = (&self.purged_through[replica.index()], &self.capacity[replica.index()]);
        let before = purged.load(Relaxed);
        if let Some(oldest) = uses.last() {
            self.set_clock_origin(oldest.at);
        }
        let origin = self.origin.load(Relaxed);
        // Inserts from now on are newer than all of these.
        self.clock.fetch_max(newest.at.0.saturating_sub(origin), Relaxed);
        // First block of the chain of each block: it determines the shard.
        let mut roots: HashMap<u64, u64> = HashMap::new();
        for used in uses {
            let first = used.blocks.first().copied();
            // A use whose predecessor was not restored finds no root, and is left out.
            let root = used.parent.map_or(first, |parent| roots.get(&parent).copied());
            let room = capacity.load(Relaxed).saturating_sub(held.load(Relaxed));
            let fitting = used.blocks.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            let mut taken = 0;
            if let Some(root) = root.filter(|_| fitting > 0) {
                let number = shard_of(root);
                let mut shard = self.shards[number].lock();
                if purged.load(Relaxed) != before {
                    break; // its engine restarted meanwhile: nothing may be restored
                }
                let stamp = used.at.0.saturating_sub(origin);
                let may_grow = |more: usize| self.bytes.load(Relaxed).saturating_add(more) <= self.max_bytes;
                let (walked, added) = shard.graft(used, fitting, replica.0, stamp, may_grow);
                if added > 0 {
                    self.oldest[self.slot(replica, number)].fetch_min(stamp, Relaxed);
                }
                self.report(&mut shard);
                drop(shard);
                roots.extend(used.blocks[..walked].iter().map(|block| (*block, root)));
                taken = added;
            }
            done.blocks += taken as u64;
            done.left_out += (used.blocks.len() - taken) as u64;
        }
        done
    }
}

impl IndexShard {
    /// One step of [`PrefixIndex::export_paths`]: uses below the stamp `below`, newest first, with stamps instead of times.
    /// Returns the stamp below which to go on, or `None` at the end.
    fn export_paths(
        &self,
        replica: u16,
        below: u64,
        seen: &mut HashSet<u64>,
        out: &mut Vec<SnapshotPath>,
    ) -> Option<u64> {
        let uses = &self.lanes[usize::from(replica)].uses;
        let end = uses.partition_point(|entry| entry.stamp < below);
        let mut looked_at = 0;
        for entry in uses.range(..end).rev() {
            if looked_at >= STEP {
                // One above the entry that was not looked at: the next step takes stamps strictly below.
                return Some(entry.stamp + 1);
            }
            looked_at += 1;
            if !self.is_last_use(replica, *entry) {
                continue;
            }
            let mut blocks = Vec::new();
            let mut at = entry.node;
            // Includes blocks that are newer by now and were not seen: between two steps a path may have been used
            // again.
            while at != NIL && seen.insert(self.node(at).hash) {
                blocks.push(self.node(at).hash);
                at = self.node(at).parent;
            }
            blocks.reverse();
            looked_at += blocks.len();
            if !blocks.is_empty() {
                let parent = (at != NIL).then(|| self.node(at).hash);
                let decision = self.node(entry.node).decision;
                out.push(SnapshotPath { at: UnixMicros(entry.stamp), decision, parent, blocks });
            }
        }
        None
    }

    /// Restores the first `fitting` blocks of a use as older than everything that the replica has here. Returns how
    /// many of them the replica holds now, and how many of those it did not hold before.
    fn graft(
        &mut self,
        used: &SnapshotPath,
        fitting: usize,
        replica: u16,
        stamp: u64,
        may_grow: impl Fn(usize) -> bool,
    ) -> (usize, usize) {
        let words = self.words;
        let holds = |shard: &Self, at: u32| shard.node(at).holders.stamp(replica, words).is_some();
        if self.lanes[usize::from(replica)].uses.front().is_some_and(|first| first.stamp <= stamp) {
            return (0, 0); // the queue would be out of order
        }
        let mut at = match used.parent.map(|parent| self.find(NIL, parent)) {
            None => NIL,
            Some(Some(parent)) if holds(self, parent) => parent,
            Some(_) => return (0, 0),
        };
        let (mut walked, mut added) = (0, 0_u32);
        for &hash in &used.blocks[..fitting.min(used.blocks.len())] {
            let found = match self.find(at, hash) {
                Some(found) if self.node(found).parent == at => found,
                Some(_) => break, // two blocks with the same hash
                // No eviction: restored blocks are older than anything that would have to go.
                None if !self.has_room(&may_grow) => break,
                None => match self.add(at, hash, used.decision, &may_grow) {
                    Some(found) => found,
                    None => break,
                },
            };
            if !holds(self, found) {
                let node = self.node_mut(found);
                node.decision = node.decision.max(used.decision);
                let before = node.holders.heap_bytes();
                node.holders.touch(replica, stamp, words);
                let grown = node.holders.heap_bytes() - before;
                self.heap_bytes += grown;
                added += 1;
            }
            (at, walked) = (found, walked + 1);
        }
        if added > 0 {
            self.lanes[usize::from(replica)].blocks += added;
            self.held[usize::from(replica)].fetch_add(u64::from(added), Relaxed);
            self.push_oldest_use(replica, PathUse { stamp, node: at });
        }
        (walked, added as usize)
    }
}
