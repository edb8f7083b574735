//! The router as a library.
//!
//! ```text
//! request → parse → feature → score → constrain → pick → forward → observe → store → tune → weights
//!            └────────────── policy::decide ─────────┘               └→ feature.apply
//!               reads the current Weights ←──────────── watch channel owned by run ───┘
//! ```
//!
//! Rings, innermost first: a module may import only from rings below its own. `tests/layout.rs` holds it so.
//! The `mod` lines are in reading order.

// ring 0: expressions, and the words all share; no I/O, no clock, no runtime
pub mod expr;
pub mod model;
// ring 1: each knows only ring 0
pub mod calibrate;
pub mod config;
pub mod constrain;
pub mod feature;
pub mod parse;
pub mod pick;
pub mod score;
pub mod trace;
pub mod tune;
// ring 2: the one function that routes, and the simulated world
pub mod policy;
pub mod sim;
// ring 3: wires, disk, eyes
pub mod edge;
pub mod engine;
pub mod observe;
pub mod store;
// ring 4: assembly
pub mod run;
