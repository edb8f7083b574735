//! Changes to a trace before a replay: which rows, how long, how fast. The steps in order: spread, drop, limit, cap,
//! scale. Everything dropped or cut is counted.

use super::{RecordedTrace, TraceRow};

/// Changes to a trace before it is replayed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShapeOptions {
    /// Factor on all gaps between requests; a larger one lightens the load. At least 0; 0 sends everything at once.
    pub time_scale: f64,
    /// Maximum number of requests, counted after dropping.
    pub limit: Option<usize>,
    /// Longest prompt that is kept, tokens.
    pub max_input_tokens: Option<u32>,
    /// Length to which longer answers are cut, tokens.
    pub max_output_tokens: Option<u32>,
    /// Spread rows that share a timestamp evenly up to the next timestamp. Traces with coarse clocks, such as
    /// Mooncake's 3 s, otherwise arrive in bursts that no user made.
    pub spread: bool,
}

impl Default for ShapeOptions {
    fn default() -> Self {
        Self { time_scale: 1.0, limit: None, max_input_tokens: None, max_output_tokens: None, spread: true }
    }
}

/// Counts of what shaping removed and changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShapeCounts {
    /// Rows of the trace.
    pub rows: usize,
    /// Rows dropped because of their prompt's length, among those read before the limit was reached.
    pub dropped_over_input: usize,
    /// Rows not read because the limit was reached.
    pub beyond_limit: usize,
    /// Answers that were cut.
    pub outputs_capped: usize,
    /// Kept rows whose time was moved because other rows had the same timestamp.
    pub spread: usize,
}

/// A trace ready to be replayed.
#[derive(Debug, Clone, PartialEq)]
pub struct ShapedTrace {
    /// The requests by time; `at_ms` counts from the first and is scaled.
    pub rows: Vec<TraceRow>,
    /// Tokens per block id.
    pub block_tokens: u32,
    /// Counts of what was removed and changed.
    pub counts: ShapeCounts,
}

/// Shapes a trace.
#[must_use]
pub fn shape(trace: RecordedTrace, shape: &ShapeOptions) -> ShapedTrace {
    let RecordedTrace { block_tokens, rows: mut all, .. } = trace;
    let mut counts = ShapeCounts { rows: all.len(), ..ShapeCounts::default() };
    // Spread before dropping: a group's rows must share the whole gap, including rows that are dropped afterwards.
    let moved = if shape.spread { spread(&mut all) } else { Vec::new() };
    // Advances in step with the rows, also over dropped ones.
    let mut moved = moved.into_iter().chain(std::iter::repeat(false));
    let limit = shape.limit.unwrap_or(usize::MAX);
    let mut rows = Vec::with_capacity(all.len().min(limit));
    let mut left = all.into_iter();
    while rows.len() < limit {
        let Some(mut row) = left.next() else { break };
        let moved = moved.next() == Some(true);
        if shape.max_input_tokens.is_some_and(|most| row.input_tokens > most) {
            counts.dropped_over_input += 1;
            continue;
        }
        if let Some(most) = shape.max_output_tokens.filter(|most| row.output_tokens > *most) {
            row.output_tokens = most;
            counts.outputs_capped += 1;
        }
        counts.spread += usize::from(moved);
        rows.push(row);
    }
    // The loop stops at the limit without using up the iterator, so the rest can be counted.
    counts.beyond_limit = left.len();
    // Relative to the first row that is sent, so that dropped rows at the start leave no idle time.
    let start_ms = rows.first().map_or(0.0, |row| row.at_ms);
    for row in &mut rows {
        row.at_ms = (row.at_ms - start_ms) * shape.time_scale;
    }
    ShapedTrace { rows, block_tokens, counts }
}

/// Spreads each group of rows with one timestamp evenly over the time to the next timestamp, and the last group over
/// the gap before it. Returns for each row whether it moved. Rows must be sorted by time, and stay sorted.
fn spread(rows: &mut [TraceRow]) -> Vec<bool> {
    let mut moved = Vec::with_capacity(rows.len());
    let mut gap_ms = 0.0;
    let mut start = 0;
    while let Some(at_ms) = rows.get(start).map(|row| row.at_ms) {
        let group = rows[start..].iter().take_while(|row| row.at_ms <= at_ms).count();
        let next = start + group;
        // The last group has no next timestamp: `gap_ms` still holds the gap before it.
        if let Some(row) = rows.get(next) {
            gap_ms = row.at_ms - at_ms;
        }
        let count = u32::try_from(group).map_or(f64::INFINITY, f64::from);
        let mut position = 0.0;
        for row in &mut rows[start..next] {
            row.at_ms = at_ms + gap_ms * position / count;
            moved.push(row.at_ms > at_ms);
            position += 1.0;
        }
        start = next;
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::super::{TraceFormat, read};
    use super::*;

    fn trace(rows: &[(f64, u32, u32)]) -> RecordedTrace {
        let rows = rows.iter().enumerate().map(|(index, (at_ms, input, output))| TraceRow {
            index,
            at_ms: *at_ms,
            input_tokens: *input,
            output_tokens: *output,
            ..TraceRow::default()
        });
        RecordedTrace {
            format: TraceFormat::Mooncake,
            block_tokens: 16,
            rows: rows.collect(),
            rows_without_blocks: 0,
            rows_refitted: 0,
        }
    }

    fn times(shaped: &ShapedTrace) -> Vec<f64> {
        shaped.rows.iter().map(|row| row.at_ms).collect()
    }

    #[test]
    fn rows_of_one_timestamp_are_spread_to_the_next_and_the_last_over_the_gap_before() {
        let recorded = [(1000.0, 1, 1), (1000.0, 1, 1), (1000.0, 1, 1), (4000.0, 1, 1), (4000.0, 1, 1)];
        let spread = shape(trace(&recorded), &ShapeOptions::default());
        assert_eq!(times(&spread), [0.0, 1000.0, 2000.0, 3000.0, 4500.0]);
        assert_eq!(spread.counts.spread, 3);
        let kept = shape(trace(&recorded), &ShapeOptions { spread: false, ..ShapeOptions::default() });
        assert_eq!(times(&kept), [0.0, 0.0, 0.0, 3000.0, 3000.0]);
        assert_eq!(kept.counts.spread, 0);
    }

    #[test]
    fn a_trace_of_one_timestamp_stays_a_burst() {
        let shaped = shape(trace(&[(7.0, 1, 1), (7.0, 1, 1)]), &ShapeOptions::default());
        assert_eq!((times(&shaped), shaped.counts.spread), (vec![0.0, 0.0], 0));
    }

    #[test]
    fn dropping_comes_before_the_limit_and_everything_is_counted() {
        let recorded = [(0.0, 99, 1), (10.0, 5, 300), (20.0, 50, 1), (30.0, 6, 128), (50.0, 7, 400), (60.0, 99, 1)];
        let wanted = ShapeOptions {
            time_scale: 0.5,
            limit: Some(2),
            max_input_tokens: Some(20),
            max_output_tokens: Some(128),
            ..ShapeOptions::default()
        };
        let shaped = shape(trace(&recorded), &wanted);
        assert_eq!(shaped.rows.iter().map(|row| row.index).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(shaped.rows.iter().map(|row| row.output_tokens).collect::<Vec<_>>(), [128, 128]);
        // Gaps are scaled and time starts at the first request that is sent.
        assert_eq!(times(&shaped), [0.0, 10.0]);
        let expected = ShapeCounts { rows: 6, dropped_over_input: 2, beyond_limit: 2, outputs_capped: 1, spread: 0 };
        assert_eq!(shaped.counts, expected);
    }

    #[test]
    fn spreading_keeps_the_order_of_a_real_file() {
        let text = "{\"timestamp\":0,\"input_length\":1,\"output_length\":1}\n".repeat(5)
            + &"{\"timestamp\":3000,\"input_length\":1,\"output_length\":1}\n".repeat(7);
        let shaped = shape(read(text.as_bytes(), None).unwrap(), &ShapeOptions::default());
        assert!(shaped.rows.iter().enumerate().all(|(position, row)| row.index == position));
        assert!(times(&shaped).windows(2).all(|pair| pair[0] < pair[1]), "{:?}", times(&shaped));
    }
}
