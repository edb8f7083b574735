//! Text of a prompt, counted and cut into hashed pages for the cache.
//!
//! Four bytes are a token, so a page of 16 tokens has 64 bytes. A page's hash depends on everything before it. Anything
//! that is not text, such as the role of a message, enters the hash chain without counting as tokens: a prompt with
//! exactly 4 bytes for each token of a trace therefore has exactly the trace's length.

use xxhash_rust::xxh3::xxh3_64;

use gorgo_lab::sim::PAGE_TOKENS;

/// Bytes of text per token.
pub(super) const TOKEN_BYTES: u32 = 4;

const PAGE_BYTES: usize = 64;
// An array length is a `usize`, so it is a separate constant; this keeps it equal to the engine's page.
const _: () = assert!(PAGE_TOKENS * TOKEN_BYTES == 64);

/// Number of tokens that a picture counts as, regardless of its size.
const PICTURE_TOKENS: u64 = 256;

/// A prompt under construction.
#[derive(Debug)]
pub(super) struct PromptPages {
    chain: u64,
    page: [u8; PAGE_BYTES],
    filled: usize,
    bytes: u64,
    pages: Vec<u64>,
}

impl PromptPages {
    /// Creates an empty prompt for `model`; the same text for two models shares nothing.
    pub(super) fn new(model: &str) -> Self {
        Self { chain: xxh3_64(model.as_bytes()), page: [0; PAGE_BYTES], filled: 0, bytes: 0, pages: Vec::new() }
    }

    /// Adds text.
    pub(super) fn text(&mut self, mut text: &[u8]) {
        self.bytes += u64::try_from(text.len()).unwrap_or(u64::MAX);
        // Pages fill up across calls, so that text in several pieces has the same pages as in one.
        while !text.is_empty() {
            let (head, rest) = text.split_at(text.len().min(PAGE_BYTES - self.filled));
            self.page[self.filled..self.filled + head.len()].copy_from_slice(head);
            self.filled += head.len();
            text = rest;
            if self.filled == PAGE_BYTES {
                self.mark(&self.page.clone());
                self.pages.push(self.chain);
                self.filled = 0;
            }
        }
    }

    /// Adds a token by its id.
    pub(super) fn token(&mut self, id: u32) {
        self.text(&id.to_le_bytes());
    }

    /// Adds something that distinguishes prompts but is not text.
    pub(super) fn mark(&mut self, what: &[u8]) {
        // Multiplication and rotation make the order matter: the same marks in another order give another chain.
        self.chain = (self.chain ^ xxh3_64(what)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    /// Adds a picture.
    pub(super) fn picture(&mut self, data: &[u8]) {
        // The picture's hash, repeated: equal pictures give equal pages, whatever the size of their data.
        let name = xxh3_64(data).to_le_bytes();
        for _ in 0..PICTURE_TOKENS * u64::from(TOKEN_BYTES) / 8 {
            self.text(&name);
        }
    }

    /// Returns the length so far, tokens, including a partial last one. An empty prompt counts as one token, the one
    /// that begins every text.
    pub(super) fn tokens(&self) -> u32 {
        u32::try_from(self.bytes.div_ceil(u64::from(TOKEN_BYTES)).max(1)).unwrap_or(u32::MAX)
    }

    /// Returns a hash of the whole prompt.
    pub(super) fn digest(&self) -> u64 {
        // The partial page has not entered the chain yet.
        self.chain ^ xxh3_64(&self.page[..self.filled])
    }

    /// Returns the chained hashes of the full pages.
    pub(super) fn into_pages(self) -> Vec<u64> {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(messages: &[(&str, &str)]) -> PromptPages {
        let mut prompt = PromptPages::new("sim");
        for (role, text) in messages {
            prompt.mark(role.as_bytes());
            prompt.text(text.as_bytes());
        }
        prompt
    }

    #[test]
    fn four_bytes_are_a_token_and_roles_are_none() {
        assert_eq!(prompt(&[("system", "abcd"), ("user", "efgh")]).tokens(), 2);
        assert_eq!(prompt(&[("user", "abcde")]).tokens(), 2);
        assert_eq!(prompt(&[("user", &"x".repeat(4 * 35))]).into_pages().len(), 2);
    }

    #[test]
    fn a_longer_conversation_begins_with_the_pages_of_the_shorter() {
        let (head, next) = ("a".repeat(200), "b".repeat(200));
        let shorter = prompt(&[("user", &head)]).into_pages();
        let longer = prompt(&[("user", &head), ("assistant", &next)]).into_pages();
        let other = prompt(&[("system", &head), ("assistant", &next)]).into_pages();
        assert_eq!(longer[..shorter.len()], shorter[..]);
        assert_ne!(other[0], longer[0]);
    }

    #[test]
    fn text_in_pieces_is_the_same_text() {
        let mut pieces = PromptPages::new("sim");
        for byte in "some text that is longer than one page of sixty-four bytes, as is plain to see".bytes() {
            pieces.text(&[byte]);
        }
        let mut whole = PromptPages::new("sim");
        whole.text(b"some text that is longer than one page of sixty-four bytes, as is plain to see");
        assert_eq!((pieces.digest(), pieces.tokens()), (whole.digest(), whole.tokens()));
        assert_eq!(pieces.into_pages(), whole.into_pages());
    }
}
