//! Kept recurrent states of a hybrid-attention model: the only points from which a prompt can be continued.
//!
//! A prompt's state is kept at the last page boundary before its last token (so that the same prompt, sent again, finds
//! itself) and at its last boundaries of [`COARSE_TOKENS`]. The latter exist for the sake of traces, which publish
//! hashes of blocks of 256 or 512 tokens: in the trace, the prefix that a conversation's next turn shares ends on such
//! a boundary, although in reality it ended where the prompt did.

use std::collections::{BTreeMap, HashMap};

use super::PAGE_TOKENS;

/// Coarser boundaries, tokens: the block sizes that public traces use.
const COARSE_TOKENS: [u32; 2] = [512, 256];

/// Points of two prompts together: for every other prompt, the two coarser boundaries coincide.
const POINTS_OF_TWO: usize = 5;

/// Kept states by the hash of the page that they follow.
#[derive(Debug)]
pub(super) struct RecurrentStates {
    capacity: usize,
    used: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
    use_counter: u64,
}

impl RecurrentStates {
    /// Creates room for the states of `slots` prompts.
    pub(super) fn new(slots: u32) -> Self {
        let slots = usize::try_from(slots).unwrap_or(usize::MAX);
        Self {
            capacity: slots.saturating_mul(POINTS_OF_TWO).div_ceil(2),
            used: HashMap::new(),
            by_use: BTreeMap::new(),
            use_counter: 0,
        }
    }

    /// Returns the longest prefix of `chain`, in pages, that ends at a kept state.
    pub(super) fn deepest(&self, chain: &[u64]) -> usize {
        chain.iter().rposition(|page| self.used.contains_key(page)).map_or(0, |last| last + 1)
    }

    /// Keeps the states of a computed prompt of `tokens` tokens with these full pages.
    pub(super) fn keep(&mut self, chain: &[u64], tokens: u32) {
        // The prompt's own end is touched last, so it is the last of its points to be evicted.
        let coarse = COARSE_TOKENS.map(|block| tokens / block * block);
        for boundary in coarse.into_iter().chain([tokens.saturating_sub(1)]) {
            let pages = usize::try_from(boundary / PAGE_TOKENS).unwrap_or(usize::MAX);
            if let Some(&page) = pages.checked_sub(1).and_then(|last| chain.get(last)) {
                self.touch(page);
            }
        }
        // `by_use` is ordered by the use counter, so its first entry is the least recently used state.
        while self.used.len() > self.capacity {
            let Some((_, page)) = self.by_use.pop_first() else { break };
            self.used.remove(&page);
        }
    }

    /// Records a use of the state after this page, and keeps the state if it was not kept yet.
    pub(super) fn touch(&mut self, page: u64) {
        self.use_counter += 1;
        // A state has one entry in `by_use`: an old one would evict it too early.
        if let Some(earlier) = self.used.insert(page, self.use_counter) {
            self.by_use.remove(&earlier);
        }
        self.by_use.insert(self.use_counter, page);
    }

    /// Drops the state after a page that was evicted.
    pub(super) fn forget(&mut self, page: u64) {
        if let Some(turn) = self.used.remove(&page) {
            self.by_use.remove(&turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_can_be_continued_from_its_end_and_from_its_last_coarse_boundary_only() {
        let chain: Vec<u64> = (1..=70).collect(); // 1,120 tokens
        let mut states = RecurrentStates::new(1);
        states.keep(&chain, 1120);
        assert_eq!(states.deepest(&chain), 69);
        assert_eq!(states.deepest(&chain[..68]), 64);
        assert_eq!(states.deepest(&chain[..63]), 0);
        let mut states = RecurrentStates::new(1);
        states.keep(&chain[..50], 800);
        assert_eq!((states.deepest(&chain[..49]), states.deepest(&chain[..47])), (49, 32));
        assert_eq!(states.deepest(&chain[..48]), 48, "a block of 256");
    }

    #[test]
    fn the_least_recently_used_prompt_goes_first() {
        let [one, two, three, four] = [1, 101, 201, 301].map(|first| (first..first + 40).collect::<Vec<u64>>());
        let mut states = RecurrentStates::new(2);
        states.keep(&one, 640);
        states.keep(&two, 640);
        states.keep(&one, 640);
        states.keep(&three, 640);
        states.keep(&four, 640);
        assert_eq!(states.deepest(&one), 39);
        assert_eq!(states.deepest(&two), 0);
        assert_eq!(states.deepest(&three), 39);
    }
}
