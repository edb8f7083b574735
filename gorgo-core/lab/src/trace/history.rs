//! A router's own history as a trace: lengths, times, and which prefixes were shared, nothing else. Such a trace is
//! safe to share: the database stores no hash of any text, so block ids are fresh numbers, assigned along the chain of
//! parents.
//!
//! A request's parent is the earlier request with which it shares its longest prefix. The request gets its parent's ids
//! for the blocks within the shared prefix, and fresh ids from there on. Requests that share a parent which is not in
//! the trace (deleted, or before its start) still share block ids.

use std::collections::HashMap;
use std::sync::Arc;

use super::row::MAX_TOKENS;
use super::{RecordedTrace, TraceFormat, TraceRow};

/// A request of the history. Prompt and shared tokens must be counted in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryRow {
    /// Id of the request, unique and increasing.
    pub id: i64,
    /// Earlier request with which this one shares its longest prefix.
    pub parent: Option<i64>,
    /// Length of that prefix, tokens.
    pub shared_tokens: u32,
    /// Arrival time, µs since the epoch.
    pub at_us: u64,
    /// Prompt length, tokens.
    pub prompt_tokens: u32,
    /// Prompt tokens as the engine counted them.
    pub engine_prompt_tokens: Option<u32>,
    /// Tokens generated; 0 if nothing was.
    pub output_tokens: u32,
    /// Hash of the session; the trace numbers sessions from 0 instead, so that no hash leaves the database.
    pub session_hash: u64,
}

/// Builds a trace from requests in order of their ids. Rows are named by their position in the trace, not by their
/// decision. Requests without a prompt are left out.
#[must_use]
pub fn from_history(history: impl IntoIterator<Item = HistoryRow>, block_tokens: u32) -> RecordedTrace {
    let block_tokens = block_tokens.max(1);
    let mut chains = ParentChains { block_tokens, next: 0, of: HashMap::new() };
    let mut sessions: HashMap<u64, (Arc<str>, u32)> = HashMap::new();
    let mut names: HashMap<i64, Arc<str>> = HashMap::new();
    let mut rows: Vec<TraceRow> = Vec::new();
    let mut start_us = None;
    for request in history {
        if request.prompt_tokens == 0 {
            continue;
        }
        let input_tokens = request.prompt_tokens.min(MAX_TOKENS);
        // A shared prefix is no longer than the prompt, which may just have been cut.
        let shared_tokens = request.parent.map_or(0, |_| request.shared_tokens.min(input_tokens));
        let index = rows.len();
        let name: Arc<str> = index.to_string().into();
        let next_session = sessions.len();
        let (session, turn) =
            sessions.entry(request.session_hash).or_insert_with(|| (next_session.to_string().into(), 0));
        *turn += 1;
        // Rows with a prompt define the start; times must not begin with a request that is left out.
        let from_us = *start_us.get_or_insert(request.at_us);
        rows.push(TraceRow {
            index,
            at_ms: millis(request.at_us.saturating_sub(from_us)),
            input_tokens,
            output_tokens: request.output_tokens.min(MAX_TOKENS),
            blocks: chains.extend(request.id, request.parent, shared_tokens, input_tokens),
            id: Some(Arc::clone(&name)),
            parent: request.parent.and_then(|parent| names.get(&parent).cloned()),
            shared_tokens: Some(shared_tokens),
            engine_prompt_tokens: request.engine_prompt_tokens,
            user: None,
            conversation: Some(Arc::clone(session)),
            turn: Some(*turn),
        });
        // Inserted last: a parent is always an earlier row.
        names.insert(request.id, name);
    }
    // Ids increase in the order of decisions, which is not quite the order of arrivals.
    rows.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
    RecordedTrace { format: TraceFormat::Mooncake, block_tokens, rows, rows_without_blocks: 0, rows_refitted: 0 }
}

/// Block ids of all requests so far, and of parents that are known only by their id.
struct ParentChains {
    block_tokens: u32,
    next: u64,
    of: HashMap<i64, ParentChain>,
}

struct ParentChain {
    blocks: Vec<u64>,
    /// Tokens of the prompt; `None` for a parent that is not in the trace, whose length is unknown and taken to be as
    /// long as its children require.
    tokens: Option<u32>,
}

impl ParentChains {
    fn extend(&mut self, id: i64, parent: Option<i64>, shared_tokens: u32, tokens: u32) -> Vec<u64> {
        let size = self.block_tokens;
        let mut blocks = match parent {
            Some(parent) if shared_tokens > 0 => self.shared(parent, shared_tokens, tokens),
            _ => Vec::new(),
        };
        let wanted = usize::try_from(tokens.div_ceil(size)).unwrap_or(usize::MAX);
        while blocks.len() < wanted {
            blocks.push(self.next);
            self.next += 1;
        }
        self.of.insert(id, ParentChain { blocks: blocks.clone(), tokens: Some(tokens) });
        blocks
    }

    /// Returns the parent's blocks within the shared prefix: the full ones, and the partial last one if the shared
    /// prefix is the whole of both prompts.
    fn shared(&mut self, parent: i64, shared_tokens: u32, tokens: u32) -> Vec<u64> {
        let size = self.block_tokens;
        let chain = self.of.entry(parent).or_insert(ParentChain { blocks: Vec::new(), tokens: None });
        let shared_tokens = shared_tokens.min(chain.tokens.unwrap_or(u32::MAX));
        // A partial block is the same block only if both prompts end in it at the same token.
        let count = if chain.tokens == Some(tokens) && shared_tokens == tokens {
            chain.blocks.len()
        } else {
            usize::try_from(shared_tokens / size).unwrap_or(usize::MAX)
        };
        // An absent parent gets ids only as far as its children need them.
        while chain.tokens.is_none() && chain.blocks.len() < count {
            chain.blocks.push(self.next);
            self.next += 1;
        }
        chain.blocks.iter().take(count).copied().collect()
    }
}

/// Converts µs to ms, exact to three decimals.
fn millis(micros: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "below 2^53 for 285 years")]
    let millis = micros as f64 / 1e3;
    millis
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngSeed};

    use super::*;

    fn request(id: i64, parent: Option<i64>, shared_tokens: u32, prompt_tokens: u32) -> HistoryRow {
        HistoryRow {
            id,
            parent,
            shared_tokens,
            at_us: 1_000_000 + id.unsigned_abs(),
            prompt_tokens,
            engine_prompt_tokens: Some(prompt_tokens + 9),
            output_tokens: 3,
            session_hash: 77 + id.unsigned_abs() % 2,
        }
    }

    fn blocks(history: &[HistoryRow]) -> Vec<Vec<u64>> {
        from_history(history.iter().copied(), 16).rows.into_iter().map(|row| row.blocks).collect()
    }

    #[test]
    fn blocks_within_the_shared_prefix_are_the_parents() {
        let history = [request(10, None, 0, 40), request(11, Some(10), 37, 60), request(12, Some(11), 48, 50)];
        assert_eq!(blocks(&history), [vec![0, 1, 2], vec![0, 1, 3, 4], vec![0, 1, 3, 5]]);
    }

    #[test]
    fn a_prompt_sent_again_has_its_last_block_too_and_its_beginning_has_not() {
        let history = [request(10, None, 0, 40), request(11, Some(10), 40, 40), request(12, Some(11), 39, 39)];
        assert_eq!(blocks(&history), [vec![0, 1, 2], vec![0, 1, 2], vec![0, 1, 3]]);
    }

    #[test]
    fn a_parent_that_is_gone_ties_those_that_share_with_it() {
        let history = [request(10, Some(3), 16, 32), request(11, Some(3), 32, 40), request(12, Some(4), 16, 16)];
        assert_eq!(blocks(&history), [vec![0, 1], vec![0, 2, 3], vec![4]]);
    }

    #[test]
    fn nothing_of_the_history_but_lengths_and_times_is_left() {
        let history = [request(10, Some(3), 16, 32), request(12, Some(10), 99, 0), request(13, Some(10), 32, 48)];
        let trace = from_history(history, 16);
        let first = &trace.rows[0];
        assert_eq!((first.at_ms, first.id.as_deref(), first.parent.as_deref()), (0.0, Some("0"), None));
        assert_eq!((first.conversation.as_deref(), first.shared_tokens), (Some("0"), Some(16)));
        let second = &trace.rows[1];
        assert_eq!((second.at_ms, second.id.as_deref(), second.parent.as_deref()), (0.003, Some("1"), Some("0")));
        assert_eq!((second.conversation.as_deref(), second.turn, trace.rows.len()), (Some("1"), Some(1), 2));
    }

    /// A forest: each request may share part of an earlier one.
    fn history() -> impl Strategy<Value = Vec<HistoryRow>> {
        let one = (any::<proptest::sample::Index>(), 0_u32..12, 1_u32..500);
        proptest::collection::vec(one, 1..40).prop_map(|drawn| {
            let mut history: Vec<HistoryRow> = Vec::new();
            for (id, (parent, share, prompt)) in (0_i64..).zip(drawn) {
                let parent = (!history.is_empty() && share > 0).then(|| history[parent.index(history.len())]);
                let longest = parent.map_or(0, |parent| parent.prompt_tokens.min(prompt));
                let shared = longest * share.min(10) / 10;
                history.push(request(id, parent.map(|parent| parent.id), shared, prompt));
            }
            history
        })
    }

    proptest! {
        #![proptest_config(Config { rng_seed: RngSeed::Fixed(3), failure_persistence: None, cases: 128, ..Config::default() })]

        #[test]
        fn lengths_stay_and_equal_blocks_are_what_is_shared(history in history()) {
            let rows = from_history(history.iter().copied(), 16).rows;
            prop_assert_eq!(rows.len(), history.len());
            for (row, request) in rows.iter().zip(&history) {
                prop_assert_eq!((row.input_tokens, row.output_tokens), (request.prompt_tokens, request.output_tokens));
                prop_assert_eq!(row.shared_tokens, Some(request.shared_tokens));
                prop_assert_eq!(row.blocks.len(), request.prompt_tokens.div_ceil(16) as usize);
                let parent = request.parent.map(|parent| &rows[usize::try_from(parent).unwrap()]);
                prop_assert_eq!(row.parent.as_deref(), parent.and_then(|parent| parent.id.as_deref()));
                if let Some(parent) = parent {
                    let equal = row.blocks.iter().zip(&parent.blocks).take_while(|(a, b)| a == b).count();
                    let whole = request.shared_tokens as usize / 16;
                    let resent = request.shared_tokens == row.input_tokens && row.input_tokens == parent.input_tokens;
                    prop_assert_eq!(equal, if resent { row.blocks.len() } else { whole });
                }
            }
        }
    }
}
