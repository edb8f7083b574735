//! Optimizers, one file each: which weights to try next, given which trials won.
//!
//! An optimizer is asked for a candidate, which is then compared with the incumbent on live traffic, and told the
//! verdict. It owns neither traffic nor statistics. It saves itself as JSON text and resumes from that bit for bit.

mod cma_es;
mod coordinate;
mod es_1plus1;
mod frozen;
mod random_search;

use std::fmt::Debug;

pub(super) use es_1plus1::Constants;

use super::space::Space;
use crate::model::{Param, Params};

/// All kinds of optimizer. A new one is a file here and a line in this table.
pub const OPTIMIZERS: &[&OptimizerKind] =
    &[&es_1plus1::KIND, &cma_es::KIND, &coordinate::KIND, &random_search::KIND, &frozen::KIND];

/// How a trial ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Told {
    /// The candidate is the incumbent from now on.
    pub accepted: bool,
    /// Whether the samples decided. A trial that ran to its limit without says nothing of the step's size.
    pub decided: bool,
    /// Candidate's score less incumbent's; below 0 the candidate was better.
    pub difference: f64,
    /// Its standard error.
    pub error: f64,
}

/// Proposes weights.
pub trait Optimizer: Debug + Send {
    /// The next candidate; `None`: there is nothing to try (any more).
    fn ask(&mut self) -> Option<Vec<f64>>;

    /// How the last candidate did.
    fn tell(&mut self, told: &Told);

    /// The best so far: one weight per dimension, within its bounds.
    fn incumbent(&self) -> &[f64];

    /// The size of its steps, in logarithms; `None` where it has none.
    fn sigma(&self) -> Option<f64>;

    /// The world changed: search as widely as at the start, from where it is.
    fn reopen(&mut self);

    /// Its whole state as JSON text.
    fn save(&self) -> String;

    /// Goes on from a saved state.
    ///
    /// # Errors
    /// What is wrong with it; nothing changes then.
    fn load(&mut self, state: &str) -> Result<(), String>;
}

/// A kind of optimizer: its row in [`OPTIMIZERS`].
#[derive(Debug, Clone, Copy)]
pub struct OptimizerKind {
    /// Its name in configuration files, kebab-case.
    pub kind: &'static str,
    /// What it is, one line.
    pub summary: &'static str,
    /// Its parameters.
    pub params: &'static [Param],
    /// Makes the optimizer for a box and a seed.
    pub build: fn(&Params, &Space, u64) -> BuiltOptimizer,
}

/// An optimizer, or what is wrong with its parameters.
pub type BuiltOptimizer = Result<Box<dyn Optimizer>, String>;

/// A saved state as its type, if it is one of this optimizer and its points lie in the box.
fn loaded<S: serde::de::DeserializeOwned>(
    text: &str,
    space: &Space,
    points: impl Fn(&S) -> Vec<&[f64]>,
    sound: impl Fn(&S) -> bool,
) -> Result<S, String> {
    let state: S = serde_json::from_str(text).map_err(|cause| format!("not a state of this optimizer: {cause}"))?;
    if let Some(point) = points(&state).into_iter().find(|point| !space.holds(point)) {
        return Err(format!("{point:?} is not a point within the bounds"));
    }
    if sound(&state) { Ok(state) } else { Err("its step sizes are not positive numbers".to_owned()) }
}

/// A state as text.
fn saved<S: serde::Serialize>(state: &S) -> String {
    // These states are plain structs of numbers: they always have a JSON text.
    serde_json::to_string(state).unwrap_or_default()
}
