//! Ring 1: a policy improves its own weights on live traffic, and never makes service clearly worse while it does.
//!
//! ```text
//! optimizer ─ask→ candidate ─→ trial: blocks of incumbent and candidate in random order, paired
//!     ↑                          │ samples, each stamped with the generation and block that routed it
//!     └──tell── verdict ← contrast: difference of the objective, with its standard error
//! ```
//!
//! A *generation* is one candidate with its samples and its verdict. [`Tuner`] is the complete state machine: it is fed
//! with decisions and outcomes, and returns the weights of the next decision and the records to store. It reads no
//! clock and takes its randomness from a seed, so the same samples at the same times lead to the same verdicts.

pub mod cohort;
pub mod contrast;
mod decisive_terms;
mod drift;
mod exact_floats;
mod jackknife;
pub mod objective;
pub mod optimizer;
mod reference_tuner;
mod request_columns;
mod reward_hacking;
pub mod sample;
pub mod space;
pub mod trial;
mod tuner;
mod verdict;

pub use objective::{OBJECTIVES, Objective, ObjectiveKind, RequestObjective};
pub use optimizer::{OPTIMIZERS, Optimizer, OptimizerKind};
pub use request_columns::RequestColumns;
pub use space::{SearchSpace, TunedWeight};
pub use trial::{AcceptanceTest, ArmAssignment, BlockSettings, TrialStamp};
pub use tuner::{AssignedWeights, Tuner, TuningPlan};
pub use verdict::GuardLimits;

#[cfg(test)]
mod tests;
