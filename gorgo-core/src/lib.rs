//! The router, assembled from its crates.
//!
//! ```text
//! request → parse → feature → score → constrain → pick → forward → observe → store → tune → weights
//!            └────────────── policy::decide ─────────┘               └→ feature.apply
//!               reads the current Weights ←──────────── watch channel owned by run ───┘
//! ```
//!
//! `gorgo-routing` decides, `gorgo-wire` forwards, `gorgo-store` remembers, `gorgo-lab` simulates; this crate starts
//! them, connects them, and shuts them down.

pub mod run;
