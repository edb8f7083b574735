//! Block sizes and block ids: how many tokens an id stands for, and ids for rows that came without.
//!
//! The rule of all public traces of this kind: `ids == ceil(input / size)`, the last, partial block has an id too.

use std::collections::HashSet;

use super::TraceError;
use super::read::{FaultList, Numbered};

/// Block sizes that are tried, tokens: engines use 16 to 128, traces 16 (Bailian), 256 (ART-Chat), 512 (Mooncake).
const SMALLEST: u32 = 16;
/// The largest size tried.
const LARGEST: u32 = 1024;
/// The size where a file says nothing of blocks, tokens. Only the rows' own fresh blocks are cut by it.
const WITHOUT_BLOCKS: u32 = 256;

/// Blocks that `tokens` fill.
fn count(tokens: u32, size: u32) -> usize {
    usize::try_from(tokens.div_ceil(size)).unwrap_or(usize::MAX)
}

/// The smallest block size that fits every row: a power of two from 16 to 1024 where one does, else any size in that
/// range. Each row with `k` ids for `n` tokens allows the sizes from `ceil(n / k)` to below `n / (k − 1)`, so the
/// sizes that fit all rows are one interval.
pub(super) fn infer_size(rows: &[Numbered]) -> Result<u32, TraceError> {
    let (mut low, mut high) = (SMALLEST, LARGEST);
    let mut any = false;
    for numbered in rows.iter().filter(|numbered| numbered.has_blocks) {
        any = true;
        let tokens = numbered.row.input_tokens;
        let ids = u32::try_from(numbered.row.blocks.len()).unwrap_or(u32::MAX);
        let least = if ids == 0 { u32::MAX } else { tokens.div_ceil(ids) };
        let most = if ids <= 1 { u32::MAX } else { tokens.div_ceil(ids - 1).saturating_sub(1) };
        let (new_low, new_high) = (low.max(least), high.min(most));
        if new_low > new_high {
            let mut faults = FaultList::default();
            faults.push(
                numbered.line,
                format!(
                    "{ids} hash_ids for {tokens} tokens fit no block size of {SMALLEST} to {LARGEST} tokens that fits \
                     the lines before ({low} to {high}); state it with --block-size"
                ),
            );
            faults.check()?;
        }
        (low, high) = (new_low, new_high);
    }
    if !any {
        return Ok(WITHOUT_BLOCKS);
    }
    let power = low.next_power_of_two();
    Ok(if power <= high { power } else { low })
}

/// Gives each row exactly the ids its length asks for: cuts what is too many, fills up with fresh ids that occur
/// nowhere else. Returns how many rows had none at all, and how many were cut or filled up.
pub(super) fn fit(rows: &mut [Numbered], size: u32) -> (usize, usize) {
    let (mut without, mut refitted) = (0, 0);
    let fits = |numbered: &Numbered| numbered.row.blocks.len() >= count(numbered.row.input_tokens, size);
    let mut fresh = if rows.iter().all(fits) { Fresh::default() } else { Fresh::beside(rows) };
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

/// Ids that the file does not use.
#[derive(Default)]
struct Fresh {
    used: HashSet<u64>,
    candidate: u64,
}

impl Fresh {
    fn beside(rows: &[Numbered]) -> Self {
        let used: HashSet<u64> = rows.iter().flat_map(|numbered| numbered.row.blocks.iter().copied()).collect();
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
