//! Statistics of a trace: rate, burstiness, lengths, reuse, sessions. Pure arithmetic on the rows.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use super::summary::mean;
use super::{RecordedTrace, TraceRow};
use gorgo_routing::model::quantile;

/// Widths of the bins in which arrivals are counted, s.
pub const FANO_SECS: [u32; 3] = [1, 10, 60];

/// Mean and quantiles of a length, tokens, or of a count.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DistributionStats {
    /// Mean.
    pub mean: Option<f64>,
    /// Median (nearest rank, like all quantiles here).
    pub p50: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Largest value.
    pub max: Option<f64>,
}

impl DistributionStats {
    fn from_values(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        Self {
            mean: mean(&sorted),
            p50: quantile(&sorted, 0.50),
            p90: quantile(&sorted, 0.90),
            p95: quantile(&sorted, 0.95),
            p99: quantile(&sorted, 0.99),
            max: sorted.last().copied(),
        }
    }
}

/// Share of the input that was seen before in the trace, with a cache that never evicts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ReuseStats {
    /// Tokens of blocks seen before / all input tokens; a partial last block counts with the tokens it has.
    pub tokens: f64,
    /// The same counted in blocks.
    pub blocks: f64,
    /// Like `tokens`, for blocks seen before in the same user's requests; `None` if the trace has no users.
    pub same_user_tokens: Option<f64>,
}

/// Method by which requests were assigned to sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionSource {
    /// The trace names conversations or users.
    Named,
    /// A request belongs to the session that last used the deepest of its blocks. Leading blocks that more than half of
    /// all requests begin with are ignored.
    Inferred,
}

/// Sessions and the requests in them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SessionStats {
    /// Method by which they were found.
    pub source: SessionSource,
    /// Number of sessions.
    pub count: usize,
    /// Requests per session.
    pub turns: DistributionStats,
    /// Share of sessions with a single request.
    pub single_request_share: f64,
}

/// Statistics of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceStats {
    /// Number of requests.
    pub rows: usize,
    /// Time from the first arrival to the last, s.
    pub duration_secs: f64,
    /// Requests per second: rows / duration.
    pub rate: Option<f64>,
    /// Standard deviation / mean of the gaps between arrivals; Poisson is 1.
    pub gap_cv: Option<f64>,
    /// Variance / mean of arrivals per bin of [`FANO_SECS`]; Poisson is 1. `None` for fewer than two bins.
    pub fano: [Option<f64>; 3],
    /// Prompt length, tokens.
    pub input: DistributionStats,
    /// Answer length, tokens.
    pub output: DistributionStats,
    /// Tokens per block id.
    pub block_tokens: u32,
    /// Reuse; `None` if no row has block ids.
    pub reuse: Option<ReuseStats>,
    /// Number of users; `None` if the trace names none.
    pub users: Option<usize>,
    /// Share of all requests that come from the busiest user.
    pub largest_user: Option<f64>,
    /// Sessions; `None` if the trace has neither names nor block ids to find them by.
    pub sessions: Option<SessionStats>,
}

impl TraceStats {
    /// Computes the statistics of a trace.
    #[must_use]
    pub fn from_trace(trace: &RecordedTrace) -> Self {
        let rows = &trace.rows;
        let (first, last) = (rows.first().map_or(0.0, |row| row.at_ms), rows.last().map_or(0.0, |row| row.at_ms));
        let duration_secs = (last - first) / 1e3;
        // Fresh ids never repeat; counted as reuse they would report 0 instead of "unknown".
        let has_blocks = trace.rows_without_blocks < rows.len();
        let by_user = counted(rows.iter().filter_map(|row| row.user.as_deref()));
        let users = (!by_user.is_empty()).then_some(by_user.len());
        Self {
            rows: rows.len(),
            duration_secs,
            rate: (duration_secs > 0.0).then(|| number(rows.len()) / duration_secs),
            gap_cv: gap_cv(rows),
            fano: FANO_SECS.map(|secs| fano(rows, f64::from(secs) * 1e3)),
            input: DistributionStats::from_values(rows.iter().map(|row| f64::from(row.input_tokens))),
            output: DistributionStats::from_values(rows.iter().map(|row| f64::from(row.output_tokens))),
            block_tokens: trace.block_tokens,
            reuse: has_blocks.then(|| reuse(trace, users.is_some())),
            users,
            largest_user: by_user.values().max().map(|most| number(*most) / number(rows.len())),
            sessions: sessions(rows, has_blocks),
        }
    }
}

fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

fn counted<K: Eq + Hash>(keys: impl Iterator<Item = K>) -> HashMap<K, usize> {
    let mut counts = HashMap::new();
    for key in keys {
        *counts.entry(key).or_default() += 1;
    }
    counts
}

/// Population standard deviation / mean; `None` if the mean is 0.
fn cv(values: &[f64]) -> Option<f64> {
    let middle = mean(values).filter(|middle| *middle > 0.0)?;
    let squares: Vec<f64> = values.iter().map(|value| (value - middle).powi(2)).collect();
    Some(mean(&squares)?.sqrt() / middle)
}

fn gap_cv(rows: &[TraceRow]) -> Option<f64> {
    let gaps: Vec<f64> = rows.windows(2).map(|pair| pair[1].at_ms - pair[0].at_ms).collect();
    cv(&gaps)
}

/// Variance / mean of the arrivals per bin, over all bins from the first arrival to the one with the last arrival.
fn fano(rows: &[TraceRow], width_ms: f64) -> Option<f64> {
    let start = rows.first()?.at_ms;
    let bin = |row: &TraceRow| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rows are sorted; saturates")]
        let bin = ((row.at_ms - start) / width_ms).floor() as u64;
        bin
    };
    let bins = u32::try_from(bin(rows.last()?) + 1).ok().filter(|bins| *bins >= 2).map(f64::from)?;
    let middle = number(rows.len()) / bins;
    let counts = counted(rows.iter().map(bin));
    // Only bins with arrivals are stored; each empty bin is `middle` away from the mean.
    let filled: f64 = counts.values().map(|count| (number(*count) - middle).powi(2)).sum();
    let empty = (bins - number(counts.len())) * middle.powi(2);
    Some((filled + empty) / bins / middle)
}

fn reuse(trace: &RecordedTrace, has_users: bool) -> ReuseStats {
    let mut seen: HashSet<u64> = HashSet::new();
    let mut own: HashSet<(Option<&str>, u64)> = HashSet::new();
    let [mut tokens, mut reused, mut reused_own] = [0_u64; 3];
    let [mut blocks, mut reused_blocks] = [0_usize; 2];
    for row in &trace.rows {
        let mut left = row.input_tokens;
        for block in &row.blocks {
            let length = u64::from(left.min(trace.block_tokens));
            left = left.saturating_sub(trace.block_tokens);
            tokens += length;
            blocks += 1;
            if seen.contains(block) {
                reused += length;
                reused_blocks += 1;
            }
            if has_users && own.contains(&(row.user.as_deref(), *block)) {
                reused_own += length;
            }
        }
        // Added after the whole row: a block that a prompt repeats within itself is no reuse.
        seen.extend(&row.blocks);
        if has_users {
            own.extend(row.blocks.iter().map(|block| (row.user.as_deref(), *block)));
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "token counts far below 2^53")]
    let share = |part: u64| if tokens == 0 { 0.0 } else { part as f64 / tokens as f64 };
    ReuseStats {
        tokens: share(reused),
        blocks: if blocks == 0 { 0.0 } else { number(reused_blocks) / number(blocks) },
        same_user_tokens: has_users.then(|| share(reused_own)),
    }
}

fn sessions(rows: &[TraceRow], has_blocks: bool) -> Option<SessionStats> {
    let named = counted(rows.iter().filter_map(TraceRow::session));
    // Names are exact where the trace has them; inference is a guess from shared prefixes.
    let (source, counts): (_, Vec<usize>) = if !named.is_empty() {
        (SessionSource::Named, named.into_values().collect())
    } else if has_blocks {
        (SessionSource::Inferred, inferred_sessions(rows))
    } else {
        return None;
    };
    Some(SessionStats {
        source,
        count: counts.len(),
        turns: DistributionStats::from_values(counts.iter().map(|count| number(*count))),
        single_request_share: number(counts.iter().filter(|count| **count == 1).count()) / number(counts.len()),
    })
}

/// Returns the number of requests of each session, found as [`SessionSource::Inferred`] describes.
fn inferred_sessions(rows: &[TraceRow]) -> Vec<usize> {
    let common = common_head(rows);
    let mut last_user: HashMap<u64, usize> = HashMap::new();
    let mut counts = Vec::new();
    for row in rows {
        // A prompt head that most users share would join all their sessions into one.
        let blocks = row.blocks.get(common..).unwrap_or_default();
        let session = blocks.iter().rev().find_map(|block| last_user.get(block)).copied().unwrap_or_else(|| {
            counts.push(0);
            counts.len() - 1
        });
        counts[session] += 1;
        last_user.extend(blocks.iter().map(|block| (*block, session)));
    }
    counts
}

/// Returns how many leading blocks more than half of all rows begin with.
fn common_head(rows: &[TraceRow]) -> usize {
    let mut depth = 0;
    loop {
        // An id also identifies all blocks before it, so equal ids at this depth mean an equal head.
        let at_depth = counted(rows.iter().filter_map(|row| row.blocks.get(depth)));
        if at_depth.values().max().is_none_or(|most| most * 2 <= rows.len()) {
            return depth;
        }
        depth += 1;
    }
}

#[cfg(test)]
mod tests;
