//! Costs: the ways in which a policy's weighted terms become one number.

mod sum;
mod tail_aware;

use super::CostKind;

/// All kinds of cost. A new one is a file here and a line in this table.
pub const COSTS: &[&CostKind] = &[&sum::KIND, &tail_aware::KIND];
