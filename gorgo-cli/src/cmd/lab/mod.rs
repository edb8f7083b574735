//! Commands that measure, simulate and tune; none of them routes a request.

pub(super) mod calibrate;
pub(super) mod engine;
pub(super) mod replay;
pub(super) mod report;
pub(super) mod simulate;
pub(super) mod spec;
pub(super) mod trace;
pub(super) mod tune;
