//! Cache contents that engines report, and the tokens of prompts → the index. Separate from decisions: it has its own
//! lock, which no decision takes.

use super::Router;
use crate::feature::residency::{IndexEdit, TokenizedPrompt};
use crate::model::{DecisionId, KvChange, ParsedRequest, ReplicaId};

impl Router {
    /// Takes in changes of a replica's cache, in order.
    pub fn apply_cache_changes(&self, replica: ReplicaId, changes: &[KvChange]) {
        // Held while the index is updated, so that tokens learned meanwhile do not bring back what a change removed.
        let mut residency = self.residency.lock();
        for change in changes {
            for edit in residency.apply(replica, change) {
                match edit {
                    IndexEdit::MarkCached { chain, decision } => self.index.mark_cached(&chain, replica, decision),
                    IndexEdit::Unmark { root, block } => self.index.unmark_from(root, block, replica),
                    IndexEdit::Purge => self.index.purge(replica),
                }
            }
        }
    }

    /// Returns true if a prompt's blocks are known as blocks of the replica's engine.
    #[must_use]
    pub fn is_mapped(&self, replica: ReplicaId, prompt: &ParsedRequest) -> bool {
        self.residency.lock().is_mapped(replica, &prompt.chain, prompt.prompt_bytes)
    }

    /// The current moment of the index, for [`Router::reconcile_cached`].
    #[must_use]
    pub fn index_stamp(&self) -> u64 {
        self.index.current_stamp()
    }

    /// Learns the tokens that an engine makes of a prompt.
    pub fn learn_tokens(&self, prompt: &ParsedRequest, decision: DecisionId, tokens: &[u32]) {
        self.residency.lock().learn(&TokenizedPrompt {
            chain: &prompt.chain,
            prompt_bytes: prompt.prompt_bytes,
            block_bytes: self.block_bytes as u64,
            tokens,
            decision,
        });
    }

    /// Corrects what the index believes of a mapped prompt, at every replica whose engine reports its cache. Blocks
    /// used after the moment `since` stay: their report may still be on its way.
    pub fn reconcile_cached(&self, prompt: &ParsedRequest, decision: DecisionId, since: u64) {
        let residency = self.residency.lock();
        for told in residency.confirmed_prefixes(&prompt.chain) {
            let others = told.exact.then_some(since);
            self.index.reconcile(&prompt.chain, told.blocks, others, told.replica, decision);
        }
    }

    /// Returns true if the cache contents of a replica's engine are known completely.
    #[must_use]
    pub fn is_cache_known(&self, replica: ReplicaId) -> bool {
        self.residency.lock().is_exact(replica)
    }
}
