//! Constants of an engine's timing, fitted to measurements on it.
//!
//! ```text
//! measured requests → Load (requests ahead, requests decoding) → two linear models, fitted robustly → Calibration
//! ```
//!
//! Time to first token = offset of the replica + uncached tokens × prefill + all tokens × cost of a token, cached or
//! not + requests and tokens ahead; it uses only facts that were known when the request was sent. Time between tokens =
//! step + batch × cost per request + prefills in between. Each constant has a 95 % interval by a block bootstrap, and
//! each model has its error on rows and on runs that it was not fitted on. Nothing here reads a file or a clock.

mod fit;
mod isolated;
mod load;
mod regression;
mod table;

pub use fit::{Calibration, FitQuality, FittedConstant, FittedModel, HoldOut, RunFitQuality, TheilSen, calibrate};
pub use isolated::{IsolatedFit, fit_isolated};
pub use table::{TableError, decisions, measured};

/// Measurements of one request. Times are in ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredRequest {
    /// Run it belongs to: an index into [`Measurements::runs`]. Load is computed within a run.
    pub run: usize,
    /// Replica that served it: an index into [`Measurements::replicas`]; `None` if that was not recorded.
    pub replica: Option<usize>,
    /// Time of sending, from an arbitrary zero of its run.
    pub sent_ms: f64,
    /// Time from sending to the first token.
    pub ttft_ms: f64,
    /// Time from sending to the last byte.
    pub e2e_ms: f64,
    /// Prompt length, tokens as the engine counts them.
    pub prompt_tokens: f64,
    /// Of these, tokens that were not cached at its replica; `None` if that was not recorded.
    pub uncached_tokens: Option<f64>,
    /// Answer length, tokens.
    pub output_tokens: f64,
    /// Round trip to the replica at that time, if it was measured separately.
    pub rtt_ms: Option<f64>,
}

/// Requests of one or more runs on the same fleet.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measurements {
    /// Names of the runs.
    pub runs: Vec<String>,
    /// Names of the replicas.
    pub replicas: Vec<String>,
    /// Number of replicas that shared the load, if rows do not name their replica; 1 otherwise.
    pub shared_by: f64,
    /// Requests that succeeded, those of each run in order of sending.
    pub observations: Vec<MeasuredRequest>,
    /// Number of rows left out because they failed or have no first token.
    pub left_out: usize,
}

impl Measurements {
    /// Sorts the rows by run, then by time.
    pub fn sort(&mut self) {
        self.observations.sort_by(|a, b| a.run.cmp(&b.run).then(a.sent_ms.total_cmp(&b.sent_ms)));
    }
}

#[cfg(test)]
mod tests;
