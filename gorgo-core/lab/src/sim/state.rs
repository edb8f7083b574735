//! Where the recurrent state of a hybrid-attention model was kept: the only points a prompt can be continued from.
//!
//! A prompt keeps its state on the last page boundary before its last token (so that the same prompt, sent again, finds
//! itself) and on its last boundaries of [`COARSE_TOKENS`]. The latter are there for traces: they publish hashes of blocks
//! of 256 or 512 tokens, so what a conversation's next turn shares ends, in the trace, on such a boundary, although in
//! truth it ended where the prompt did.

use std::collections::{BTreeMap, HashMap};

use super::PAGE_TOKENS;

/// The coarser boundaries, tokens: the block sizes that public traces use.
const COARSE_TOKENS: [u32; 2] = [512, 256];

/// Points of two prompts together: the coarser boundaries of every other prompt are one.
const POINTS_OF_TWO: usize = 5;

/// Kept states by the hash of the page they stand behind.
#[derive(Debug)]
pub(super) struct States {
    capacity: usize,
    used: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
    turn: u64,
}

impl States {
    /// Room for the states of `slots` prompts.
    pub(super) fn new(slots: u32) -> Self {
        let slots = usize::try_from(slots).unwrap_or(usize::MAX);
        Self {
            capacity: slots.saturating_mul(POINTS_OF_TWO).div_ceil(2),
            used: HashMap::new(),
            by_use: BTreeMap::new(),
            turn: 0,
        }
    }

    /// The longest prefix of `chain`, in pages, that ends at a kept state.
    pub(super) fn deepest(&self, chain: &[u64]) -> usize {
        chain.iter().rposition(|page| self.used.contains_key(page)).map_or(0, |last| last + 1)
    }

    /// Keeps the states of a prompt that has been computed, of `tokens` tokens with these full pages.
    pub(super) fn keep(&mut self, chain: &[u64], tokens: u32) {
        let coarse = COARSE_TOKENS.map(|block| tokens / block * block);
        for boundary in coarse.into_iter().chain([tokens.saturating_sub(1)]) {
            let pages = usize::try_from(boundary / PAGE_TOKENS).unwrap_or(usize::MAX);
            if let Some(&page) = pages.checked_sub(1).and_then(|last| chain.get(last)) {
                self.touch(page);
            }
        }
        while self.used.len() > self.capacity {
            let Some((_, page)) = self.by_use.pop_first() else { break };
            self.used.remove(&page);
        }
    }

    /// Notes that the state behind this page was used, keeping it where it was not kept.
    pub(super) fn touch(&mut self, page: u64) {
        self.turn += 1;
        if let Some(earlier) = self.used.insert(page, self.turn) {
            self.by_use.remove(&earlier);
        }
        self.by_use.insert(self.turn, page);
    }

    /// Drops the state behind a page that was evicted.
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
        let mut states = States::new(1);
        states.keep(&chain, 1120);
        assert_eq!(states.deepest(&chain), 69);
        assert_eq!(states.deepest(&chain[..68]), 64);
        assert_eq!(states.deepest(&chain[..63]), 0);
        let mut states = States::new(1);
        states.keep(&chain[..50], 800);
        assert_eq!((states.deepest(&chain[..49]), states.deepest(&chain[..47])), (49, 32));
        assert_eq!(states.deepest(&chain[..48]), 48, "a block of 256");
    }

    #[test]
    fn the_least_recently_used_prompt_goes_first() {
        let [one, two, three, four] = [1, 101, 201, 301].map(|first| (first..first + 40).collect::<Vec<u64>>());
        let mut states = States::new(2);
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
