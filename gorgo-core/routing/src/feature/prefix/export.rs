//! A replica's part of the index → the uses it is made of → the index of a later run.
//!
//! A use is a path of blocks and when it was last walked; of paths that share a beginning, the newest has it. Newest
//! first, every use begins where an earlier one of the list passed, or at a first block, so cutting the list short
//! keeps it whole. Taking it down holds one shard's lock for some thousand blocks at a time, and never two.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;

use super::index::{NEVER, PrefixIndex, shard_of};
use super::shard::{NIL, Shard, Use};
use crate::model::{At, DecisionId, ReplicaId};

/// Blocks and queue entries looked at under one lock: some 0.1 ms.
const STEP: usize = 1_024;

/// Blocks that a replica was believed to hold, used at one moment and not since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    /// When.
    pub at: At,
    /// By the last decision that used all of them.
    pub decision: DecisionId,
    /// The block before them, which a newer use of the list has; `None`: they begin the prompt.
    pub parent: Option<u64>,
    /// Their hashes, in order.
    pub blocks: Vec<u64>,
}

/// What became of a list of uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restored {
    /// Blocks that the replica is believed to hold again.
    pub blocks: u64,
    /// Blocks that were not taken: beyond the capacity or the memory, without the block before them, used since.
    pub left_out: u64,
}

impl PrefixIndex {
    /// What a replica is believed to hold, newest use first, at most `most_blocks` blocks.
    #[must_use]
    pub fn remember(&self, replica: ReplicaId, most_blocks: usize) -> Vec<Remembered> {
        let mut uses = Vec::new();
        if self.held.get(replica.index()).is_none() {
            return uses;
        }
        for shard in &self.shards {
            let mut seen = HashSet::new();
            let mut below = Some(NEVER);
            while let Some(limit) = below.filter(|_| seen.len() < most_blocks) {
                below = shard.lock().remember(replica.0, limit, &mut seen, &mut uses);
            }
        }
        // Stamps so far.
        let origin = self.origin.load(Relaxed);
        uses.iter_mut().for_each(|used| used.at = At(origin.saturating_add(used.at.0)));
        uses.sort_by_key(|used| Reverse(used.at));
        let mut left = most_blocks;
        let fits = uses.iter().take_while(|used| {
            let fits = used.blocks.len() <= left;
            left = left.saturating_sub(used.blocks.len());
            fits
        });
        let fits = fits.count();
        uses.truncate(fits);
        uses
    }

    /// Says that uses from `oldest` on will come back. To be called before the first insert: moments are counted from
    /// the first one known.
    pub fn begin_at(&self, oldest: At) {
        let _ = self.origin.compare_exchange(NEVER, oldest.0.saturating_sub(1), Relaxed, Relaxed);
    }

    /// Puts back what a replica held, newest use first as [`PrefixIndex::remember`] gives it, into what it holds by
    /// now; what was used since is newer and stays so. What does not fit together is left out.
    pub fn restore(&self, replica: ReplicaId, uses: &[Remembered]) -> Restored {
        let mut done = Restored::default();
        let (Some(held), Some(newest)) = (self.held.get(replica.index()), uses.first()) else { return done };
        let (purged, capacity) = (&self.purged[replica.index()], &self.capacity[replica.index()]);
        let before = purged.load(Relaxed);
        if let Some(oldest) = uses.last() {
            self.begin_at(oldest.at);
        }
        let origin = self.origin.load(Relaxed);
        // Whoever inserts from now on is newer than all of these.
        self.clock.fetch_max(newest.at.0.saturating_sub(origin), Relaxed);
        // Which first block each block hangs on: it names the shard.
        let mut roots: HashMap<u64, u64> = HashMap::new();
        for used in uses {
            let first = used.blocks.first().copied();
            let root = used.parent.map_or(first, |parent| roots.get(&parent).copied());
            let room = capacity.load(Relaxed).saturating_sub(held.load(Relaxed));
            let fitting = used.blocks.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            let mut taken = 0;
            if let Some(root) = root.filter(|_| fitting > 0) {
                let number = shard_of(root);
                let mut shard = self.shards[number].lock();
                if purged.load(Relaxed) != before {
                    break; // its engine restarted meanwhile: nothing comes back
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

impl Shard {
    /// One step of [`PrefixIndex::remember`]: uses below the stamp `below`, newest first, with stamps for moments.
    /// Gives the stamp to go on below, `None` at the end.
    fn remember(&self, replica: u16, below: u64, seen: &mut HashSet<u64>, out: &mut Vec<Remembered>) -> Option<u64> {
        let uses = &self.lanes[usize::from(replica)].uses;
        let end = uses.partition_point(|entry| entry.stamp < below);
        let mut looked_at = 0;
        for entry in uses.range(..end).rev() {
            if looked_at >= STEP {
                return Some(entry.stamp + 1);
            }
            looked_at += 1;
            if !self.is_last_use(replica, *entry) {
                continue;
            }
            let mut blocks = Vec::new();
            let mut at = entry.node;
            // Also what is newer by now and was not seen: between two steps a path may have been walked again.
            while at != NIL && seen.insert(self.node(at).hash) {
                blocks.push(self.node(at).hash);
                at = self.node(at).parent;
            }
            blocks.reverse();
            looked_at += blocks.len();
            if !blocks.is_empty() {
                let parent = (at != NIL).then(|| self.node(at).hash);
                let decision = self.node(entry.node).decision;
                out.push(Remembered { at: At(entry.stamp), decision, parent, blocks });
            }
        }
        None
    }

    /// Puts a use back before all that the replica has here: its first `fitting` blocks. Gives how many of them the
    /// replica holds now, and how many only now.
    fn graft(
        &mut self,
        used: &Remembered,
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
                Some(_) => break, // two blocks of one hash
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
            self.push_oldest_use(replica, Use { stamp, node: at });
        }
        (walked, added as usize)
    }
}
