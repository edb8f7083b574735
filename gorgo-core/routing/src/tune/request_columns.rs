//! The requests of one arm as columns: what objectives read that are not of statistics. The rules for what did not go
//! well are those of [`super::sample`].

use super::cohort::Common;
use super::sample::{Fate, Sample};

/// The requests of one arm that began to be answered. All columns have the same length, in no order that means
/// anything; a number that is not known is NaN.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Requests {
    /// Time from arrival to the first generated content, ms.
    pub ttft_ms: Vec<f64>,
    /// Time from arrival to the last byte, ms; NaN where the client left before it.
    pub e2e_ms: Vec<f64>,
    /// Mean time between tokens, ms.
    pub itl_ms: Vec<f64>,
    /// Prompt tokens.
    pub prompt_tokens: Vec<f64>,
    /// Tokens generated.
    pub completion_tokens: Vec<f64>,
    /// From the first arrival to the last end, s; NaN where the requests are not of one stretch of time, as in a
    /// trial, whose arms take turns.
    pub span_secs: f64,
    /// Requests beyond those in the columns that failed, are overdue, or whose client left after waiting longer than
    /// the median for a first token.
    pub failed: u64,
}

impl Requests {
    /// Those of these samples; `common` is of both arms.
    #[must_use]
    pub fn of(samples: &[&Sample], common: &Common) -> Self {
        let mut requests = Self { span_secs: f64::NAN, ..Self::default() };
        for sample in samples {
            let (ttft, e2e) = match (sample.fate, sample.ttft_ms) {
                (Fate::Failed, _) => {
                    requests.failed += 1;
                    continue;
                }
                (Fate::Left, None) => {
                    requests.failed += u64::from(common.left_for_waiting(sample));
                    continue;
                }
                (Fate::Left, Some(ttft)) => (ttft, f64::NAN),
                // An answer without any token: its end is all there is.
                (Fate::Served, ttft) => (ttft.unwrap_or(sample.e2e_ms), sample.e2e_ms),
            };
            requests.ttft_ms.push(ttft);
            requests.e2e_ms.push(e2e);
            requests.itl_ms.push(sample.itl_ms.unwrap_or(f64::NAN));
            requests.prompt_tokens.push(sample.prompt_tokens.map_or(f64::NAN, f64::from));
            requests.completion_tokens.push(sample.completion_tokens.map_or(f64::NAN, f64::from));
        }
        requests
    }
}
