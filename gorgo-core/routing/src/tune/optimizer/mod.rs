//! Optimizers, one file each: the next weights to try, given which trials won.
//!
//! An optimizer is asked for a candidate, which is then compared with the incumbent on live traffic, and is given the
//! verdict. It has no access to traffic or statistics. Its state is saved as JSON text and resumes from it bit for bit.

mod cma_es;
mod coordinate;
mod es_1plus1;
mod frozen;
mod random_search;

use std::fmt::Debug;

pub(super) use es_1plus1::EsConstants;

use super::space::SearchSpace;
use crate::model::{ParamSpec, ParamValues};

/// All kinds of optimizer. A new one is a file here and a line in this table.
pub const OPTIMIZERS: &[&OptimizerKind] =
    &[&es_1plus1::KIND, &cma_es::KIND, &coordinate::KIND, &random_search::KIND, &frozen::KIND];

/// Result of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialResult {
    /// True if the candidate is the incumbent from now on.
    pub accepted: bool,
    /// True if the samples decided. A trial that reached its limit undecided shows nothing about the step size.
    pub decided: bool,
    /// Candidate's score minus incumbent's; below 0 the candidate was better.
    pub difference: f64,
    /// Standard error of `difference`.
    pub error: f64,
}

/// Source of weights to try.
pub trait Optimizer: Debug + Send {
    /// Proposes the next candidate; `None`: there is nothing to try (any more).
    fn ask(&mut self) -> Option<Vec<f64>>;

    /// Receives the result of the last candidate.
    fn tell(&mut self, told: &TrialResult);

    /// Best point so far: one weight per dimension, within its bounds.
    fn incumbent(&self) -> &[f64];

    /// Size of its steps, in logarithms; `None` if it has none.
    fn sigma(&self) -> Option<f64>;

    /// Searches as widely as at the start again, from the current point, because conditions have changed.
    fn reopen(&mut self);

    /// Complete state as JSON text.
    fn save(&self) -> String;

    /// Resumes from a saved state.
    ///
    /// # Errors
    /// The fault in the state; nothing changes then.
    fn load(&mut self, state: &str) -> Result<(), String>;
}

/// Kind of optimizer: a row in [`OPTIMIZERS`].
#[derive(Debug, Clone, Copy)]
pub struct OptimizerKind {
    /// Name in configuration files, kebab-case.
    pub kind: &'static str,
    /// Summary in one line.
    pub summary: &'static str,
    /// Parameters of this kind.
    pub params: &'static [ParamSpec],
    /// Builds the optimizer for a box and a seed.
    pub build: fn(&ParamValues, &SearchSpace, u64) -> BuiltOptimizer,
}

/// Optimizer, or the fault in its parameters.
pub type BuiltOptimizer = Result<Box<dyn Optimizer>, String>;

/// Deserializes a saved state, if it belongs to this optimizer and its points lie in the box.
fn load_state<S: serde::de::DeserializeOwned>(
    text: &str,
    space: &SearchSpace,
    points: impl Fn(&S) -> Vec<&[f64]>,
    sound: impl Fn(&S) -> bool,
) -> Result<S, String> {
    let state: S = serde_json::from_str(text).map_err(|cause| format!("not a state of this optimizer: {cause}"))?;
    // The bounds may have been narrowed in the configuration since the state was saved.
    if let Some(point) = points(&state).into_iter().find(|point| !space.contains(point)) {
        return Err(format!("{point:?} is not a point within the bounds"));
    }
    if sound(&state) { Ok(state) } else { Err("its step sizes are not positive numbers".to_owned()) }
}

/// Serializes a state.
fn save_state<S: serde::Serialize>(state: &S) -> String {
    // These states are plain structs of numbers, which always have a JSON text.
    serde_json::to_string(state).unwrap_or_default()
}
