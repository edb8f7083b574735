//! Ring 1: choosing among the remaining candidates. A picker does not choose itself: it returns the probability of each
//! candidate, and `policy::decide` draws. So the propensity is exact, and a decision can be repeated from its row.

mod lowest;
mod power_of_two;
mod random;
mod softmin;
mod softmin_range;

use std::fmt::Debug;

use crate::model::{ParamSpec, ParamValues};

/// All kinds of picker. A new one is a file here and a line in this table.
pub const PICKERS: &[&PickerKind] =
    &[&lowest::KIND, &softmin::KIND, &softmin_range::KIND, &power_of_two::KIND, &random::KIND];

/// Rule by which a policy picks. Pure: the same costs give the same distribution, bit for bit.
pub trait Picker: Debug + Send + Sync {
    /// Writes the probability of each row to `out`: it sums to 1 over `allowed` (not empty, ascending) and is 0
    /// elsewhere. `costs` and `out` have one entry per row; costs are finite. Returns the number of allowed rows that
    /// share the lowest cost, within the picker's margin.
    fn distribution(&self, costs: &[f64], allowed: &[usize], out: &mut [f64]) -> u32;
}

/// Kind of picker: a row in [`PICKERS`].
#[derive(Debug, Clone, Copy)]
pub struct PickerKind {
    /// Name in configuration files.
    pub kind: &'static str,
    /// Summary in one line.
    pub summary: &'static str,
    /// True if it reads costs; a policy with a picker that does not needs no terms.
    pub reads_costs: bool,
    /// Parameters of this kind.
    pub params: &'static [ParamSpec],
    /// Builds the picker. The text of an error names the parameter and what is allowed.
    pub build: fn(&ParamValues) -> Result<Box<dyn Picker>, String>,
}

/// Lowest of the allowed costs.
fn lowest_of(costs: &[f64], allowed: &[usize]) -> f64 {
    allowed.iter().map(|row| costs[*row]).fold(f64::INFINITY, f64::min)
}

/// Number of allowed rows that cost at most `limit`.
fn count_up_to(costs: &[f64], allowed: &[usize], limit: f64) -> u32 {
    u32::try_from(allowed.iter().filter(|row| costs[**row] <= limit).count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
