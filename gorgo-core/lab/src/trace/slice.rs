//! Cuts a part out of a trace, as a separate trace.

use std::collections::HashSet;
use std::sync::Arc;

use super::RecordedTrace;

/// Selection of the part.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SliceOptions {
    /// Start of the part, ms after the trace's first request.
    pub from_ms: f64,
    /// End of the part (exclusive), ms after the trace's first request.
    pub to_ms: Option<f64>,
    /// Longest prompt that is kept, tokens.
    pub max_input_tokens: Option<u32>,
    /// Shortest prompt that is kept, tokens.
    pub min_input_tokens: Option<u32>,
    /// Length to which longer answers are cut, tokens.
    pub max_output_tokens: Option<u32>,
    /// Maximum number of requests, counted after dropping.
    pub limit: Option<usize>,
}

/// Counts of what slicing removed and changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SliceCounts {
    /// Requests of the trace.
    pub rows: usize,
    /// Requests outside the selected time.
    pub outside: usize,
    /// Of the rest, requests dropped because of their prompt's length.
    pub dropped: usize,
    /// Of the rest, requests beyond the limit.
    pub beyond_limit: usize,
    /// Answers that were cut.
    pub outputs_capped: usize,
}

/// Cuts the part out. Times count from `from_ms`. A parent outside the part is removed from the row; the length shared
/// with it is kept.
pub fn slice(trace: &mut RecordedTrace, part: &SliceOptions) -> SliceCounts {
    let mut counts = SliceCounts { rows: trace.rows.len(), ..SliceCounts::default() };
    let start_ms = trace.rows.first().map_or(0.0, |row| row.at_ms) + part.from_ms;
    let length_ms = part.to_ms.map_or(f64::INFINITY, |to_ms| to_ms - part.from_ms);
    let mut kept = 0;
    trace.rows.retain_mut(|row| {
        row.at_ms -= start_ms;
        // The end is exclusive, so that adjacent parts have no request in common.
        if !(row.at_ms >= 0.0 && row.at_ms < length_ms) {
            counts.outside += 1;
        } else if part.max_input_tokens.is_some_and(|most| row.input_tokens > most)
            || part.min_input_tokens.is_some_and(|least| row.input_tokens < least)
        {
            counts.dropped += 1;
        } else if part.limit.is_some_and(|limit| kept >= limit) {
            counts.beyond_limit += 1;
        } else {
            if let Some(most) = part.max_output_tokens.filter(|most| row.output_tokens > *most) {
                row.output_tokens = most;
                counts.outputs_capped += 1;
            }
            row.index = kept;
            kept += 1;
            return true;
        }
        false
    });
    // A parent that was cut away would be a dangling name. The shared length stays: it still describes the prompt.
    let ids: HashSet<Arc<str>> = trace.rows.iter().filter_map(|row| row.id.clone()).collect();
    for row in &mut trace.rows {
        row.parent = row.parent.take().filter(|parent| ids.contains(parent));
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    #[test]
    fn a_part_has_its_own_time_and_forgets_parents_outside() {
        let line = |at: u32, input: u32, id: u32, parent: u32| {
            format!(
                "{{\"timestamp\":{at},\"input_length\":{input},\"output_length\":9,\"id\":{id},\"parent\":{parent}}}\n"
            )
        };
        let text: String =
            [(500, 5, 0, 0), (1500, 6, 1, 0), (2000, 90, 2, 1), (2400, 1, 3, 1), (2499, 7, 4, 1), (2500, 8, 5, 4)]
                .map(|(at, input, id, parent)| line(at, input, id, parent))
                .concat();
        let mut trace = read(text.as_bytes(), Some(16)).unwrap();
        let part = SliceOptions {
            from_ms: 1000.0,
            to_ms: Some(2000.0),
            max_input_tokens: Some(80),
            min_input_tokens: Some(2),
            max_output_tokens: Some(4),
            limit: Some(2),
        };
        let counts = slice(&mut trace, &part);
        let expected = SliceCounts { rows: 6, outside: 2, dropped: 2, beyond_limit: 0, outputs_capped: 2 };
        assert_eq!(counts, expected);
        let rows: Vec<_> = trace
            .rows
            .iter()
            .map(|row| (row.index, row.at_ms, row.id.as_deref().unwrap(), row.parent.as_deref(), row.output_tokens))
            .collect();
        assert_eq!(rows, [(0, 0.0, "1", None, 4), (1, 999.0, "4", Some("1"), 4)]);
        let counts = slice(&mut trace, &SliceOptions { limit: Some(1), ..SliceOptions::default() });
        assert_eq!((counts.beyond_limit, trace.rows.len()), (1, 1));
    }
}
