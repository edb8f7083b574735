//! One shard of the index: a forest of blocks, and per replica a queue of uses from the oldest to the newest.
//!
//! Two invariants make it work. *Closed*: a replica that holds a block holds the blocks before it, so a block without
//! holders has no children and can be removed. *Dated*: a use stamps the whole path to its last block, so a parent is
//! never older than its child. A queue therefore needs one entry per use, not per block: the oldest entry whose last
//! block still has its stamp is the least recently used path. Evicting its blocks from the deep end upwards, while the
//! stamp is the entry's, is exactly least-recently-used eviction with the deepest block first. Entries whose block was
//! used again are stale and are dropped when found.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hashbrown::HashTable;

use super::holders::BlockHolders;
use crate::model::DecisionId;

/// Index that stands for "no block".
pub(super) const NIL: u32 = u32::MAX;

/// Block of the forest, 64 bytes.
#[derive(Debug)]
pub(super) struct BlockNode {
    pub(super) hash: u64,
    /// Last decision that used it.
    pub(super) decision: DecisionId,
    pub(super) holders: BlockHolders,
    pub(super) parent: u32,
    /// Child used last; the others follow by `next`. Most blocks have one child, which a walk finds without hashing.
    pub(super) child: u32,
    /// Next sibling; in a free slot, the next free slot.
    pub(super) next: u32,
    pub(super) prev: u32,
}

/// Use of the path that ends in `node`.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathUse {
    pub(super) stamp: u64,
    pub(super) node: u32,
}

/// Part of a replica in this shard.
#[derive(Debug, Default)]
pub(super) struct ReplicaLane {
    pub(super) uses: VecDeque<PathUse>,
    pub(super) blocks: u32,
}

/// Result of a touch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TouchResult {
    /// Leading blocks that the replica held before.
    pub(super) held_blocks: u32,
    /// Stamp of the previous use of the deepest of them.
    pub(super) last_use: u64,
    /// Blocks that it did not hold before.
    pub(super) added: u32,
}

/// Shard of the index; see the module.
#[derive(Debug)]
pub(super) struct IndexShard {
    pub(super) nodes: Vec<BlockNode>,
    pub(super) free: u32,
    pub(super) live: usize,
    pub(super) table: HashTable<u32>,
    pub(super) lanes: Vec<ReplicaLane>,
    /// Number of 64-bit words in a bitmap of replicas.
    pub(super) words: usize,
    /// Heap bytes of holders and queues.
    pub(super) heap_bytes: usize,
    /// Block × replica pairs that were evicted for room.
    pub(super) evictions: u64,
    /// Bytes that this shard last added to the sum over shards.
    pub(super) reported_bytes: usize,
    /// Number of blocks per replica over all shards.
    pub(super) held: Arc<[AtomicU64]>,
}

impl IndexShard {
    pub(super) fn new(held: Arc<[AtomicU64]>) -> Self {
        let replicas = held.len();
        Self {
            nodes: Vec::new(),
            free: NIL,
            live: 0,
            table: HashTable::new(),
            lanes: std::iter::repeat_with(ReplicaLane::default).take(replicas).collect(),
            words: replicas.div_ceil(64),
            heap_bytes: 0,
            evictions: 0,
            reported_bytes: 0,
            held,
        }
    }

    /// Memory of the shard, bytes: capacities, not contents.
    pub(super) fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<BlockNode>()
            + self.table.allocation_size()
            + self.heap_bytes
            + self.lanes.capacity() * size_of::<ReplicaLane>()
    }

    pub(super) fn node(&self, at: u32) -> &BlockNode {
        &self.nodes[at as usize]
    }

    pub(super) fn node_mut(&mut self, at: u32) -> &mut BlockNode {
        &mut self.nodes[at as usize]
    }

    /// Block with this hash after block `parent` (`NIL`: a first block).
    pub(super) fn find(&self, parent: u32, hash: u64) -> Option<u32> {
        // The child used last is the usual next step of a conversation, and saves a hash lookup.
        if parent != NIL {
            let child = self.node(parent).child;
            if child != NIL && self.node(child).hash == hash {
                return Some(child);
            }
        }
        // Hashes are chained, so equal hashes mean equal paths: the parent needs no comparison.
        self.table.find(hash, |&at| self.node(at).hash == hash).copied()
    }

    /// Longest match of all replicas: see `PrefixIndex::lookup`. `active` is scratch space, `words` long.
    pub(super) fn lookup(&self, chain: &[u64], active: &mut [u64], out: &mut [u32]) -> Option<(DecisionId, u32)> {
        let (mut at, mut depth, mut last) = (NIL, 0_u32, None);
        for &hash in chain {
            let Some(found) = self.find(at, hash) else { break };
            let node = self.node(found);
            // Every replica starts as active, of which the first block keeps its holders.
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
        // Replicas that are still active matched up to the last block of the walk.
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

    /// Records that `replica` uses the whole chain. `may_grow`: true if that many more bytes fit. If they do not, the
    /// shard's oldest blocks make room, and if there are none the rest of the chain is left out.
    pub(super) fn touch(
        &mut self,
        chain: &[u64],
        replica: u16,
        stamp: u64,
        decision: DecisionId,
        may_grow: impl Fn(usize) -> bool,
    ) -> TouchResult {
        let mut touched = TouchResult::default();
        let mut at = NIL;
        for &hash in chain {
            let found = match self.find(at, hash) {
                Some(found) => found,
                None => match self.add(at, hash, decision, &may_grow) {
                    Some(added) => added,
                    None => break,
                },
            };
            // The next prompt most likely takes the same branch, and then finds it without hashing.
            self.move_to_front(found);
            let words = self.words;
            let node = self.node_mut(found);
            node.decision = decision;
            let before = node.holders.heap_bytes();
            match node.holders.touch(replica, stamp, words) {
                None => {
                    let grown = node.holders.heap_bytes() - before;
                    self.heap_bytes += grown;
                    touched.added += 1;
                }
                // After the first block that was not held, later ones cannot count as a held prefix.
                Some(last_use) if touched.added == 0 => {
                    touched.held_blocks += 1;
                    touched.last_use = last_use;
                }
                Some(_) => {}
            }
            at = found;
        }
        self.lanes[usize::from(replica)].blocks += touched.added;
        self.held[usize::from(replica)].fetch_add(u64::from(touched.added), Relaxed);
        // The queue entry comes last: `evict_any` within the loop must not find this path.
        if at != NIL {
            self.push_use(replica, PathUse { stamp, node: at });
        }
        touched
    }

    /// Removes a replica from a block, and removes the block with its last replica.
    pub(super) fn drop_holder(&mut self, at: u32, replica: u16) {
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
        self.held[usize::from(replica)].fetch_sub(1, Relaxed);
        if empty {
            self.release(at);
        }
    }

    fn release(&mut self, at: u32) {
        self.unlink(at);
        let hash = self.node(at).hash;
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == at) {
            entry.remove();
        }
        let free = self.free;
        let node = self.node_mut(at);
        node.parent = NIL;
        // The slot joins the list of free slots.
        node.next = free;
        self.free = at;
        self.live -= 1;
    }

    /// Returns true if one more block fits without evicting another.
    pub(super) fn has_room(&self, may_grow: impl Fn(usize) -> bool) -> bool {
        self.free != NIL || self.nodes.len() < self.nodes.capacity() || may_grow(self.growth())
    }

    /// Bytes of the next allocation.
    fn growth(&self) -> usize {
        self.more_nodes() * size_of::<BlockNode>() + self.table_growth()
    }

    /// Number of blocks in the next allocation.
    fn more_nodes(&self) -> usize {
        // A quarter more, not twice as much: memory is limited, and what is allocated counts as used.
        (self.nodes.capacity() / 4).max(64)
    }

    /// Adds a block that has no holder yet.
    pub(super) fn add(
        &mut self,
        parent: u32,
        hash: u64,
        decision: DecisionId,
        may_grow: impl Fn(usize) -> bool,
    ) -> Option<u32> {
        let node =
            BlockNode { hash, decision, holders: BlockHolders::NOBODY, parent, child: NIL, next: NIL, prev: NIL };
        // Grow before evicting, and evict before giving up.
        if self.free == NIL && self.nodes.len() == self.nodes.capacity() {
            if may_grow(self.growth()) {
                self.nodes.reserve_exact(self.more_nodes());
            } else if !self.evict_any() {
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

    /// Bytes that the table will add when it next grows; it doubles.
    fn table_growth(&self) -> usize {
        if self.table.len() * 5 / 4 >= self.table.capacity() { self.table.allocation_size().max(64 * 5) } else { 0 }
    }
}
