//! One shard of the index: a forest of blocks, and per replica a queue of uses from the oldest to the newest.
//!
//! Two invariants carry all of it. *Closed*: who holds a block holds the blocks before it, so a block nobody holds has
//! no children and can go. *Dated*: a use stamps the whole path to its last block, so a parent is never older than its
//! child. A queue therefore needs one entry per use, not per block: the oldest entry whose last block still has its
//! stamp is the least recently used path, and taking its blocks from the deep end upwards, as long as the stamp is the
//! entry's, is exactly least-recently-used eviction with the deepest block first. Entries whose block was used again
//! are stale and are dropped when met.

use std::collections::VecDeque;

use hashbrown::HashTable;

use super::holders::Holders;
use crate::model::DecisionId;

/// No block.
pub(super) const NIL: u32 = u32::MAX;

/// One block: 64 bytes.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) hash: u64,
    /// The last decision that used it.
    pub(super) decision: DecisionId,
    pub(super) holders: Holders,
    pub(super) parent: u32,
    /// The child used last; the others follow by `next`. Most blocks have one child, which a walk finds without hashing.
    pub(super) child: u32,
    /// The next sibling; in a free slot, the next free slot.
    pub(super) next: u32,
    pub(super) prev: u32,
}

/// A use of the path that ends in `node`.
#[derive(Debug, Clone, Copy)]
struct Use {
    stamp: u64,
    node: u32,
}

/// What a replica has in this shard.
#[derive(Debug, Default)]
pub(super) struct Lane {
    uses: VecDeque<Use>,
    pub(super) blocks: u32,
}

/// What a touch did.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Touched {
    /// Leading blocks that the replica held before.
    pub(super) held: u32,
    /// Blocks that it holds only now.
    pub(super) added: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) nodes: Vec<Node>,
    free: u32,
    pub(super) live: usize,
    table: HashTable<u32>,
    pub(super) lanes: Vec<Lane>,
    /// 64-bit words of a bitmap of replicas.
    pub(super) words: usize,
    /// Heap bytes of holders and queues.
    heap_bytes: usize,
    /// Block × replica pairs that were evicted for room.
    pub(super) evictions: u64,
    /// The sum over shards that this one last reported itself in.
    pub(super) reported_bytes: usize,
}

impl Shard {
    pub(super) fn new(replicas: usize) -> Self {
        Self {
            nodes: Vec::new(),
            free: NIL,
            live: 0,
            table: HashTable::new(),
            lanes: std::iter::repeat_with(Lane::default).take(replicas).collect(),
            words: replicas.div_ceil(64),
            heap_bytes: 0,
            evictions: 0,
            reported_bytes: 0,
        }
    }

    /// Memory held, bytes: capacities, not contents.
    pub(super) fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + self.table.allocation_size()
            + self.heap_bytes
            + self.lanes.capacity() * size_of::<Lane>()
    }

    pub(super) fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    /// The block of that hash after block `parent` (`NIL`: a first block).
    pub(super) fn find(&self, parent: u32, hash: u64) -> Option<u32> {
        if parent != NIL {
            let child = self.node(parent).child;
            if child != NIL && self.node(child).hash == hash {
                return Some(child);
            }
        }
        self.table.find(hash, |&at| self.node(at).hash == hash).copied()
    }

    /// Longest match for all replicas: see `PrefixIndex::lookup`. `active` is scratch, `words` long.
    pub(super) fn lookup(&self, chain: &[u64], active: &mut [u64], out: &mut [u32]) -> Option<(DecisionId, u32)> {
        let (mut at, mut depth, mut last) = (NIL, 0_u32, None);
        for &hash in chain {
            let Some(found) = self.find(at, hash) else { break };
            let node = self.node(found);
            if depth == 0 {
                active.fill(u64::MAX);
            }
            node.holders.narrow(active, depth, out);
            if active.iter().all(|word| *word == 0) {
                break;
            }
            at = found;
            depth += 1;
            last = Some(node.decision);
        }
        for (word, live) in active.iter().enumerate() {
            let mut live = if depth == 0 { 0 } else { *live };
            while live != 0 {
                if let Some(blocks) = out.get_mut(word * 64 + live.trailing_zeros() as usize) {
                    *blocks = depth;
                }
                live &= live - 1;
            }
        }
        last.map(|decision| (decision, depth))
    }

    /// Notes that `replica` uses the whole chain. `may_grow` says whether so many more bytes fit; where they do not,
    /// the shard's oldest blocks make room, and where there are none the rest of the chain is left out.
    pub(super) fn touch(
        &mut self,
        chain: &[u64],
        replica: u16,
        stamp: u64,
        decision: DecisionId,
        may_grow: impl Fn(usize) -> bool,
    ) -> Touched {
        let mut touched = Touched::default();
        let mut at = NIL;
        for &hash in chain {
            let found = match self.find(at, hash) {
                Some(found) => found,
                None => match self.add(at, hash, decision, &may_grow) {
                    Some(added) => added,
                    None => break,
                },
            };
            self.move_to_front(found);
            let words = self.words;
            let node = self.node_mut(found);
            node.decision = decision;
            let before = node.holders.heap_bytes();
            if node.holders.touch(replica, stamp, words) {
                let grown = node.holders.heap_bytes() - before;
                self.heap_bytes += grown;
                touched.added += 1;
            } else if touched.added == 0 {
                touched.held += 1;
            }
            at = found;
        }
        self.lanes[usize::from(replica)].blocks += touched.added;
        if at != NIL {
            self.push_use(replica, Use { stamp, node: at });
        }
        touched
    }

    fn push_use(&mut self, replica: u16, entry: Use) {
        let lane = &mut self.lanes[usize::from(replica)];
        let before = lane.uses.capacity();
        lane.uses.push_back(entry);
        if lane.uses.len() > 2 * lane.blocks as usize + 16 {
            // Most are stale by now: at most one per block is not.
            let mut uses = std::mem::take(&mut self.lanes[usize::from(replica)].uses);
            uses.retain(|entry| self.is_last_use(replica, *entry));
            uses.shrink_to_fit();
            self.lanes[usize::from(replica)].uses = uses;
        }
        let after = self.lanes[usize::from(replica)].uses.capacity();
        self.heap_bytes = self.heap_bytes + after * size_of::<Use>() - before * size_of::<Use>();
    }

    fn is_last_use(&self, replica: u16, entry: Use) -> bool {
        let node = self.nodes.get(entry.node as usize);
        node.is_some_and(|node| node.holders.stamp(replica, self.words) == Some(entry.stamp))
    }

    /// The stamp of the replica's least recently used path; stale entries before it are dropped.
    pub(super) fn oldest(&mut self, replica: u16) -> Option<u64> {
        while let Some(entry) = self.lanes[usize::from(replica)].uses.front().copied() {
            if self.is_last_use(replica, entry) {
                return Some(entry.stamp);
            }
            self.lanes[usize::from(replica)].uses.pop_front();
        }
        None
    }

    /// Takes blocks of the replica's least recently used path away, deepest first, as long as `wanted` says so.
    /// Returns how many; 0 where the replica holds nothing here.
    pub(super) fn evict_oldest(&mut self, replica: u16, mut wanted: impl FnMut(u32) -> bool) -> u32 {
        if self.oldest(replica).is_none() {
            return 0;
        }
        let Some(entry) = self.lanes[usize::from(replica)].uses.pop_front() else { return 0 };
        let (mut at, mut taken) = (entry.node, 0);
        while at != NIL && self.is_last_use(replica, Use { stamp: entry.stamp, node: at }) {
            if !wanted(taken) {
                self.lanes[usize::from(replica)].uses.push_front(Use { stamp: entry.stamp, node: at });
                break;
            }
            let parent = self.node(at).parent;
            self.drop_holder(at, replica);
            taken += 1;
            at = parent;
        }
        taken
    }

    /// Takes a replica from a block, and the block from the shard where it was the last.
    fn drop_holder(&mut self, at: u32, replica: u16) {
        let words = self.words;
        let node = self.node_mut(at);
        let before = node.holders.heap_bytes();
        if !node.holders.remove(replica, words) {
            return;
        }
        let after = node.holders.heap_bytes();
        let empty = node.holders.is_empty(words);
        self.heap_bytes = self.heap_bytes + after - before;
        self.lanes[usize::from(replica)].blocks -= 1;
        if empty {
            self.free(at);
        }
    }

    fn free(&mut self, at: u32) {
        self.unlink(at);
        let hash = self.node(at).hash;
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == at) {
            entry.remove();
        }
        let free = self.free;
        let node = self.node_mut(at);
        node.parent = NIL;
        node.next = free;
        self.free = at;
        self.live -= 1;
    }

    /// Adds a block that nobody holds yet.
    fn add(&mut self, parent: u32, hash: u64, decision: DecisionId, may_grow: impl Fn(usize) -> bool) -> Option<u32> {
        let node = Node { hash, decision, holders: Holders::NOBODY, parent, child: NIL, next: NIL, prev: NIL };
        if self.free == NIL && self.nodes.len() == self.nodes.capacity() {
            let more = (self.nodes.capacity() / 4).max(64);
            if may_grow(more * size_of::<Node>() + self.table_growth()) {
                self.nodes.reserve_exact(more);
            } else if !self.evict_any(parent) {
                return None;
            }
        }
        let at = if self.free == NIL {
            let at = u32::try_from(self.nodes.len()).ok().filter(|at| *at != NIL)?;
            self.nodes.push(node);
            at
        } else {
            let at = self.free;
            self.free = self.node(at).next;
            *self.node_mut(at) = node;
            at
        };
        let nodes = &self.nodes;
        self.table.insert_unique(hash, at, |&other| nodes[other as usize].hash);
        self.live += 1;
        self.link(at);
        Some(at)
    }

    /// What the table will take more when it next grows; it doubles.
    fn table_growth(&self) -> usize {
        if self.table.len() * 5 / 4 >= self.table.capacity() { self.table.allocation_size().max(64 * 5) } else { 0 }
    }

    /// Frees at least one slot by evicting the oldest path of any replica, sparing the path to `spared`.
    /// False where nothing else is left.
    fn evict_any(&mut self, spared: u32) -> bool {
        let _ = spared; // its path carries the newest stamp of the replica that is being noted, so it never empties
        let mut evicted = 0;
        while self.free == NIL {
            let oldest = (0_u16..)
                .take(self.lanes.len())
                .filter_map(|replica| self.oldest(replica).map(|stamp| (stamp, replica)))
                .min();
            let Some((_, replica)) = oldest else { break };
            evicted += u64::from(self.evict_oldest(replica, |_| true));
        }
        self.evictions += evicted;
        self.free != NIL
    }

    /// Evicts up to `blocks` pairs, the shard's oldest first.
    pub(super) fn shed(&mut self, blocks: u32, mut evicted: impl FnMut(u16, u32)) {
        let mut left = blocks;
        while left > 0 {
            let oldest = (0_u16..)
                .take(self.lanes.len())
                .filter_map(|replica| self.oldest(replica).map(|stamp| (stamp, replica)))
                .min();
            let Some((_, replica)) = oldest else { break };
            let taken = self.evict_oldest(replica, |taken| taken < left);
            self.evictions += u64::from(taken);
            evicted(replica, taken);
            left -= taken.min(left);
        }
    }
}
