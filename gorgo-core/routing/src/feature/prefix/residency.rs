//! Certain knowledge of a replica's cache → its part of the index, in addition to the uses that the index sees itself.

use std::sync::atomic::Ordering::Relaxed;

use super::index::{PrefixIndex, shard_of};
use super::shard::{IndexShard, NIL};
use crate::model::{DecisionId, ReplicaId};

impl PrefixIndex {
    /// Current moment, for [`PrefixIndex::reconcile`].
    #[must_use]
    pub fn current_stamp(&self) -> u64 {
        self.clock.load(Relaxed)
    }

    /// Records that the replica holds the whole chain and has just used it.
    pub fn mark_cached(&self, chain: &[u64], replica: ReplicaId, decision: DecisionId) {
        if self.held_blocks.get(replica.index()).is_some() && !chain.is_empty() {
            self.touch(chain, replica, decision, None);
        }
    }

    /// Records that the replica no longer holds a block, nor any that follows on it. `root`: first block of its chain.
    pub fn unmark_from(&self, root: u64, block: u64, replica: ReplicaId) {
        if self.held_blocks.get(replica.index()).is_none() {
            return;
        }
        let mut shard = self.shards[shard_of(root)].lock();
        if let Some(at) = shard.find(NIL, block) {
            shard.unmark_below(at, replica.0);
        }
        self.report(&mut shard);
    }

    /// Records that the replica holds the first `blocks` blocks of the chain. If `others_since` is given, it holds no
    /// others of it, except for those used after that moment: they may still be on their way.
    pub fn reconcile(
        &self,
        chain: &[u64],
        blocks: usize,
        others_since: Option<u64>,
        replica: ReplicaId,
        decision: DecisionId,
    ) {
        let (Some(&first), Some(_)) = (chain.first(), self.held_blocks.get(replica.index())) else { return };
        let mut shard = self.shards[shard_of(first)].lock();
        let missing = shard.held_blocks(chain, replica.0) < blocks;
        if let Some(since) = others_since
            && let Some(at) = chain.get(blocks).and_then(|block| shard.find(NIL, *block))
            && shard.node(at).holders.stamp(replica.0, shard.words).is_some_and(|used| used <= since)
        {
            shard.unmark_below(at, replica.0);
        }
        self.report(&mut shard);
        // `hold` locks the same shard again.
        drop(shard);
        if missing {
            self.mark_cached(&chain[..blocks.min(chain.len())], replica, decision);
        }
    }
}

impl IndexShard {
    /// Number of leading blocks of a chain that a replica holds.
    fn held_blocks(&self, chain: &[u64], replica: u16) -> usize {
        let (mut at, mut held) = (NIL, 0);
        for &hash in chain {
            match self.find(at, hash) {
                Some(found) if self.node(found).holders.stamp(replica, self.words).is_some() => at = found,
                _ => break,
            }
            held += 1;
        }
        held
    }

    /// Drops a replica from a block and all after it. The use that went on into it now ends before it.
    pub(super) fn unmark_below(&mut self, at: u32, replica: u16) {
        let Some(stamp) = self.node(at).holders.stamp(replica, self.words) else { return };
        let parent = self.node(at).parent;
        self.drop_branch(at, replica);
        // The parent carried the same use, whose queue entry pointed beyond the cut.
        if parent != NIL && self.node(parent).holders.stamp(replica, self.words) == Some(stamp) {
            self.shorten_use(replica, stamp, parent);
        }
    }
}
