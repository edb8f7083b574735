//! Ring 1: what an engine's times are made of, fitted to what was measured on it.
//!
//! ```text
//! measured requests → Load (who was ahead, who was decoding) → two linear models, fitted robustly → Calibration
//! ```
//!
//! Time to first token = offset of the replica + uncached tokens × prefill + all tokens × what each costs anyway + what
//! was ahead of it; only facts that were known when the request was sent. Time between tokens = step + batch × per request + prefills that came between.
//! Each constant has a 95 % interval by a block bootstrap, and each model its error on rows and on runs that it was not
//! fitted on. Nothing here reads a file or a clock.

mod alone;
mod fit;
mod load;
mod regression;
mod table;

pub use alone::{Alone, alone};
pub use fit::{Calibration, Constant, Fitted, HoldOut, Quality, RunQuality, TheilSen, calibrate};
pub use table::{TableError, decisions, measured};

/// One request as it was measured. Times are ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// Which run it belongs to: a row of [`Measurements::runs`]. Loads are reckoned within a run.
    pub run: usize,
    /// Who served it: a row of [`Measurements::replicas`]; `None` where that was not recorded.
    pub replica: Option<usize>,
    /// When it was sent, from any zero of its run.
    pub sent_ms: f64,
    /// From there to the first token.
    pub ttft_ms: f64,
    /// From there to the last byte.
    pub e2e_ms: f64,
    /// Prompt, tokens as the engine counts them.
    pub prompt_tokens: f64,
    /// Of these, not cached where it was served; `None` where that was not recorded.
    pub uncached_tokens: Option<f64>,
    /// Answer, tokens.
    pub output_tokens: f64,
    /// Round trip to the replica at that time, where it was measured apart.
    pub rtt_ms: Option<f64>,
}

/// Requests of one or more runs on the same fleet.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measurements {
    /// Names of the runs.
    pub runs: Vec<String>,
    /// Names of the replicas.
    pub replicas: Vec<String>,
    /// How many replicas shared the load, where rows do not name theirs; 1 otherwise.
    pub shared_by: f64,
    /// The requests that succeeded, each run's in order of sending.
    pub observations: Vec<Observation>,
    /// Rows left out: failed, or without a first token.
    pub left_out: usize,
}

impl Measurements {
    /// Brings the rows into order: by run, then by time.
    pub fn sort(&mut self) {
        self.observations.sort_by(|a, b| a.run.cmp(&b.run).then(a.sent_ms.total_cmp(&b.sent_ms)));
    }
}

#[cfg(test)]
mod tests;
