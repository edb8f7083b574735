//! The paged KV cache: pages of running requests and cached prefixes share one capacity.
//!
//! A page's hash also identifies everything before it, so an engine's radix tree becomes a map from hash to page: a
//! prefix is found by looking up its pages in order. A page is *pinned* while a running request uses it, then *idle*
//! until it is evicted, least recently used first. A request releases its pages last page first, so an idle page is
//! always evicted before the pages it continues.
//!
//! Invariant: pinned + idle + private pages ≤ capacity. Private pages belong to one request and have no hash yet.

use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;

use super::profile::PrefixCacheKind;
use super::state::RecurrentStates;

/// Null link of the idle list.
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct CachePage {
    hash: u64,
    pins: u32,
    /// Neighbours in the idle list; valid only while the page is idle.
    older: u32,
    newer: u32,
}

/// KV cache in pages, with the sharing of prefixes; see the module.
#[derive(Debug)]
pub(super) struct PagedKvCache {
    capacity: u32,
    pages: Vec<CachePage>,
    vacant: Vec<u32>,
    by_hash: HashMap<u64, u32, BuildHasherDefault<PageHasher>>,
    oldest: u32,
    newest: u32,
    idle: u32,
    private_pages: u32,
    states: Option<RecurrentStates>,
}

impl PagedKvCache {
    pub(super) fn new(capacity: u32, kind: PrefixCacheKind) -> Self {
        let states = match kind {
            PrefixCacheKind::AnyPage => None,
            PrefixCacheKind::PromptEnds { slots } => Some(RecurrentStates::new(slots)),
        };
        Self {
            capacity,
            pages: Vec::new(),
            vacant: Vec::new(),
            by_hash: HashMap::default(),
            oldest: NONE,
            newest: NONE,
            idle: 0,
            private_pages: 0,
            states,
        }
    }

    /// Returns the number of pages that a running request could get: empty and idle ones.
    pub(super) fn available(&self) -> u32 {
        self.capacity.saturating_sub(self.used())
    }

    /// Returns the number of pages in use by running requests.
    pub(super) fn used(&self) -> u32 {
        self.resident() - self.idle + self.private_pages
    }

    /// Returns the number of pages that are only cached.
    pub(super) const fn idle(&self) -> u32 {
        self.idle
    }

    fn resident(&self) -> u32 {
        u32::try_from(self.by_hash.len()).unwrap_or(u32::MAX)
    }

    /// Returns how many leading pages of `chain` a new request would find, and how many of those are idle now.
    pub(super) fn find(&self, chain: &[u64]) -> (u32, u32) {
        let present = chain.iter().take_while(|hash| self.by_hash.contains_key(*hash)).count();
        // A hybrid model can continue only from a kept state, even if more pages are present.
        let hit = self.states.as_ref().map_or(present, |states| states.deepest(&chain[..present]));
        let idle =
            chain[..hit].iter().filter(|hash| self.by_hash.get(*hash).is_some_and(|&at| self.page(at).pins == 0));
        (u32::try_from(hit).unwrap_or(u32::MAX), u32::try_from(idle.count()).unwrap_or(u32::MAX))
    }

    /// Pins pages that [`PagedKvCache::find`] has found.
    pub(super) fn pin(&mut self, chain: &[u64]) {
        for hash in chain {
            self.pin_one(*hash);
        }
        // The state at the end of the found prefix was used; the coarser ones before it were not.
        if let (Some(states), Some(last)) = (self.states.as_mut(), chain.last()) {
            states.touch(*last);
        }
    }

    /// Takes `count` pages for one request, evicting idle ones as needed. Returns `false` and takes nothing if there is
    /// no room.
    #[must_use]
    pub(super) fn take(&mut self, count: u32) -> bool {
        // Checked up front, so that a request that cannot be served evicts nothing.
        if count > self.available() {
            return false;
        }
        // Idle pages were counted as available above, so there is always one left to evict here.
        while self.capacity.saturating_sub(self.resident() + self.private_pages) < count {
            self.evict_oldest();
        }
        self.private_pages += count;
        true
    }

    /// Gives hashes to private pages of one request, so that others can find them; they stay pinned by it. If a page
    /// with that hash exists already, that page is pinned instead and the private one becomes empty.
    pub(super) fn publish(&mut self, chain: &[u64]) {
        for &hash in chain {
            debug_assert!(self.private_pages > 0, "a request publishes pages that it took");
            // Either way the private page is gone: it got its hash, or the existing page replaces it.
            self.private_pages = self.private_pages.saturating_sub(1);
            if self.by_hash.contains_key(&hash) {
                self.pin_one(hash);
            } else {
                let page = CachePage { hash, pins: 1, older: NONE, newer: NONE };
                // Slots of evicted pages are reused, so the list never has more entries than there were pages at once.
                let at = match self.vacant.pop() {
                    Some(at) => {
                        self.pages[index(at)] = page;
                        at
                    }
                    None => {
                        self.pages.push(page);
                        u32::try_from(self.pages.len() - 1).unwrap_or(NONE)
                    }
                };
                self.by_hash.insert(hash, at);
            }
        }
    }

    /// Keeps the recurrent state at the end of a computed prompt, if the model needs one.
    pub(super) fn keep_state(&mut self, chain: &[u64], tokens: u32) {
        if let Some(states) = &mut self.states {
            states.keep(chain, tokens);
        }
    }

    /// Releases a request's pages: `pinned` ones stay in the cache as idle pages, `own` ones become empty.
    pub(super) fn release(&mut self, pinned: &[u64], own: u32) {
        self.private_pages = self.private_pages.saturating_sub(own);
        // Last page first: the list is evicted from its oldest end, and a prefix is useless without its first pages.
        for hash in pinned.iter().rev() {
            let Some(&at) = self.by_hash.get(hash) else { continue };
            let page = &mut self.pages[index(at)];
            page.pins = page.pins.saturating_sub(1);
            if page.pins == 0 {
                self.append_idle(at);
            }
        }
    }

    fn page(&self, at: u32) -> &CachePage {
        &self.pages[index(at)]
    }

    fn pin_one(&mut self, hash: u64) {
        let Some(&at) = self.by_hash.get(&hash) else { return };
        // A page leaves the idle list with its first pin; while it is pinned, its links are not valid.
        if self.page(at).pins == 0 {
            self.unlink_idle(at);
        }
        self.pages[index(at)].pins += 1;
    }

    fn append_idle(&mut self, at: u32) {
        let newest = self.newest;
        let page = &mut self.pages[index(at)];
        page.older = newest;
        page.newer = NONE;
        match newest {
            NONE => self.oldest = at,
            _ => self.pages[index(newest)].newer = at,
        }
        self.newest = at;
        self.idle += 1;
    }

    fn unlink_idle(&mut self, at: u32) {
        let CachePage { older, newer, .. } = *self.page(at);
        match older {
            NONE => self.oldest = newer,
            _ => self.pages[index(older)].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            _ => self.pages[index(newer)].older = older,
        }
        self.idle -= 1;
    }

    fn evict_oldest(&mut self) {
        let at = self.oldest;
        if at == NONE {
            return;
        }
        let hash = self.page(at).hash;
        self.unlink_idle(at);
        self.by_hash.remove(&hash);
        self.vacant.push(at);
        if let Some(states) = &mut self.states {
            // A state without the KV of its page cannot be continued from.
            states.forget(hash);
        }
    }
}

/// Converts a page number to an index; `usize` has at least 32 bits on every supported machine.
fn index(at: u32) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

/// Hasher for keys that are hashes already; one multiplication spreads the small numbers that tests use.
#[derive(Debug, Default)]
pub(super) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(capacity: u32, chain: &[u64]) -> PagedKvCache {
        let mut cache = PagedKvCache::new(capacity, PrefixCacheKind::AnyPage);
        assert!(cache.take(u32::try_from(chain.len()).unwrap()));
        cache.publish(chain);
        cache
    }

    #[test]
    fn what_a_request_leaves_behind_is_found_until_it_is_evicted_last_page_first() {
        let mut cache = filled(4, &[1, 2, 3]);
        assert_eq!(cache.find(&[1, 2, 3, 4]), (3, 0));
        cache.release(&[1, 2, 3], 0);
        assert_eq!((cache.used(), cache.idle(), cache.available()), (0, 3, 4));
        assert!(cache.take(2)); // one empty page and one idle
        assert_eq!(cache.find(&[1, 2, 3]), (2, 2));
        assert!(!cache.take(3));
        assert_eq!((cache.used(), cache.available()), (2, 2));
    }

    #[test]
    fn pinned_pages_are_never_evicted() {
        let mut cache = filled(3, &[1, 2]);
        cache.release(&[1, 2], 0);
        cache.pin(&[1]);
        assert!(cache.take(2));
        assert_eq!(cache.find(&[1, 2]), (1, 0));
        assert!(!cache.take(1));
    }

    #[test]
    fn the_same_page_computed_twice_is_held_once() {
        let mut cache = filled(4, &[1, 2]);
        assert!(cache.take(2));
        cache.publish(&[1, 2]);
        assert_eq!(cache.used(), 2);
        cache.release(&[1, 2], 0);
        assert_eq!((cache.used(), cache.idle()), (2, 0));
        cache.release(&[1, 2], 0);
        assert_eq!((cache.used(), cache.idle()), (0, 2));
    }
}
