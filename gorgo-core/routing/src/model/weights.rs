//! The weights of a policy's terms: values that the optimizer moves and decisions read.

use super::Generation;

/// One policy's weights, in term order, and the generation they belong to. Immutable: a new generation is a new value.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyWeights {
    /// Generation of these weights.
    pub generation: Generation,
    /// One weight per term slot.
    pub values: Vec<f64>,
}
