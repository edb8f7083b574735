//! Ring 4: assembly. Owns the clock, the tasks, the way up and the way down.

mod admin;
mod background;
mod clock;
mod examine;
mod facts;
mod fleet;
mod gauges;
#[cfg_attr(not(feature = "kv-events"), path = "no_kv_events.rs")]
mod kv_events;
mod loading;
mod operate;
mod reload;
mod serve;
mod signals;
mod tuning;
mod warm;

pub use clock::WallClock;
pub use examine::examine_fleet;
pub use loading::{Loading, load};
pub use reload::Reread;
pub use serve::{ServeError, ServeSetup, serve};
