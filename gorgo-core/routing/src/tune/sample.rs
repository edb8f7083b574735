//! What one counted request says about the weights that routed it.
//!
//! Rules for what did not go well, so that a failing replica never improves a score by sending nothing:
//! - the replica's failure or a time-out: a bad sample. Its times count as the worst of both arms, or as the time it
//!   took where that is longer;
//! - a client that left before its first token: a bad sample where it had waited longer than the median, else none;
//! - a client that left later: its TTFT counts, its E2E does not;
//! - a client's own error (4xx), a refusal, the router's shutdown: no sample.
//!
//! A retried request is one sample, of the weights that made its first decision; its TTFT contains the retry.

use crate::model::{ErrorClass, OutcomeRecord};

/// How a request ended, as far as a score cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// With its whole answer.
    Served,
    /// By the replica's or the network's fault, or it is overdue.
    Failed,
    /// By its client.
    Left,
}

/// One counted request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Time to first token, ms.
    pub ttft_ms: Option<f64>,
    /// Time to the end, however it came, ms.
    pub e2e_ms: f64,
    /// Mean gap between tokens, ms.
    pub itl_ms: Option<f64>,
    /// Prompt tokens, as the engine counted them.
    pub prompt_tokens: Option<u32>,
    /// Tokens generated.
    pub completion_tokens: Option<u32>,
    /// Who served, a [`crate::model::ReplicaId`].
    pub replica: u16,
    /// What the request asked for whoever serves it: ln(1 + uncached tokens at the replica with the longest prefix).
    /// Explains much of TTFT, and no choice of weights can change it.
    pub size: f64,
    /// How it ended.
    pub fate: Fate,
}

impl Sample {
    /// The sample in an outcome; `None` where it says nothing of the weights.
    #[must_use]
    pub fn of(outcome: &OutcomeRecord, replica: u16, size: f64) -> Option<Self> {
        let fate = match outcome.error {
            None => Fate::Served,
            Some(ErrorClass::ClientGone) => Fate::Left,
            Some(ErrorClass::Refused | ErrorClass::ClientError | ErrorClass::LostRace | ErrorClass::Shutdown) => {
                return None;
            }
            Some(_) => Fate::Failed,
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

    /// A request that should have ended by now: it is as bad as a failure.
    #[must_use]
    pub const fn overdue(waited_ms: f64, replica: u16, size: f64) -> Self {
        let fate = Fate::Failed;
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

/// µs → ms.
#[expect(clippy::cast_precision_loss, reason = "spans of requests stay far below 2^53 µs")]
fn millis(micros: i64) -> f64 {
    micros as f64 / 1e3
}
