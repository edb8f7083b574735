//! Map from each block of text to the token block in which it ends.
//!
//! Without a tokenizer the end of a text block in tokens is not known exactly. The ends of prompts are. So the blocks
//! of a prompt's known beginning keep their positions, and those after it share the remaining tokens in proportion to
//! their bytes. In a conversation each turn is interpolated separately, so an error stays within its turn.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{TokenizedPrompt, names};
use crate::model::DecisionId;

/// Most blocks of text that are mapped; the least recently used go first. 16 million tokens at 64 to a block, 60 MiB.
const MOST_TEXTS: usize = 1 << 18;
/// Most prompts that are known to be mapped whole; beyond, all are forgotten and will be tokenized again.
const MOST_PROMPTS: usize = 1 << 16;

/// Block of text.
#[derive(Debug, Clone, Copy)]
struct TextBlock {
    parent: Option<u64>,
    root: u64,
    /// Name of the token block it ends in.
    name: u64,
    /// Number of tokens up to its end.
    end: u64,
    decision: DecisionId,
    used: u64,
}

/// Text blocks and token blocks of one block size; see the module.
#[derive(Debug, Default)]
pub(super) struct BlockBindings {
    texts: HashMap<u64, TextBlock>,
    ending: HashMap<u64, Vec<u64>>,
    /// Last block and number of bytes of each prompt that is mapped whole.
    whole: HashSet<(u64, u64)>,
    /// Uses, oldest first; an entry whose number is not the block's latest is stale.
    uses: VecDeque<(u64, u64)>,
    clock: u64,
}

impl BlockBindings {
    /// Number of leading blocks of the chain that are mapped.
    pub(super) fn mapped_blocks(&self, chain: &[u64]) -> usize {
        chain.iter().take_while(|text| self.texts.contains_key(text)).count()
    }

    /// Returns true when everything that can be mapped of a prompt of `prompt_bytes` is mapped.
    pub(super) fn is_whole(&self, chain: &[u64], prompt_bytes: u64) -> bool {
        chain.last().is_some_and(|last| self.whole.contains(&(*last, prompt_bytes))) && self.mapped_blocks(chain) > 0
    }

    /// Number of leading blocks of the chain that end in a token block for which `has` is true.
    pub(super) fn leading(&self, chain: &[u64], has: impl Fn(u64) -> bool) -> usize {
        chain.iter().take_while(|text| self.texts.get(text).is_some_and(|text| has(text.name))).count()
    }

    /// Blocks of text that end in a token block.
    pub(super) fn ending_in(&self, name: u64) -> &[u64] {
        self.ending.get(&name).map_or(&[], Vec::as_slice)
    }

    pub(super) fn parent(&self, text: u64) -> Option<u64> {
        self.texts.get(&text)?.parent
    }

    /// Token block in which the preceding block of text ends; `None`: there is no preceding one.
    pub(super) fn parent_name(&self, text: u64) -> Option<u64> {
        Some(self.texts.get(&self.parent(text)?)?.name)
    }

    pub(super) fn root(&self, text: u64) -> Option<u64> {
        Some(self.texts.get(&text)?.root)
    }

    /// Chain that ends with a block of text; `None` where a part of it was forgotten.
    pub(super) fn path(&self, text: u64) -> Option<(Vec<u64>, DecisionId)> {
        let last = self.texts.get(&text)?;
        let (mut chain, mut at) = (vec![text], last.parent);
        while let Some(before) = at {
            chain.push(before);
            at = self.texts.get(&before)?.parent;
        }
        chain.reverse();
        (chain.first() == Some(&last.root)).then_some((chain, last.decision))
    }

    /// Maps the blocks of a prompt to its tokens.
    pub(super) fn learn(&mut self, lesson: &TokenizedPrompt<'_>, block_tokens: u32, secret: u64) {
        let TokenizedPrompt { chain, prompt_bytes, block_bytes, tokens, decision } = *lesson;
        let (Some(&root), size) = (chain.first(), u64::from(block_tokens.max(1))) else { return };
        let names = names(tokens, block_tokens, secret);
        let name_at = |end: u64| names.get(usize::try_from(end.div_ceil(size).checked_sub(1)?).ok()?).copied();
        // The known beginning, as long as it agrees with these tokens: its positions are kept.
        let known = |text: &u64| self.texts.get(text).filter(|text| name_at(text.end) == Some(text.name));
        let (mut kept, mut anchor) = (0, (0, 0));
        while let Some(text) = chain.get(kept).and_then(known) {
            kept += 1;
            anchor = (kept as u64 * block_bytes, text.end);
        }
        // Interpolates the rest between the end of that beginning and the end of the prompt, both exact.
        let (bytes, all) = (prompt_bytes.saturating_sub(anchor.0), tokens.len() as u64);
        let rest = all.saturating_sub(anchor.1);
        let mut placed = Vec::with_capacity(chain.len() - kept);
        for place in kept..chain.len() {
            let after = (place as u64 + 1) * block_bytes - anchor.0;
            // Rounded up: a block must not count as held before its last token is.
            let share = (u128::from(after) * u128::from(rest)).div_ceil(u128::from(bytes.max(1)));
            let end = anchor.1.saturating_add(u64::try_from(share).unwrap_or(u64::MAX)).min(all);
            // Beyond the last full token block there is nothing that an engine could report.
            let Some(name) = name_at(end) else { break };
            placed.push((name, end));
        }
        // The deepest first, so that it is also the first to be forgotten and no chain loses its beginning.
        for (offset, (name, end)) in placed.into_iter().enumerate().rev() {
            let place = kept + offset;
            let parent = place.checked_sub(1).map(|before| chain[before]);
            self.bind(chain[place], TextBlock { parent, root, name, end, decision, used: 0 });
        }
        // The kept beginning was used as well, and must not be evicted before what follows on it.
        for text in chain[..kept].iter().rev() {
            self.clock += 1;
            if let Some(known) = self.texts.get_mut(text) {
                (known.used, known.decision) = (self.clock, decision);
                self.uses.push_back((*text, self.clock));
            }
        }
        if self.whole.len() >= MOST_PROMPTS {
            self.whole.clear();
        }
        self.whole.extend(chain.last().map(|last| (*last, prompt_bytes)));
        self.forget();
    }

    fn bind(&mut self, text: u64, mut bound: TextBlock) {
        self.clock += 1;
        bound.used = self.clock;
        self.uses.push_back((text, self.clock));
        if let Some(before) = self.texts.insert(text, bound) {
            if before.name == bound.name {
                return;
            }
            // Rebound to another token block: the reverse map must not keep the old one.
            self.unlink(text, before.name);
        }
        self.ending.entry(bound.name).or_default().push(text);
    }

    fn unlink(&mut self, text: u64, name: u64) {
        if let Some(texts) = self.ending.get_mut(&name) {
            texts.retain(|other| *other != text);
            if texts.is_empty() {
                self.ending.remove(&name);
            }
        }
    }

    /// Evicts down to the limits.
    fn forget(&mut self) {
        // A prompt that is marked whole may lose blocks below; forgetting the marks only costs a new tokenization.
        if self.texts.len() > MOST_TEXTS {
            self.whole.clear();
        }
        while self.texts.len() > MOST_TEXTS {
            let Some((text, used)) = self.uses.pop_front() else { return };
            // Stale entries are skipped: their block has a later use further back in the queue.
            if let Some(bound) = self.texts.get(&text).copied().filter(|bound| bound.used == used) {
                self.texts.remove(&text);
                self.unlink(text, bound.name);
            }
        }
        // Each use adds an entry, so stale ones are dropped before the queue outgrows the map. Amortized constant time.
        if self.uses.len() > 2 * self.texts.len() + 64 {
            let texts = &self.texts;
            self.uses.retain(|(text, used)| texts.get(text).is_some_and(|text| text.used == *used));
        }
    }

    /// Sizes of the three collections, for tests of the limits.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize, usize) {
        (self.texts.len(), self.ending.values().map(Vec::len).sum(), self.uses.len())
    }
}
