//! Synthetic workloads: traces with the statistics of real ones, from a seed.
//!
//! ```text
//! Profile (plain data) → Workload (parameters, any of them overridden) → generate(seed, minutes) → Trace
//! ServeGen tables (rates and lengths of each client) → servegen → Trace
//! ```
//!
//! Everything is drawn from one ChaCha8 generator in a fixed order: equal inputs give equal traces.

mod blocks;
mod conversations;
mod draw;
mod independent;
mod parameter;
mod profile;
mod servegen;

pub use conversations::Conversations;
pub use independent::Independent;
pub use parameter::{ParameterError, ParameterValue, WorkloadParameter};
pub use profile::{GENERATED, GeneratedProfile};
pub use servegen::{ServeGen, ServeGenError, TrafficClient, TrafficWindow};

use super::{RecordedTrace, TraceFormat, TraceRow};

/// Length of a window in the sources of the profiles, minutes.
pub const MINUTES: f64 = 30.0;

/// Model of a generated workload with all its parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkloadModel {
    /// Users with conversations whose requests share a prefix, plus a probe and tiny requests: ART-Chat.
    Conversations(Conversations),
    /// Independent requests, except for a pool of repeated prompts: WildChat, LMSYS.
    Independent(Independent),
}

impl WorkloadModel {
    /// Returns all parameters with their current values.
    #[must_use]
    pub fn parameter_values(&self) -> Vec<ParameterValue> {
        match self {
            Self::Conversations(numbers) => parameter::parameter_values(numbers, Conversations::PARAMETERS),
            Self::Independent(numbers) => parameter::parameter_values(numbers, Independent::PARAMETERS),
        }
    }

    /// Overrides one parameter.
    ///
    /// # Errors
    /// There is no such parameter, or the value is out of range; then nothing is changed.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), ParameterError> {
        match self {
            Self::Conversations(numbers) => parameter::set(numbers, Conversations::PARAMETERS, name, value),
            Self::Independent(numbers) => parameter::set(numbers, Independent::PARAMETERS, name, value),
        }
    }

    /// Multiplies all arrival rates.
    pub fn scale_rate(&mut self, factor: f64) {
        match self {
            Self::Conversations(numbers) => {
                numbers.probe_rate *= factor;
                numbers.micro_rate *= factor;
                numbers.conversation_rate *= factor;
            }
            Self::Independent(numbers) => numbers.rate *= factor,
        }
    }
}

/// Generates `minutes` of a workload. Rows are in order of arrival; times are whole µs.
#[must_use]
pub fn generate(workload: &WorkloadModel, seed: u64, minutes: f64) -> RecordedTrace {
    match workload {
        WorkloadModel::Conversations(numbers) => conversations::generate(numbers, seed, minutes),
        WorkloadModel::Independent(numbers) => independent::generate(numbers, seed, minutes),
    }
}

/// Makes a trace of generated rows, which must be in order of arrival, and numbers them.
fn trace(mut rows: Vec<TraceRow>, block_tokens: u32) -> RecordedTrace {
    for (index, row) in rows.iter_mut().enumerate() {
        row.index = index;
    }
    RecordedTrace { format: TraceFormat::Mooncake, block_tokens, rows, rows_without_blocks: 0, rows_refitted: 0 }
}

#[cfg(test)]
mod tests;
