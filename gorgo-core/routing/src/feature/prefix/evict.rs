//! Queues of a shard: the order in which blocks are evicted, and how memory is returned.

use hashbrown::HashTable;

use super::shard::{IndexShard, NIL, PathUse};

impl IndexShard {
    /// Stamp of the replica's least recently used path; drops the stale entries before it.
    pub(super) fn oldest_stamp(&mut self, replica: u16) -> Option<u64> {
        while let Some(entry) = self.lanes[usize::from(replica)].uses.front().copied() {
            if self.is_last_use(replica, entry) {
                return Some(entry.stamp);
            }
            self.lanes[usize::from(replica)].uses.pop_front();
        }
        None
    }

    /// Evicts blocks of the replica's least recently used path, deepest first, while `wanted` is true. Returns their
    /// number; 0 if the replica holds nothing here.
    pub(super) fn evict_oldest(&mut self, replica: u16, mut wanted: impl FnMut(u32) -> bool) -> u32 {
        if self.oldest_stamp(replica).is_none() {
            return 0;
        }
        let Some(entry) = self.lanes[usize::from(replica)].uses.pop_front() else { return 0 };
        let (mut at, mut taken) = (entry.node, 0);
        // A block with another stamp was used again since, and belongs to that later use.
        while at != NIL && self.is_last_use(replica, PathUse { stamp: entry.stamp, node: at }) {
            if !wanted(taken) {
                // Stopped half-way: the remaining path is still the oldest, so its entry goes back to the front.
                self.lanes[usize::from(replica)].uses.push_front(PathUse { stamp: entry.stamp, node: at });
                break;
            }
            let parent = self.node(at).parent;
            self.drop_holder(at, replica);
            taken += 1;
            at = parent;
        }
        taken
    }

    /// Evicts up to `blocks` pairs of any replicas, the shard's oldest first. Returns their number.
    pub(super) fn evict_pairs(&mut self, blocks: u32) -> u32 {
        let mut left = blocks;
        while left > 0 {
            let replicas = (0_u16..).take(self.lanes.len());
            let oldest = replicas.filter_map(|replica| Some((self.oldest_stamp(replica)?, replica))).min();
            let Some((_, replica)) = oldest else { break };
            let taken = self.evict_oldest(replica, |taken| taken < left);
            self.evictions += u64::from(taken);
            left -= taken.min(left);
        }
        blocks - left
    }

    /// Frees at least one slot by evicting the oldest paths, several blocks at a time because each search for the
    /// oldest is a pass over the replicas. The path that is being stored is safe: it has no entry in a queue yet.
    /// Returns false if nothing else is left to evict.
    pub(super) fn evict_any(&mut self) -> bool {
        while self.free == NIL && self.evict_pairs(64) > 0 {}
        self.free != NIL
    }

    /// Rebuilds the shard without its free slots if most are free, so that memory is returned.
    pub(super) fn compact(&mut self) {
        // Small shards are not worth it, and the factor of 4 keeps a shard from growing and shrinking in turn.
        if self.nodes.capacity() < 1024 || self.live * 4 > self.nodes.capacity() {
            return;
        }
        // Indices change, so every link, table entry and queue entry is translated through `places`.
        let mut places = vec![NIL; self.nodes.len()];
        let mut nodes = Vec::with_capacity(self.live);
        for (old, node) in std::mem::take(&mut self.nodes).into_iter().enumerate() {
            if !node.holders.is_empty(self.words) {
                places[old] = u32::try_from(nodes.len()).unwrap_or(NIL);
                nodes.push(node);
            }
        }
        let moved = |at: u32| places.get(at as usize).copied().unwrap_or(NIL);
        let mut table = HashTable::with_capacity(nodes.len());
        for (at, node) in (0_u32..).zip(&mut nodes) {
            for link in [&mut node.parent, &mut node.child, &mut node.next, &mut node.prev] {
                *link = moved(*link);
            }
            table.insert_unique(node.hash, at, |_| 0); // has room for all: never hashes again
        }
        for lane in &mut self.lanes {
            self.heap_bytes -= lane.uses.capacity() * size_of::<PathUse>();
            for entry in &mut lane.uses {
                entry.node = moved(entry.node);
            }
            // Entries without a live block are stale; dropping them keeps `NIL` out of the queue's live entries.
            lane.uses.retain(|entry| entry.node != NIL);
            lane.uses.shrink_to_fit();
            self.heap_bytes += lane.uses.capacity() * size_of::<PathUse>();
        }
        self.nodes = nodes;
        self.table = table;
        self.free = NIL;
    }

    pub(super) fn push_use(&mut self, replica: u16, entry: PathUse) {
        let lane = &mut self.lanes[usize::from(replica)];
        let before = lane.uses.capacity();
        lane.uses.push_back(entry);
        if lane.uses.len() > 2 * lane.blocks as usize + 16 {
            // Most entries are stale by now: each block has at most one that is not.
            let mut uses = std::mem::take(&mut self.lanes[usize::from(replica)].uses);
            uses.retain(|entry| self.is_last_use(replica, *entry));
            uses.shrink_to_fit();
            self.lanes[usize::from(replica)].uses = uses;
        }
        let after = self.lanes[usize::from(replica)].uses.capacity();
        self.heap_bytes = self.heap_bytes + after * size_of::<PathUse>() - before * size_of::<PathUse>();
    }

    /// Records a use that is older than all others in the queue.
    pub(super) fn push_oldest_use(&mut self, replica: u16, entry: PathUse) {
        let uses = &mut self.lanes[usize::from(replica)].uses;
        let before = uses.capacity();
        uses.push_front(entry);
        self.heap_bytes += (uses.capacity() - before) * size_of::<PathUse>();
    }

    /// Makes the use with this stamp end in `node`, or invalidates it.
    pub(super) fn shorten_use(&mut self, replica: u16, stamp: u64, node: u32) {
        let uses = &mut self.lanes[usize::from(replica)].uses;
        let at = uses.partition_point(|entry| entry.stamp < stamp);
        if let Some(entry) = uses.get_mut(at).filter(|entry| entry.stamp == stamp) {
            entry.node = node; // `NIL` is no block's index: such an entry is stale
        }
    }

    pub(super) fn is_last_use(&self, replica: u16, entry: PathUse) -> bool {
        let node = self.nodes.get(entry.node as usize);
        node.is_some_and(|node| node.holders.stamp(replica, self.words) == Some(entry.stamp))
    }

    /// Queue of a replica, for tests of the invariants.
    #[cfg(test)]
    pub(super) fn uses(&self, replica: u16) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.lanes[usize::from(replica)].uses.iter().map(|entry| (entry.stamp, entry.node))
    }
}
