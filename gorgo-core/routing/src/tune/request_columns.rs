//! Requests of one arm as columns, for objectives that do not read statistics. Requests that did not go well follow the
//! rules of [`super::sample`].

use super::cohort::CohortBaseline;
use super::sample::{SampleOutcome, TuningSample};

/// Answered requests of one arm. All columns have the same length, and the order has no meaning; an unknown number is
/// NaN.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestColumns {
    /// Time from arrival to the first generated content, ms.
    pub ttft_ms: Vec<f64>,
    /// Time from arrival to the last byte, ms; NaN if the client left before it.
    pub e2e_ms: Vec<f64>,
    /// Mean time between tokens, ms.
    pub itl_ms: Vec<f64>,
    /// Prompt tokens.
    pub prompt_tokens: Vec<f64>,
    /// Generated tokens.
    pub completion_tokens: Vec<f64>,
    /// Time from the first arrival to the last end, s; NaN if the requests do not form one stretch of time, as in a
    /// trial, whose arms alternate.
    pub span_secs: f64,
    /// Requests in addition to those in the columns that failed, are overdue, or whose client left after waiting longer
    /// than the median for a first token.
    pub failed: u64,
}

impl RequestColumns {
    /// Columns of these samples; `common` is computed over both arms.
    #[must_use]
    pub fn from_samples(samples: &[&TuningSample], common: &CohortBaseline) -> Self {
        let mut requests = Self { span_secs: f64::NAN, ..Self::default() };
        for sample in samples {
            let (ttft, e2e) = match (sample.fate, sample.ttft_ms) {
                // Failures have no meaningful times; they are counted instead.
                (SampleOutcome::Failed, _) => {
                    requests.failed += 1;
                    continue;
                }
                (SampleOutcome::Left, None) => {
                    requests.failed += u64::from(common.left_after_long_wait(sample));
                    continue;
                }
                (SampleOutcome::Left, Some(ttft)) => (ttft, f64::NAN),
                // An answer without any token: its end is the only time there is.
                (SampleOutcome::Served, ttft) => (ttft.unwrap_or(sample.e2e_ms), sample.e2e_ms),
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
