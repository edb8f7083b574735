//! A shaped trace as prompts: hashes made directly from block ids, without writing or hashing any text.
//!
//! A piece of a prompt (a block of the router's index, a page of the engine's cache) is identified by the ids of all
//! trace blocks up to the one it ends in, and by its position. Two prompts therefore share a piece exactly if the texts
//! that `replay` would send share it: at four bytes per token, equal ids are equal text, and texts of different ids
//! differ from their first word on. The only difference from `replay` is the chat template around the text, which is
//! not counted here.

use std::hash::BuildHasherDefault;
use std::sync::Arc;

use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::randomness::mix;
use crate::sim::cache::PageHasher;
use crate::sim::{PAGE_TOKENS, SimulatedRequest};
use crate::trace::{BYTES_PER_TOKEN, ShapedTrace, TraceRow};
use gorgo_routing::model::{ApiPath, ParsedRequest};

/// Bytes per token, as a `u64`.
const TOKEN_BYTES: u64 = BYTES_PER_TOKEN as u64;
/// Length of the beginning of a prompt that its head hash covers, tokens.
const HEAD_TOKENS: u32 = 256;
/// Bytes of a request body besides the prompt: keys, parameters.
const BODY_BYTES: u64 = 200;
/// Initial value of chains of block ids.
const START: u64 = 0x5eed_0f0b_10c4_1d5a;

/// Requests of a run.
#[derive(Debug, Clone)]
pub struct SimulatedWorkload {
    rows: Vec<TraceRow>,
    block_tokens: u32,
    /// Tokens of each row's longest prefix that an earlier row also has.
    reusable: Vec<u32>,
}

impl SimulatedWorkload {
    /// Creates the workload of a trace.
    #[must_use]
    pub fn new(shaped: ShapedTrace) -> Self {
        let ShapedTrace { rows, block_tokens, .. } = shaped;
        let reusable = reusable(&rows, block_tokens.max(1));
        Self { rows, block_tokens: block_tokens.max(1), reusable }
    }

    /// Returns the requests by time.
    #[must_use]
    pub fn rows(&self) -> &[TraceRow] {
        &self.rows
    }

    /// Returns the tokens of a request's longest prefix that an earlier request also has: what unlimited caches could
    /// contain of it.
    #[must_use]
    pub fn reusable_tokens(&self, request: usize) -> u32 {
        self.reusable[request]
    }

    /// Returns a request as the router reads it. `secret` keys the hashes of its session and head, like the secret of a
    /// database does for `serve`.
    pub(super) fn prompt(&self, request: usize, index_block_bytes: u64, secret: u64) -> ParsedRequest {
        let row = &self.rows[request];
        let prompt_bytes = u64::from(row.input_tokens) * TOKEN_BYTES;
        let mut chain = Vec::new();
        self.pieces(row, index_block_bytes, &mut chain);
        let head_hash = mix(self.head(row) ^ secret);
        let keyed = |session: &str| xxh3_64_with_seed(session.as_bytes(), secret);
        ParsedRequest {
            path: ApiPath::ChatCompletions,
            model: None,
            stream: true,
            chain,
            prompt_bytes,
            media_bytes: 0,
            exact_tokens: None,
            max_tokens: Some(row.output_tokens.max(1)),
            body_bytes: prompt_bytes + BODY_BYTES,
            session_hash: row.session().map_or(head_hash, keyed),
            head_hash,
            has_extra_keys: false,
            slo_ttft_ms: None,
            usage_splice: None,
        }
    }

    /// Returns the request as the engine gets it.
    pub(super) fn job(&self, request: usize) -> SimulatedRequest {
        let row = &self.rows[request];
        let mut pages = Vec::new();
        self.pieces(row, u64::from(PAGE_TOKENS) * TOKEN_BYTES, &mut pages);
        SimulatedRequest { id: request as u64, pages, prompt_tokens: row.input_tokens, max_tokens: row.output_tokens }
    }

    /// Appends the hashes of a prompt's full pieces of `piece_bytes`.
    fn pieces(&self, row: &TraceRow, piece_bytes: u64, out: &mut Vec<u64>) {
        let piece_bytes = piece_bytes.max(1);
        let count = u64::from(row.input_tokens) * TOKEN_BYTES / piece_bytes;
        out.reserve_exact(usize::try_from(count).unwrap_or(0));
        let block_bytes = u64::from(self.block_tokens) * TOKEN_BYTES;
        let mut ids = row.blocks.iter();
        // A trace block may cover many pieces, and a piece may span several blocks: the chain advances to the block
        // that contains the end of the piece.
        let (mut chain, mut chained_to) = (START, 0);
        for piece in 0..count {
            let ends = (piece + 1) * piece_bytes;
            while chained_to < ends {
                // Text beyond the blocks that the trace names is shared with nothing, so it needs no hash.
                let Some(id) = ids.next() else { return };
                chain = link(chain, *id);
                chained_to += block_bytes;
            }
            // The position tells apart the pieces that end in the same block.
            out.push(mix(chain ^ piece.wrapping_mul(0xd6e8_feb8_6659_fd93)));
        }
    }

    /// Returns a hash of the first tokens of a prompt.
    fn head(&self, row: &TraceRow) -> u64 {
        let tokens = row.input_tokens.min(HEAD_TOKENS);
        let blocks = usize::try_from(tokens.div_ceil(self.block_tokens)).unwrap_or(usize::MAX);
        row.blocks.iter().take(blocks).fold(link(START, u64::from(tokens)), |chain, id| link(chain, *id))
    }
}

/// Extends a chain by the id of a block.
const fn link(chain: u64, id: u64) -> u64 {
    // The rotation makes the order of ids matter.
    mix(chain.rotate_left(17) ^ id)
}

/// Computes [`SimulatedWorkload::reusable_tokens`] for all rows.
fn reusable(rows: &[TraceRow], block_tokens: u32) -> Vec<u32> {
    // Chain up to a block → largest number of tokens of that block in any row so far.
    let mut seen: HashMap<u64, u32, BuildHasherDefault<PageHasher>> = HashMap::default();
    let mut all = Vec::with_capacity(rows.len());
    for row in rows {
        let (mut chain, mut left, mut shared, mut open) = (START, row.input_tokens, 0, true);
        for id in &row.blocks {
            chain = link(chain, *id);
            let here = left.min(block_tokens);
            left -= here;
            // A block that an earlier row had only in part can be reused only up to that part, which ends the prefix.
            let before = seen.entry(chain).or_insert(0);
            if open {
                shared += here.min(*before);
                open = *before >= here;
            }
            *before = (*before).max(here);
        }
        all.push(shared);
    }
    all
}

/// Returns the name of a row, for its sample.
pub(super) fn name(row: &TraceRow) -> Option<Arc<str>> {
    row.id.clone()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::trace::{PromptText, ShapeCounts};
    use gorgo_routing::feature::prefix::ChainHasher;
    use gorgo_routing::model::arbitrary::fixed;

    fn workload(block_tokens: u32, rows: Vec<(u32, Vec<u64>)>) -> SimulatedWorkload {
        let row = |(input_tokens, blocks)| TraceRow { input_tokens, output_tokens: 1, blocks, ..TraceRow::default() };
        let rows = rows.into_iter().map(row).collect();
        SimulatedWorkload::new(ShapedTrace { rows, block_tokens, counts: ShapeCounts::default() })
    }

    fn shared<T: PartialEq>(one: &[T], two: &[T]) -> usize {
        one.iter().zip(two).take_while(|(a, b)| a == b).count()
    }

    #[test]
    fn what_can_be_reused_is_the_longest_prefix_any_earlier_row_has() {
        let rows = vec![
            (300, vec![1, 2]),
            (512, vec![1, 3]),
            (300, vec![1, 2]),
            (290, vec![1, 2]),
            (600, vec![1, 3, 9]),
            (9, vec![7]),
        ];
        let workload = workload(256, rows);
        let reusable: Vec<u32> = (0..6).map(|request| workload.reusable_tokens(request)).collect();
        assert_eq!(reusable, [0, 256, 300, 290, 512, 0]);
    }

    proptest! {
        #![proptest_config(fixed(128))]

        /// Hashes from block ids share exactly what hashes of the text would share, for the router and for the engine.
        #[test]
        fn pieces_are_shared_as_the_text_is(
            block_tokens in prop_oneof![Just(16_u32), Just(100), Just(256), Just(512)],
            index_bytes in prop_oneof![Just(64_u64), Just(256), Just(300)],
            common in prop::collection::vec(1_u64..1000, 0..4),
            own in (prop::collection::vec(1000_u64..2000, 1..3), prop::collection::vec(2000_u64..3000, 1..3)),
            cut in (0_u32..16, 0_u32..16),
        ) {
            let row = |tail: &[u64], cut: u32| {
                let blocks: Vec<u64> = common.iter().chain(tail).copied().collect();
                let tokens = u32::try_from(blocks.len()).unwrap() * block_tokens - cut;
                (tokens, blocks)
            };
            let rows = vec![row(&own.0, cut.0), row(&own.1, cut.1)];
            let workload = workload(block_tokens, rows);
            let hashed = |request: usize, bytes: u64| {
                let mut text = Vec::new();
                PromptText::new(block_tokens, 5).append(&workload.rows[request], &mut text);
                let mut chainer = ChainHasher::new(usize::try_from(bytes).unwrap(), 9, text.len());
                chainer.update(&text);
                chainer.finish().blocks
            };
            let made = |request: usize| workload.prompt(request, index_bytes, 3).chain;
            let (one, two) = (hashed(0, index_bytes), hashed(1, index_bytes));
            prop_assert_eq!((made(0).len(), made(1).len()), (one.len(), two.len()));
            prop_assert_eq!(shared(&made(0), &made(1)), shared(&one, &two));
            let (one, two) = (hashed(0, 64), hashed(1, 64));
            let (pages, others) = (workload.job(0).pages, workload.job(1).pages);
            prop_assert_eq!((pages.len(), others.len()), (one.len(), two.len()));
            prop_assert_eq!(shared(&pages, &others), shared(&one, &two));
        }
    }
}
