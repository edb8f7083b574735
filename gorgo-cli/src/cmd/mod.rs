//! The commands, one file or folder each.

pub(crate) mod engine;
pub(crate) mod replay;
