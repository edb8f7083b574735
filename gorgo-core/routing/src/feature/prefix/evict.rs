//! The queues of a shard: in which order blocks go when room is needed, and how memory goes back.

use hashbrown::HashTable;

use super::shard::{NIL, Shard, Use};

impl Shard {
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

    /// Evicts up to `blocks` pairs of any replicas, the shard's oldest first. Returns how many.
    pub(super) fn shed(&mut self, blocks: u32) -> u32 {
        let mut left = blocks;
        while left > 0 {
            let replicas = (0_u16..).take(self.lanes.len());
            let oldest = replicas.filter_map(|replica| Some((self.oldest(replica)?, replica))).min();
            let Some((_, replica)) = oldest else { break };
            let taken = self.evict_oldest(replica, |taken| taken < left);
            self.evictions += u64::from(taken);
            left -= taken.min(left);
        }
        blocks - left
    }

    /// Frees at least one slot by evicting the oldest paths, some blocks at a time since each look for the oldest costs
    /// a pass over the replicas. The path being noted is not among them: it has no entry in a queue yet. False where
    /// nothing else is left.
    pub(super) fn evict_any(&mut self) -> bool {
        while self.free == NIL && self.shed(64) > 0 {}
        self.free != NIL
    }

    /// Rebuilds the shard without its free slots, where most are free, so that memory goes back.
    pub(super) fn compact(&mut self) {
        if self.nodes.capacity() < 1024 || self.live * 4 > self.nodes.capacity() {
            return;
        }
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
            self.heap_bytes -= lane.uses.capacity() * size_of::<Use>();
            for entry in &mut lane.uses {
                entry.node = moved(entry.node);
            }
            lane.uses.retain(|entry| entry.node != NIL);
            lane.uses.shrink_to_fit();
            self.heap_bytes += lane.uses.capacity() * size_of::<Use>();
        }
        self.nodes = nodes;
        self.table = table;
        self.free = NIL;
    }

    pub(super) fn push_use(&mut self, replica: u16, entry: Use) {
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

    /// Notes a use that is older than all others in the queue.
    pub(super) fn push_oldest_use(&mut self, replica: u16, entry: Use) {
        let uses = &mut self.lanes[usize::from(replica)].uses;
        let before = uses.capacity();
        uses.push_front(entry);
        self.heap_bytes += (uses.capacity() - before) * size_of::<Use>();
    }

    /// Makes the use with that stamp end in `node`, or forgets it.
    pub(super) fn shorten_use(&mut self, replica: u16, stamp: u64, node: u32) {
        let uses = &mut self.lanes[usize::from(replica)].uses;
        let at = uses.partition_point(|entry| entry.stamp < stamp);
        if let Some(entry) = uses.get_mut(at).filter(|entry| entry.stamp == stamp) {
            entry.node = node; // `NIL` is no block's place: such an entry is stale
        }
    }

    pub(super) fn is_last_use(&self, replica: u16, entry: Use) -> bool {
        let node = self.nodes.get(entry.node as usize);
        node.is_some_and(|node| node.holders.stamp(replica, self.words) == Some(entry.stamp))
    }

    /// The queue of a replica, for tests of the invariants.
    #[cfg(test)]
    pub(super) fn uses(&self, replica: u16) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.lanes[usize::from(replica)].uses.iter().map(|entry| (entry.stamp, entry.node))
    }
}
