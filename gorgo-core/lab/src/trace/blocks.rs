//! Block sizes and block ids: how many tokens an id covers, and ids for rows that have none.
//!
//! All public traces of this kind follow one rule: `ids == ceil(input / size)`; a partial last block has an id too.

use std::collections::HashSet;

use super::TraceError;
use super::read::{FaultList, NumberedRow};

/// Smallest block size tried, tokens: engines use 16 to 128, traces 16 (Bailian), 256 (ART-Chat), 512 (Mooncake).
const SMALLEST: u32 = 16;
/// Largest block size tried, tokens.
const LARGEST: u32 = 1024;
/// Block size of a file without block ids, tokens. It only determines how many fresh ids each row gets.
const WITHOUT_BLOCKS: u32 = 256;

/// Number of blocks that `tokens` fill, counting a partial last one.
fn count(tokens: u32, size: u32) -> usize {
    usize::try_from(tokens.div_ceil(size)).unwrap_or(usize::MAX)
}

/// Returns the smallest block size that fits every row: a power of two from 16 to 1024 if one fits, else any size in
/// that range. Each row with `k` ids for `n` tokens allows the sizes from `ceil(n / k)` to below `n / (k − 1)`, so the
/// sizes that fit all rows form one interval.
pub(super) fn infer_size(rows: &[NumberedRow]) -> Result<u32, TraceError> {
    let (mut low, mut high) = (SMALLEST, LARGEST);
    let mut any = false;
    for numbered in rows.iter().filter(|numbered| numbered.has_blocks) {
        any = true;
        let tokens = numbered.row.input_tokens;
        let ids = u32::try_from(numbered.row.blocks.len()).unwrap_or(u32::MAX);
        // No size gives a prompt zero ids, and one id fits every size from the prompt's length up.
        let least = if ids == 0 { u32::MAX } else { tokens.div_ceil(ids) };
        let most = if ids <= 1 { u32::MAX } else { tokens.div_ceil(ids - 1).saturating_sub(1) };
        let (new_low, new_high) = (low.max(least), high.min(most));
        if new_low > new_high {
            // Report the first line that empties the interval: any line before it can be explained by some size.
            let mut faults = FaultList::default();
            faults.push(
                numbered.line,
                format!(
                    "{ids} hash_ids for {tokens} tokens match no block size from {SMALLEST} to {LARGEST} tokens that also matches \
                     the lines before ({low} to {high}); set it with --block-size"
                ),
            );
            faults.check()?;
        }
        (low, high) = (new_low, new_high);
    }
    if !any {
        return Ok(WITHOUT_BLOCKS);
    }
    // The interval often allows many sizes; those of engines and public traces are powers of two.
    let power = low.next_power_of_two();
    Ok(if power <= high { power } else { low })
}

/// Gives each row exactly as many ids as its length requires: cuts excess ids and fills up with fresh ids that occur
/// nowhere else. Returns how many rows had no ids at all, and how many were cut or filled up.
pub(super) fn fit(rows: &mut [NumberedRow], size: u32) -> (usize, usize) {
    let (mut without, mut refitted) = (0, 0);
    let fits = |numbered: &NumberedRow| numbered.row.blocks.len() >= count(numbered.row.input_tokens, size);
    // Collecting all ids in use costs memory on large traces, so it is done only if some row needs fresh ids.
    let mut fresh = if rows.iter().all(fits) { FreshIds::default() } else { FreshIds::unused_in(rows) };
    for numbered in rows {
        let wanted = count(numbered.row.input_tokens, size);
        let blocks = &mut numbered.row.blocks;
        if !numbered.has_blocks {
            without += 1;
        } else if blocks.len() != wanted {
            refitted += 1;
        }
        blocks.truncate(wanted);
        while blocks.len() < wanted {
            blocks.push(fresh.next());
        }
    }
    (without, refitted)
}

/// Source of ids that the file does not use.
#[derive(Default)]
struct FreshIds {
    used: HashSet<u64>,
    candidate: u64,
}

impl FreshIds {
    fn unused_in(rows: &[NumberedRow]) -> Self {
        let used: HashSet<u64> = rows.iter().flat_map(|numbered| numbered.row.blocks.iter().copied()).collect();
        // Every id above the largest is free. If the largest is `u64::MAX`, the count wraps and `next` skips used ids.
        let candidate = used.iter().max().map_or(0, |largest| largest.wrapping_add(1));
        Self { used, candidate }
    }

    fn next(&mut self) -> u64 {
        while self.used.contains(&self.candidate) {
            self.candidate = self.candidate.wrapping_add(1);
        }
        let id = self.candidate;
        self.candidate = self.candidate.wrapping_add(1);
        id
    }
}
