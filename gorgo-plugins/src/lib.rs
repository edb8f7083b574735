//! The plugin contract and the author's kit.
//!
//! A plugin depends on this crate without features, so it compiles nothing else: it implements [`ScorerPlugin`],
//! [`ConstraintPlugin`] or [`ObjectivePlugin`] and exports it. `README.md` is the guide. Feature `host` adds the loader that
//! registers plugins with the router's kinds; feature `conform` adds the checks of `gorgo plugin check`.

#![cfg_attr(not(feature = "host"), deny(missing_docs))]

pub mod abi;
#[cfg(feature = "conform")]
pub mod conform;
#[cfg(feature = "host")]
pub mod host;
mod sdk;
#[doc(hidden)]
pub mod shim;

pub use sdk::{
    ConstraintPlugin, ObjectivePlugin, OptionDeclaration, OptionKind, PluginAnswer, PluginDeclaration, PluginFacts,
    ScorerPlugin, SignalUnit,
};
pub use shim::{PluginCohort, PluginColumns, PluginReplica, PluginRequest, PluginSetup};
