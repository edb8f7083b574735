//! Load of a replica while it served a request, derived from the times of the other requests.
//!
//! If rows do not name their replica, the load of the fleet is divided evenly among its replicas.

use super::{MeasuredRequest, Measurements};

/// Load around one request.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct ConcurrentLoad {
    /// Uncached tokens of requests sent earlier that had no first token yet when this one was sent; prompt tokens if
    /// nothing is known of the cache.
    pub(super) tokens_ahead: f64,
    /// Number of those requests.
    pub(super) requests_ahead: f64,
    /// Average number of requests that decoded during its own decoding, itself included.
    pub(super) batch: f64,
    /// Number of requests that got their first token during its decoding.
    pub(super) prefills: f64,
    /// Uncached tokens of those requests.
    pub(super) prefilled_tokens: f64,
}

/// Returns the tokens that had to be computed, as far as that is known; else the whole prompt.
pub(super) fn computed_tokens(observation: &MeasuredRequest) -> f64 {
    observation.uncached_tokens.unwrap_or(observation.prompt_tokens)
}

/// Returns the load around each request, in the order of the rows, which must be sorted.
pub(super) fn loads(measurements: &Measurements) -> Vec<ConcurrentLoad> {
    let rows = &measurements.observations;
    let share = 1.0 / measurements.shared_by.max(1.0);
    let mut loads = Vec::with_capacity(rows.len());
    for run in rows.chunk_by(|a, b| a.run == b.run) {
        // No request of the run is in flight for longer than this, so only rows within this time can overlap.
        // Without the bound every request would be compared with every other.
        let longest = run.iter().map(|row| row.e2e_ms).fold(0.0, f64::max);
        for row in run {
            let (first, end) = (row.sent_ms + row.ttft_ms, row.sent_ms + row.e2e_ms);
            let from = run.partition_point(|other| other.sent_ms < row.sent_ms - longest);
            let to = run.partition_point(|other| other.sent_ms <= end);
            let mut load = ConcurrentLoad { batch: 1.0, ..ConcurrentLoad::default() };
            for other in run[from..to].iter().filter(|other| !std::ptr::eq(*other, row)) {
                if other.replica != row.replica {
                    continue;
                }
                // Without a replica's name, each other request was on the same one with a chance of one in `shared_by`.
                let share = if row.replica.is_some() { 1.0 } else { share };
                let (other_first, other_end) = (other.sent_ms + other.ttft_ms, other.sent_ms + other.e2e_ms);
                if other.sent_ms < row.sent_ms && other_first > row.sent_ms {
                    load.tokens_ahead += share * computed_tokens(other);
                    load.requests_ahead += share;
                }
                if end > first {
                    // Overlap of the two decoding phases, as a share of this request's own.
                    let beside = (other_end.min(end) - other_first.max(first)).max(0.0);
                    load.batch += share * beside / (end - first);
                }
                if other_first > first && other_first < end {
                    load.prefills += share;
                    load.prefilled_tokens += share * computed_tokens(other);
                }
            }
            loads.push(load);
        }
    }
    loads
}
