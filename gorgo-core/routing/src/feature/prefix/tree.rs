//! Links of a shard's forest (parents, children, siblings), and operations that cut branches off it.

use super::shard::{IndexShard, NIL};

impl IndexShard {
    /// Inserts a block as the first of its siblings.
    pub(super) fn link(&mut self, at: u32) {
        let parent = self.node(at).parent;
        if parent == NIL {
            return; // first blocks are found by hash only
        }
        let first = std::mem::replace(&mut self.node_mut(parent).child, at);
        self.node_mut(at).next = first;
        self.node_mut(at).prev = NIL;
        if first != NIL {
            self.node_mut(first).prev = at;
        }
    }

    /// Removes a block from among its siblings.
    pub(super) fn unlink(&mut self, at: u32) {
        let (parent, prev, next) = (self.node(at).parent, self.node(at).prev, self.node(at).next);
        if parent == NIL {
            return;
        }
        if prev == NIL {
            self.node_mut(parent).child = next;
        } else {
            self.node_mut(prev).next = next;
        }
        if next != NIL {
            self.node_mut(next).prev = prev;
        }
    }

    /// Moves a block to the front of its siblings, so that the next walk this way finds it without hashing.
    pub(super) fn move_to_front(&mut self, at: u32) {
        if self.node(at).parent != NIL && self.node(at).prev != NIL {
            self.unlink(at);
            self.link(at);
        }
    }

    /// Drops a replica from the last blocks of a chain that it used with this stamp and not since, down to the first
    /// `kept` blocks.
    pub(super) fn retract(&mut self, chain: &[u64], replica: u16, stamp: u64, kept: usize) {
        let mut path = Vec::with_capacity(chain.len());
        let mut at = NIL;
        for &hash in chain {
            let Some(found) = self.find(at, hash) else { break };
            path.push(found);
            at = found;
        }
        while path.len() > kept {
            let Some(&last) = path.last() else { break };
            match self.node(last).holders.stamp(replica, self.words) {
                Some(used) if used == stamp => self.drop_holder(last, replica),
                Some(_) => return, // used again since, and so are all blocks before it
                None => {}         // evicted meanwhile
            }
            path.pop();
        }
        self.shorten_use(replica, stamp, path.last().copied().unwrap_or(NIL));
    }

    /// Drops a replica from branches that leave the chain at or after block `from` and were not used since `stamp`.
    pub(super) fn prune(&mut self, chain: &[u64], replica: u16, stamp: u64, from: usize) {
        let mut at = NIL;
        for (depth, &hash) in chain.iter().enumerate() {
            let Some(found) = self.find(at, hash) else { break };
            at = found;
            if depth < from {
                continue;
            }
            let ahead = chain.get(depth + 1).copied();
            let mut child = self.node(at).child;
            while child != NIL {
                // Read before the branch is dropped: that may free the child's slot and overwrite its link.
                let next = self.node(child).next;
                let old = self.node(child).holders.stamp(replica, self.words).is_some_and(|used| used < stamp);
                if old && ahead != Some(self.node(child).hash) {
                    self.drop_branch(child, replica);
                }
                child = next;
            }
        }
    }

    /// Drops a replica from a block and all blocks after it.
    pub(super) fn drop_branch(&mut self, root: u32, replica: u16) {
        // Breadth first into a list, then backwards: children go before their parents, as *Closed* requires.
        let mut branch = vec![root];
        let mut done = 0;
        while let Some(&at) = branch.get(done) {
            done += 1;
            let mut child = self.node(at).child;
            while child != NIL {
                if self.node(child).holders.stamp(replica, self.words).is_some() {
                    branch.push(child);
                }
                child = self.node(child).next;
            }
        }
        for &at in branch.iter().rev() {
            self.drop_holder(at, replica);
        }
    }
}
