//! Rows in another order give the same numbers in that order.

use gorgo_routing::model::Candidates;

use super::facts::{invented, request};
use super::subject::Subject;

const ROWS: u16 = 17;

pub(super) fn check(subject: &Subject) -> Result<String, String> {
    let facts = invented(ROWS);
    let count = usize::from(ROWS);
    let mut permuted = invented(0);
    permuted.reset(count, 0);
    // 5 and 17 share no divisor, so this reaches every row once.
    let from = |row: usize| (row * 5 + 3) % count;
    for row in 0..count {
        copy_row(&facts, from(row), &mut permuted, row);
    }
    let (Some(plain), Some(mixed)) = (subject.ask(&request(), &facts)?, subject.ask(&request(), &permuted)?) else {
        return Ok("no opinion".to_owned());
    };
    match (0..count).find(|row| mixed[*row] != plain[from(*row)]) {
        None => Ok("the same numbers in the same order".to_owned()),
        Some(row) => {
            let (was, is) = (plain[from(row)], mixed[row]);
            Err(format!("row {} was {was:?} and is {is:?} as row {row}", from(row)))
        }
    }
}

/// Copies all facts of one replica.
pub(super) fn copy_row(from: &Candidates, source: usize, to: &mut Candidates, target: usize) {
    macro_rules! copy {
        ($($column:ident)*) => { $(to.$column[target] = from.$column[source];)* };
    }
    copy!(
        replica name_hash region available rtt_ms rtt_p95_ms rtt_source cached_tokens queued_tokens queued_tokens_first
        queued_uncached_tokens_completion queued_uncached_tokens inflight decoding inflight_since_report engine_running
        engine_waiting kv_used_tokens kv_used_share engine_throughput report_age_ms latency_ms prefill_ms_per_token
        queue_ms_per_token decode_ms_per_request intercept_ms capacity_tokens
    );
}
