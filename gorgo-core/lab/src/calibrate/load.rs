//! What else a replica was doing when it served a request, told from the other requests' times.
//!
//! Where rows do not name their replica, the fleet's load is divided evenly among its replicas.

use super::{Measurements, Observation};

/// The load around one request.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Load {
    /// Uncached tokens of requests sent before it that had no first token yet when it was sent; prompt tokens where
    /// nothing is known of the cache.
    pub(super) ahead_tokens: f64,
    /// How many these were.
    pub(super) ahead: f64,
    /// Requests decoding beside it and itself, on average over its own decoding.
    pub(super) batch: f64,
    /// Requests that got their first token during its decoding.
    pub(super) prefills: f64,
    /// Their uncached tokens.
    pub(super) prefilled_tokens: f64,
}

/// Tokens that had to be computed, as far as it is known.
pub(super) fn computed(observation: &Observation) -> f64 {
    observation.uncached_tokens.unwrap_or(observation.prompt_tokens)
}

/// The load around each request, in their order; rows must be sorted.
pub(super) fn loads(measurements: &Measurements) -> Vec<Load> {
    let rows = &measurements.observations;
    let share = 1.0 / measurements.shared_by.max(1.0);
    let mut loads = Vec::with_capacity(rows.len());
    for run in rows.chunk_by(|a, b| a.run == b.run) {
        // Nobody is in flight for longer than this; it bounds the rows to look at.
        let longest = run.iter().map(|row| row.e2e_ms).fold(0.0, f64::max);
        for row in run {
            let (first, end) = (row.sent_ms + row.ttft_ms, row.sent_ms + row.e2e_ms);
            let from = run.partition_point(|other| other.sent_ms < row.sent_ms - longest);
            let to = run.partition_point(|other| other.sent_ms <= end);
            let mut load = Load { batch: 1.0, ..Load::default() };
            for other in run[from..to].iter().filter(|other| !std::ptr::eq(*other, row)) {
                if other.replica != row.replica {
                    continue;
                }
                let share = if row.replica.is_some() { 1.0 } else { share };
                let (other_first, other_end) = (other.sent_ms + other.ttft_ms, other.sent_ms + other.e2e_ms);
                if other.sent_ms < row.sent_ms && other_first > row.sent_ms {
                    load.ahead_tokens += share * computed(other);
                    load.ahead += share;
                }
                if end > first {
                    let beside = (other_end.min(end) - other_first.max(first)).max(0.0);
                    load.batch += share * beside / (end - first);
                }
                if other_first > first && other_first < end {
                    load.prefills += share;
                    load.prefilled_tokens += share * computed(other);
                }
            }
            loads.push(load);
        }
    }
    loads
}
