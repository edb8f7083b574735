//! Commands that run a router, operate one, or say what its configuration and its history hold.

pub(super) mod check;
pub(super) mod ctl;
pub(super) mod doctor;
pub(super) mod kinds;
pub(super) mod plugin;
pub(super) mod serve;
pub(super) mod weights;
pub(super) mod whatif;
