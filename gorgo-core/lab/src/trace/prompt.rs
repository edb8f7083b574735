//! Text for a trace's prompts, made from block ids: equal ids give equal text, and texts of different ids differ from
//! their first word on. None of it is a real user's prompt.
//!
//! **Four bytes are one token.** The simulated engine counts in this way, so its count of a prompt is the trace's
//! `input_length` plus what a chat template adds: the content is exact, the few tokens around each message are added by
//! the engine. A real tokenizer comes close, since every word except the first of each block is a common word of three
//! letters and a space, one token each in most vocabularies.
//!
//! A block's first word is its id, mixed with the seed and written in 11 letters and digits: 62^11 exceeds 2^64, so no
//! two ids share it. A block shorter than 3 tokens has only part of that word, and then two ids may by chance give the
//! same text.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::TraceRow;
use gorgo_routing::model::mix_bits;

/// Bytes of text per token.
pub const BYTES_PER_TOKEN: usize = 4;

/// Digits in which a block's first word is written.
const DIGITS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// Length of a block's first word: enough base-62 digits for any 64-bit number.
const FIRST_WORD: usize = 11;

/// Common words, each of them one token with its space; 64, so that six random bits choose one.
const WORDS: [&[u8; 4]; 64] = [
    b"the ", b"and ", b"for ", b"are ", b"but ", b"not ", b"you ", b"all ", b"any ", b"can ", b"had ", b"her ",
    b"was ", b"one ", b"our ", b"out ", b"day ", b"get ", b"has ", b"him ", b"his ", b"how ", b"man ", b"new ",
    b"now ", b"old ", b"see ", b"two ", b"way ", b"who ", b"boy ", b"did ", b"its ", b"let ", b"put ", b"say ",
    b"she ", b"too ", b"use ", b"dad ", b"mom ", b"act ", b"add ", b"age ", b"air ", b"arm ", b"art ", b"ask ",
    b"bad ", b"bag ", b"bed ", b"big ", b"box ", b"bus ", b"buy ", b"car ", b"cut ", b"dog ", b"eat ", b"end ",
    b"far ", b"few ", b"fly ", b"fun ",
];

/// Writer of the prompts of one trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptText {
    block_bytes: usize,
    seed: u64,
}

impl PromptText {
    /// Creates the writer for a trace whose ids cover `block_tokens` each. A different seed gives different texts with
    /// the same sharing, so that a second replay finds cold caches.
    #[must_use]
    pub fn new(block_tokens: u32, seed: u64) -> Self {
        let tokens = usize::try_from(block_tokens).unwrap_or(usize::MAX);
        Self { block_bytes: tokens.saturating_mul(BYTES_PER_TOKEN).max(BYTES_PER_TOKEN), seed }
    }

    /// Returns the length of a row's text, bytes.
    #[must_use]
    pub fn byte_len(row: &TraceRow) -> usize {
        usize::try_from(row.input_tokens).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN)
    }

    /// Appends a row's text: exactly [`BYTES_PER_TOKEN`] bytes per input token, plain ASCII words that need no escaping
    /// in JSON. If a row has fewer ids than its length requires, its text is shorter ([`super::read()`] returns no such
    /// row).
    pub fn append(&self, row: &TraceRow, out: &mut Vec<u8>) {
        let mut left = Self::byte_len(row);
        out.reserve(left);
        for id in &row.blocks {
            let bytes = left.min(self.block_bytes);
            self.append_block(*id, bytes, out);
            left -= bytes;
        }
    }

    fn append_block(&self, id: u64, bytes: usize, out: &mut Vec<u8>) {
        let end = out.len() + bytes;
        // Both mixes are one to one, so different ids stay different under one seed. Mixing the seed first keeps nearby
        // seeds and ids from cancelling each other.
        let mixed = mix_bits(id ^ mix_bits(self.seed));
        let mut rest = mixed;
        for _ in 0..FIRST_WORD {
            out.push(DIGITS[usize::try_from(rest % 62).unwrap_or(0)]);
            rest /= 62;
        }
        out.push(b' ');
        // Seeded by the id, so that the block has the same text wherever it occurs.
        let mut random = ChaCha8Rng::seed_from_u64(mixed);
        let mut choices = [0_u8; 64];
        while out.len() < end {
            random.fill_bytes(&mut choices);
            for choice in choices {
                out.extend_from_slice(WORDS[usize::from(choice & 63)]);
            }
        }
        // The words of a batch, and the first word of a very short block, may go beyond the block.
        out.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    fn row(blocks: Vec<u64>, input_tokens: u32) -> TraceRow {
        TraceRow { input_tokens, blocks, ..TraceRow::default() }
    }

    fn text(writer: PromptText, row: &TraceRow) -> String {
        let mut out = Vec::new();
        writer.append(row, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_block_reads_like_this() {
        let text = text(PromptText::new(16, 0), &row(vec![7, 8], 21));
        insta::assert_snapshot!(text);
    }

    #[test]
    fn another_seed_is_another_text_with_the_same_sharing() {
        let (first, second) = (PromptText::new(16, 1), PromptText::new(16, 2));
        let (a, b) = (row(vec![1, 2], 32), row(vec![1, 3], 32));
        assert_ne!(text(first, &a), text(second, &a));
        assert_eq!(text(second, &a)[..64], text(second, &b)[..64]);
        assert_ne!(text(second, &a)[64..76], text(second, &b)[64..76]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn equal_heads_are_equal_text_and_the_first_other_id_is_another_first_word(
            block in 16_u32..300,
            shared in prop::collection::vec(any::<u64>(), 0..4),
            left in any::<u64>(),
            right in any::<u64>(),
            seed in any::<u64>(),
        ) {
            prop_assume!(left != right);
            let with = |id: u64| {
                let blocks: Vec<u64> = shared.iter().copied().chain([id]).collect();
                let tokens = u32::try_from(blocks.len()).unwrap() * block;
                text(PromptText::new(block, seed), &row(blocks, tokens))
            };
            let (a, b) = (with(left), with(right));
            let head = shared.len() * block as usize * BYTES_PER_TOKEN;
            prop_assert_eq!(&a[..head], &b[..head]);
            let first = |text: &str| text[head..].split(' ').next().unwrap().to_owned();
            prop_assert_ne!(first(&a), first(&b));
        }

        #[test]
        fn length_is_four_bytes_per_token_and_json_needs_no_escape(
            block in 1_u32..300,
            tokens in 1_u32..2_000,
            first in any::<u64>(),
            seed in any::<u64>(),
        ) {
            let blocks = (0..tokens.div_ceil(block)).map(|index| first.wrapping_add(u64::from(index))).collect();
            let text = text(PromptText::new(block, seed), &row(blocks, tokens));
            prop_assert_eq!(text.len(), 4 * tokens as usize);
            prop_assert!(text.bytes().all(|byte| byte == b' ' || byte.is_ascii_alphanumeric()));
            prop_assert_eq!(serde_json::to_string(&text).unwrap().len(), text.len() + 2);
        }
    }
}
