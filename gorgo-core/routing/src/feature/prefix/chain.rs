//! Canonical prompt → chained hashes of its full blocks.
//!
//! Link *i* depends on all bytes up to the end of block *i*, so two prompts share a link if and only if they share
//! everything before it (except for collisions of 64 bits). The first link starts from a seed that contains everything
//! that separates cache entries in an engine (model, adapter, cache salt) and the database's secret, so that hashes
//! reveal nothing to anybody without it.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::model::CanonicalSink;

/// Number of prompt bytes that the head hash covers: about 256 tokens.
pub const HEAD_BYTES: usize = 1024;

/// Mark before a picture's digest in the stream; a byte that never occurs in UTF-8.
const MEDIA: u8 = 0xf8;

/// Everything besides the prompt that separates cache entries.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChainKey<'a> {
    /// Secret of the database, with which hashes are keyed.
    pub secret: u64,
    /// Model that the request names.
    pub model: Option<&'a str>,
    /// Adapter that the request asks for.
    pub adapter: Option<&'a str>,
    /// Cache salt of the request.
    pub cache_salt: Option<&'a str>,
}

impl ChainKey<'_> {
    /// Seed of a chain. An adapter with the same name as a salt gives a different seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        let parts = [self.model, self.adapter, self.cache_salt];
        // Each part is hashed together with its slot, so that equal texts in different slots give different seeds.
        parts.into_iter().zip(1_u64..).fold(self.secret, |seed, (part, slot)| match part {
            Some(text) => xxh3_64_with_seed(text.as_bytes(), link(seed, slot)),
            None => link(seed, slot << 8),
        })
    }
}

/// Hashed prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptChain {
    /// Hash per full block; a partial last block has none.
    pub blocks: Vec<u64>,
    /// Number of canonical bytes, with nine bytes per picture.
    pub prompt_bytes: u64,
    /// Number of base64 bytes of pictures.
    pub media_bytes: u64,
    /// Keyed hash of the first [`HEAD_BYTES`] bytes (of all bytes, if there are fewer).
    pub head_hash: u64,
}

/// Hasher of a prompt that arrives in pieces. A block within one piece is hashed in place; only a block across pieces
/// is copied.
#[derive(Debug)]
pub struct ChainHasher {
    seed: u64,
    last: u64,
    block_bytes: usize,
    /// Bytes of the block that has begun.
    begun: Vec<u8>,
    head: Vec<u8>,
    blocks: Vec<u64>,
    prompt_bytes: u64,
    media_bytes: u64,
}

impl ChainHasher {
    /// Starts a chain of blocks of `block_bytes` (at least 16) from `seed`. `expected_bytes`, the size of the body,
    /// saves reallocations.
    #[must_use]
    pub fn new(block_bytes: usize, seed: u64, expected_bytes: usize) -> Self {
        let block_bytes = block_bytes.max(16);
        Self {
            seed,
            last: seed,
            block_bytes,
            begun: Vec::with_capacity(block_bytes),
            head: Vec::with_capacity(HEAD_BYTES),
            // Bodies that are mostly pictures have far fewer blocks than bytes.
            blocks: Vec::with_capacity((expected_bytes / block_bytes + 1).min(4096)),
            prompt_bytes: 0,
            media_bytes: 0,
        }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, piece: &[u8]) {
        self.prompt_bytes += piece.len() as u64;
        let wanted = HEAD_BYTES - self.head.len();
        if wanted > 0 {
            self.head.extend_from_slice(&piece[..wanted.min(piece.len())]);
        }
        // First complete the block that an earlier piece has begun …
        let mut rest = piece;
        if !self.begun.is_empty() {
            let (first, others) = rest.split_at(rest.len().min(self.block_bytes - self.begun.len()));
            self.begun.extend_from_slice(first);
            if self.begun.len() < self.block_bytes {
                return;
            }
            self.last = link(self.last, xxh3_64(&self.begun));
            self.blocks.push(self.last);
            self.begun.clear();
            rest = others;
        }
        // … then hash full blocks where they lie, and keep the rest for the next piece.
        let mut blocks = rest.chunks_exact(self.block_bytes);
        for block in &mut blocks {
            self.last = link(self.last, xxh3_64(block));
            self.blocks.push(self.last);
        }
        self.begun.extend_from_slice(blocks.remainder());
    }

    /// Ends the prompt.
    #[must_use]
    pub fn finish(self) -> PromptChain {
        PromptChain {
            blocks: self.blocks,
            prompt_bytes: self.prompt_bytes,
            media_bytes: self.media_bytes,
            head_hash: xxh3_64_with_seed(&self.head, self.seed),
        }
    }
}

impl CanonicalSink for ChainHasher {
    fn bytes(&mut self, piece: &[u8]) {
        self.update(piece);
    }

    fn media(&mut self, digest: u64, bytes: u64) {
        // The digest's bytes may look like text; the mark before them is what no text can contain.
        self.update(&[MEDIA]);
        self.update(&digest.to_le_bytes());
        self.media_bytes += bytes;
    }
}

/// Mixes a block's hash into the chain: xor, multiply, rotate. Half the cost of seeding xxh3 with the previous link.
const fn link(last: u64, block: u64) -> u64 {
    // The multiplier is 2^64 divided by the golden ratio, odd; the rotation brings its high, well mixed half down to
    // where the index's table looks.
    (last.rotate_left(23) ^ block).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
}
