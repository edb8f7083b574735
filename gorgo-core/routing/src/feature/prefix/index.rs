//! Index of all replicas' caches: shards by a chain's first block, each locked once per prompt.
//!
//! Limited twice. Per replica by its KV capacity in blocks, least recently used first over all shards, as the engine
//! itself evicts. And by memory: if the next allocation would exceed `max_bytes`, the shard's own oldest blocks make
//! room instead. The overhead of one prompt's entries may exceed the limit until the next prompt arrives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use super::shard::{IndexShard, TouchResult};
use crate::model::{DecisionId, ReplicaId, UnixMicros};

/// Number of shards. Prompts with the same first block share one, so more would not help a fleet with one system
/// prompt.
pub(super) const SHARDS: usize = 16;
/// Inverse of the free share below which a replica's part counts as full.
const NEAR_FULL: u64 = 20;
/// Inverse of the share of the time range that counts as the tail.
const NEAR_TAIL: u64 = 5;
/// Stamp that stands for "nothing held".
pub(super) const NEVER: u64 = u64::MAX;
/// Bitmap words that a lookup keeps on the stack: 1,024 replicas.
const STACK_WORDS: usize = 16;

/// Longest prefix that a prompt shares with an earlier one and that some replica still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedPrefix {
    /// Last decision that used all of it.
    pub parent: Option<DecisionId>,
    /// Length of the prefix, blocks.
    pub blocks: u32,
}

/// Reservation by an insert; [`PrefixIndex::confirm`] or [`PrefixIndex::retract`] resolves it at the request's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "without its ticket a reservation can neither be confirmed nor retracted"]
pub struct PrefixTicket {
    replica: ReplicaId,
    decision: DecisionId,
    stamp: u64,
    held_blocks: u32,
    long_unused: bool,
    near_eviction: bool,
}

impl PrefixTicket {
    /// Leading blocks that the replica was believed to hold when the request was dispatched.
    #[must_use]
    pub const fn held_blocks(&self) -> u32 {
        self.held_blocks
    }

    /// True if these had not been used for at least half the time that the replica's part reaches back.
    #[must_use]
    pub const fn long_unused(&self) -> bool {
        self.long_unused
    }

    /// True if these were about to be evicted: unused for most of the time that the oldest were, at a replica whose
    /// capacity is nearly exhausted.
    #[must_use]
    pub const fn near_eviction(&self) -> bool {
        self.near_eviction
    }
}

/// Statistics of the index at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefixStats {
    /// Number of distinct blocks.
    pub blocks: u64,
    /// Number of block × replica pairs.
    pub held: u64,
    /// Memory of the index, bytes.
    pub bytes: u64,
    /// Pairs evicted so far to make room: for a replica's capacity, or for memory.
    pub evictions: u64,
}

/// Statistics of one replica's part at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaIndexStats {
    /// Blocks that it is believed to hold.
    pub blocks: u64,
    /// Blocks that it can hold; `u64::MAX` while unknown.
    pub capacity: u64,
    /// Time of the last use of its least recently used block.
    pub oldest: Option<UnixMicros>,
}

/// Prefix index; see the module.
#[derive(Debug)]
pub struct PrefixIndex {
    pub(super) shards: Box<[Mutex<IndexShard>]>,
    /// Per replica: blocks over all shards.
    pub(super) held_blocks: Arc<[AtomicU64]>,
    /// Per replica: most blocks.
    pub(super) capacity: Box<[AtomicU64]>,
    /// Per replica: uses up to this stamp belong to an engine that is gone.
    pub(super) purged_through: Box<[AtomicU64]>,
    /// Per replica and shard: lower limit of the stamps there. Written under the shard's lock.
    pub(super) oldest: Box<[AtomicU64]>,
    /// Last stamp: µs since `origin`, but always at least one more than the one before.
    pub(super) clock: AtomicU64,
    /// Time of the first insert, µs; stamps have 48 bits, nine years.
    pub(super) origin: AtomicU64,
    pub(super) bytes: AtomicUsize,
    pub(super) max_bytes: usize,
}

impl PrefixIndex {
    /// Creates an empty index for a fleet of `replicas` with at most `max_bytes` of memory.
    #[must_use]
    pub fn new(replicas: usize, max_bytes: u64) -> Self {
        let replicas = replicas.min(usize::from(u16::MAX));
        // One atomic per replica, so that capacities and counts need no lock.
        let column = |value: u64| std::iter::repeat_with(|| AtomicU64::new(value)).take(replicas).collect::<Box<[_]>>();
        let held: Arc<[AtomicU64]> = column(0).into();
        let shards = std::iter::repeat_with(|| Mutex::new(IndexShard::new(Arc::clone(&held)))).take(SHARDS).collect();
        let index = Self {
            shards,
            held_blocks: held,
            capacity: column(u64::MAX),
            purged_through: column(0),
            oldest: std::iter::repeat_with(|| AtomicU64::new(NEVER)).take(replicas * SHARDS).collect(),
            clock: AtomicU64::new(0),
            origin: AtomicU64::new(NEVER),
            bytes: AtomicUsize::new(0),
            max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX),
        };
        for shard in &index.shards {
            index.report(&mut shard.lock());
        }
        index
    }

    /// Writes the number of leading blocks of `chain` that each replica holds to `out` (one entry per replica of the
    /// fleet). A single walk for all replicas, which ends where none matches any more.
    pub fn lookup(&self, chain: &[u64], out: &mut [u32]) -> SharedPrefix {
        out.fill(0);
        let Some(&first) = chain.first() else { return SharedPrefix::default() };
        let shard = self.shards[shard_of(first)].lock();
        // The lookup is on the path of every request: the bitmap of a usual fleet needs no allocation.
        let mut on_stack = [0_u64; STACK_WORDS];
        let mut on_heap = Vec::new();
        let active = if shard.words <= STACK_WORDS {
            &mut on_stack[..shard.words]
        } else {
            on_heap.resize(shard.words, 0);
            &mut on_heap[..]
        };
        match shard.lookup(chain, active, out) {
            Some((parent, blocks)) => SharedPrefix { parent: Some(parent), blocks },
            None => SharedPrefix::default(),
        }
    }

    /// Reserves the whole chain at the chosen replica: it will soon hold it, and the next prompt of a burst must see
    /// that now. `None` for an empty chain, or for a replica that the fleet does not have.
    pub fn insert(
        &self,
        chain: &[u64],
        replica: ReplicaId,
        decision: DecisionId,
        at: UnixMicros,
    ) -> Option<PrefixTicket> {
        self.held_blocks.get(replica.index())?;
        let (stamp, touched) = self.touch(chain, replica, decision, Some(at))?;
        let (old, near_tail) =
            if touched.held_blocks > 0 { self.use_age(replica, stamp, touched.last_use) } else { (false, false) };
        Some(PrefixTicket {
            replica,
            decision,
            stamp,
            held_blocks: touched.held_blocks,
            long_unused: old,
            near_eviction: near_tail,
        })
    }

    /// Compares a use at `last_use` with the time that the replica's part reaches back: true if it lies in the older
    /// half; and true if it lies in the oldest fifth while that part is nearly full.
    fn use_age(&self, replica: ReplicaId, now: u64, last_use: u64) -> (bool, bool) {
        let (held, capacity) =
            (self.held_blocks[replica.index()].load(Relaxed), self.capacity[replica.index()].load(Relaxed));
        let full = held >= capacity - capacity / NEAR_FULL;
        let row = &self.oldest[self.slot(replica, 0)..self.slot(replica, SHARDS)];
        let oldest = row.iter().map(|stamp| stamp.load(Relaxed)).min().unwrap_or(NEVER);
        // Read without the shards' locks: an approximate range is enough here.
        let (age, reach) = (now.saturating_sub(last_use), now.saturating_sub(oldest));
        (age >= reach / 2, full && age >= reach - reach / NEAR_TAIL)
    }

    /// Scales a replica's capacity; while it is unknown, the number of held blocks is the basis.
    pub fn scale_capacity(&self, replica: ReplicaId, step: f64) {
        let Some(capacity) = self.capacity.get(replica.index()) else { return };
        let known = match capacity.load(Relaxed) {
            // An unknown capacity can only be shrunk: what is held was too much. There is nothing to enlarge.
            u64::MAX if step < 1.0 => self.held_blocks[replica.index()].load(Relaxed),
            u64::MAX => return,
            known => known,
        };
        #[expect(clippy::cast_precision_loss, reason = "blocks stay far below 2^53")]
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates; never negative")]
        let blocks = (known as f64 * step).ceil() as u64;
        // Rounding up must not keep a small capacity where it is.
        let blocks = if step < 1.0 && blocks == known { known.saturating_sub(1) } else { blocks };
        self.set_capacity(replica, blocks.max(1));
    }

    /// Confirms that a request ended well: the engine now holds its whole prompt. `actual_blocks`: blocks that the
    /// engine reported as cached when the request began, in whole blocks.
    ///
    /// If that is clearly less than was believed, the engine had evicted the rest, and with it everything that branches
    /// off later: an engine's cache is a tree as well, and is evicted from its leaves. Those branches are dropped.
    /// Blocks of this chain that the index had evicted in the meantime are restored.
    pub fn confirm(&self, chain: &[u64], ticket: PrefixTicket, actual_blocks: u32) {
        let replica = ticket.replica;
        if ticket.stamp <= self.purged_through[replica.index()].load(Relaxed) {
            return; // from an engine that is gone
        }
        let Some(&first) = chain.first() else { return };
        // Tokens per block are an estimate: a sixteenth and one block are within its error.
        if actual_blocks + ticket.held_blocks / 16 + 1 < ticket.held_blocks {
            let mut shard = self.shards[shard_of(first)].lock();
            shard.prune(chain, replica.0, ticket.stamp, actual_blocks as usize);
            self.report(&mut shard);
        }
        // Restores blocks that were evicted meanwhile. No time: the stamp only has to be newer than the last one.
        self.touch(chain, replica, ticket.decision, None);
    }

    /// Retracts a request that failed before the engine had read its prompt: blocks that only it reserved are dropped.
    pub fn retract(&self, chain: &[u64], ticket: PrefixTicket) {
        let replica = ticket.replica;
        let Some(&first) = chain.first() else { return };
        let mut shard = self.shards[shard_of(first)].lock();
        shard.retract(chain, replica.0, ticket.stamp, ticket.held_blocks as usize);
        self.report(&mut shard);
    }

    /// Forgets everything that a replica holds, because it left or its engine restarted. Requests dispatched before
    /// cannot restore anything.
    pub fn purge(&self, replica: ReplicaId) {
        let Some(purged) = self.purged_through.get(replica.index()) else { return };
        // Before the shards are emptied: a request that is confirmed meanwhile must already find itself outdated.
        purged.fetch_max(self.tick(None), Relaxed);
        for (number, shard) in self.shards.iter().enumerate() {
            let mut shard = shard.lock();
            while shard.evict_oldest(replica.0, |_| true) > 0 {}
            self.oldest[self.slot(replica, number)].store(NEVER, Relaxed);
            shard.compact();
            self.report(&mut shard);
        }
    }

    /// Sets the number of blocks that a replica's KV cache holds, and evicts those beyond.
    pub fn set_capacity(&self, replica: ReplicaId, blocks: u64) {
        let Some(capacity) = self.capacity.get(replica.index()) else { return };
        capacity.store(blocks, Relaxed);
        self.evict(replica);
    }

    /// Statistics of the index at this moment; locks one shard after the other.
    #[must_use]
    pub fn stats(&self) -> PrefixStats {
        let mut stats = PrefixStats::default();
        for shard in &self.shards {
            let shard = shard.lock();
            stats.blocks += shard.live as u64;
            stats.evictions += shard.evictions;
        }
        stats.held = self.held_blocks.iter().map(|held| held.load(Relaxed)).sum();
        stats.bytes = self.bytes.load(Relaxed) as u64;
        stats
    }

    /// Statistics of one replica at this moment; `None` if the fleet does not have it.
    #[must_use]
    pub fn replica_stats(&self, replica: ReplicaId) -> Option<ReplicaIndexStats> {
        let blocks = self.held_blocks.get(replica.index())?.load(Relaxed);
        let stamps = self.shards.iter().filter_map(|shard| shard.lock().oldest_stamp(replica.0));
        let origin = self.origin.load(Relaxed);
        Some(ReplicaIndexStats {
            blocks,
            capacity: self.capacity[replica.index()].load(Relaxed),
            oldest: stamps.min().map(|stamp| UnixMicros(origin.saturating_add(stamp))),
        })
    }

    /// Stamps the chain at a replica. Returns the stamp and the result.
    pub(super) fn touch(
        &self,
        chain: &[u64],
        replica: ReplicaId,
        decision: DecisionId,
        at: Option<UnixMicros>,
    ) -> Option<(u64, TouchResult)> {
        let number = shard_of(*chain.first()?);
        let mut shard = self.shards[number].lock();
        if self.bytes.load(Relaxed) > self.max_bytes {
            // Overhead of a prompt beyond its blocks' own slots (bitmaps, queues) is paid back by the next prompt.
            shard.evict_pairs(u32::try_from(chain.len()).unwrap_or(u32::MAX));
        }
        let stamp = self.tick(at); // under the lock: the queues of a shard are in order of stamps
        let may_grow = |more: usize| self.bytes.load(Relaxed).saturating_add(more) <= self.max_bytes;
        let touched = shard.touch(chain, replica.0, stamp, decision, may_grow);
        self.oldest[self.slot(replica, number)].fetch_min(stamp, Relaxed);
        self.report(&mut shard);
        // `evict` locks shards itself, one at a time.
        drop(shard);
        if touched.added > 0 {
            self.evict(replica);
        }
        Some((stamp, touched))
    }

    /// Evicts a replica's least recently used blocks, over all shards, down to its capacity.
    fn evict(&self, replica: ReplicaId) {
        let capacity = &self.capacity[replica.index()];
        let held = &self.held_blocks[replica.index()];
        let above = || held.load(Relaxed) > capacity.load(Relaxed);
        // Another thread may evict at the same time, so the count is read again at every turn.
        while above() {
            // The oldest block is in the shard with the lowest limit, and so are all blocks up to the second-lowest
            // limit, so that one lock serves several evictions.
            let row = &self.oldest[self.slot(replica, 0)..self.slot(replica, SHARDS)];
            let (mut least, mut number, mut second) = (NEVER, 0, NEVER);
            for (place, stamp) in row.iter().enumerate() {
                let stamp = stamp.load(Relaxed);
                if stamp < least {
                    (second, least, number) = (least, stamp, place);
                } else {
                    second = second.min(stamp);
                }
            }
            if least == NEVER {
                return; // another thread is adding the blocks that were counted, and will evict them itself
            }
            // `oldest` is only a lower limit, so the shard's real oldest stamp is read again under its lock.
            let mut shard = self.shards[number].lock();
            let mut oldest = shard.oldest_stamp(replica.0);
            while oldest.is_some_and(|stamp| stamp <= second) && above() {
                let evicted = shard.evict_oldest(replica.0, |_| above());
                shard.evictions += u64::from(evicted);
                oldest = shard.oldest_stamp(replica.0);
            }
            row[number].store(oldest.unwrap_or(NEVER), Relaxed);
            shard.compact();
            self.report(&mut shard);
        }
    }

    /// Next stamp.
    fn tick(&self, at: Option<UnixMicros>) -> u64 {
        let since = at.map_or(0, |at| {
            let origin =
                self.origin.compare_exchange(NEVER, at.0, Relaxed, Relaxed).map_or_else(|first| first, |_| at.0);
            at.0.saturating_sub(origin)
        });
        // Strictly increasing, even if the clock does not move: a stamp identifies one use.
        let next = |last: u64| since.max(last + 1);
        let last = self.clock.fetch_update(Relaxed, Relaxed, |last| Some(next(last))).unwrap_or_else(|last| last);
        next(last)
    }

    /// Updates the sum over shards with this shard's memory.
    pub(super) fn report(&self, shard: &mut MutexGuard<'_, IndexShard>) {
        let bytes = shard.bytes();
        let before = std::mem::replace(&mut shard.reported_bytes, bytes);
        if bytes >= before {
            self.bytes.fetch_add(bytes - before, Relaxed);
        } else {
            self.bytes.fetch_sub(before - bytes, Relaxed);
        }
    }

    pub(super) const fn slot(&self, replica: ReplicaId, shard: usize) -> usize {
        replica.index() * SHARDS + shard
    }

    /// Calls `check` for each shard, for tests of the invariants.
    #[cfg(test)]
    pub(super) fn each_shard(&self, mut check: impl FnMut(&IndexShard)) {
        for shard in &self.shards {
            check(&shard.lock());
        }
    }
}

/// Shard of a chain, by bits that the hash tables do not use first.
pub(super) const fn shard_of(first: u64) -> usize {
    ((first >> 40) % SHARDS as u64) as usize
}
