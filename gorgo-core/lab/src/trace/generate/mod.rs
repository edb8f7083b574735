//! Synthetic workloads: traces with the statistics of real ones, from a seed.
//!
//! ```text
//! Profile (plain data) → Workload (its numbers, any of them overridden) → generate(seed, minutes) → Trace
//! ServeGen tables (a client's rates and lengths) → servegen → Trace
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
pub use parameter::{Parameter, ParameterError, Stated};
pub use profile::{GENERATED, GeneratedProfile};
pub use servegen::{Client, ServeGen, ServeGenError, Window};

use super::{Trace, TraceFormat, TraceRow};

/// A window's length in the profiles' sources, minutes.
pub const MINUTES: f64 = 30.0;

/// What is generated: a family of workloads with all its numbers.
#[derive(Debug, Clone, PartialEq)]
pub enum Workload {
    /// Users with conversations whose requests share their prefix, a probe, and tiny requests: ART-Chat.
    Conversations(Conversations),
    /// Requests that know nothing of one another, but for a pool of repeated prompts: WildChat, LMSYS.
    Independent(Independent),
}

impl Workload {
    /// All its numbers as they stand.
    #[must_use]
    pub fn stated(&self) -> Vec<Stated> {
        match self {
            Self::Conversations(numbers) => parameter::stated(numbers, Conversations::PARAMETERS),
            Self::Independent(numbers) => parameter::stated(numbers, Independent::PARAMETERS),
        }
    }

    /// Overrides one number.
    ///
    /// # Errors
    /// No such number, or a value out of its range; nothing is changed then.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), ParameterError> {
        match self {
            Self::Conversations(numbers) => parameter::set(numbers, Conversations::PARAMETERS, name, value),
            Self::Independent(numbers) => parameter::set(numbers, Independent::PARAMETERS, name, value),
        }
    }

    /// Multiplies the rate of everything that arrives.
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
pub fn generate(workload: &Workload, seed: u64, minutes: f64) -> Trace {
    match workload {
        Workload::Conversations(numbers) => conversations::generate(numbers, seed, minutes),
        Workload::Independent(numbers) => independent::generate(numbers, seed, minutes),
    }
}

/// A trace of generated rows that stand in order of arrival; numbers them.
fn trace(mut rows: Vec<TraceRow>, block_tokens: u32) -> Trace {
    for (index, row) in rows.iter_mut().enumerate() {
        row.index = index;
    }
    Trace { format: TraceFormat::Mooncake, block_tokens, rows, rows_without_blocks: 0, rows_refitted: 0 }
}

#[cfg(test)]
mod tests;
