//! The plugin contract and the author's kit.
//!
//! A plugin depends on this crate without features and compiles nothing else: it implements [`Scorer`], [`Constraint`]
//! or [`Objective`] and exports it. `README.md` is the guide. With `host` the crate loads plugins into the router's
//! registry of kinds; with `conform` it checks them.

#![cfg_attr(not(feature = "host"), deny(missing_docs))]

pub mod abi;
#[cfg(feature = "conform")]
pub mod conform;
#[cfg(feature = "host")]
pub mod host;
mod sdk;
#[doc(hidden)]
pub mod shim;

pub use sdk::{Answer, Constraint, Declared, Need, Objective, OptionDecl, OptionKind, Scorer, Unit};
pub use shim::{Cohort, Columns, Replica, Request, Setup};
