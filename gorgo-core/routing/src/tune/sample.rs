//! Evidence of one counted request about the weights that routed it.
//!
//! Rules for requests that did not go well, so that a failing replica never improves a score by sending nothing:
//! - failure of the replica, or a timeout: a bad sample. Its times count as the worst of both arms, or as the time it
//!   took where that is longer;
//! - client left before its first token: a bad sample if it had waited longer than the median, otherwise none;
//! - client left later: its TTFT counts, its E2E does not;
//! - the client's own error (4xx), a refusal, the router's shutdown: no sample.
//!
//! A retried request is one sample, of the weights that made its first decision; its TTFT contains the retry.

use crate::model::{ErrorClass, OutcomeRecord};

/// End of a request, as far as a score is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleOutcome {
    /// Ended with its complete answer.
    Served,
    /// Failed through the replica or the network, or is overdue.
    Failed,
    /// Ended by its client.
    Left,
}

/// Counted request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TuningSample {
    /// Time to first token, ms.
    pub ttft_ms: Option<f64>,
    /// Time to the end of whatever kind, ms.
    pub e2e_ms: f64,
    /// Mean gap between tokens, ms.
    pub itl_ms: Option<f64>,
    /// Prompt tokens, as the engine counted them.
    pub prompt_tokens: Option<u32>,
    /// Generated tokens.
    pub completion_tokens: Option<u32>,
    /// Replica that served it, a [`crate::model::ReplicaId`].
    pub replica: u16,
    /// Work of the request whichever replica serves it: ln(1 + uncached tokens at the replica with the longest prefix).
    /// Explains much of TTFT, and no choice of weights can change it.
    pub size: f64,
    /// End of the request.
    pub fate: SampleOutcome,
}

impl TuningSample {
    /// Sample of an outcome; `None` if it shows nothing about the weights.
    #[must_use]
    pub fn from_outcome(outcome: &OutcomeRecord, replica: u16, size: f64) -> Option<Self> {
        let fate = match outcome.error {
            // No error: the answer was delivered to its end.
            None => SampleOutcome::Served,
            Some(ErrorClass::ClientGone) => SampleOutcome::Left,
            // None of these depends on which replica was chosen.
            Some(ErrorClass::Refused | ErrorClass::ClientError | ErrorClass::LostHedge | ErrorClass::Shutdown) => {
                return None;
            }
            Some(_) => SampleOutcome::Failed,
        };
        Some(Self {
            ttft_ms: outcome.ttft_us.map(millis),
            e2e_ms: millis(outcome.e2e_us),
            itl_ms: outcome.itl_mean_us.map(millis),
            prompt_tokens: outcome.prompt_tokens,
            completion_tokens: outcome.completion_tokens,
            replica,
            size,
            fate,
        })
    }

    /// Sample of a request that should have ended by now: as bad as a failure.
    #[must_use]
    pub const fn overdue(waited_ms: f64, replica: u16, size: f64) -> Self {
        let fate = SampleOutcome::Failed;
        Self {
            ttft_ms: None,
            e2e_ms: waited_ms,
            itl_ms: None,
            prompt_tokens: None,
            completion_tokens: None,
            replica,
            size,
            fate,
        }
    }
}

/// Converts µs to ms.
#[expect(clippy::cast_precision_loss, reason = "spans of requests stay far below 2^53 µs")]
fn millis(micros: i64) -> f64 {
    micros as f64 / 1e3
}
