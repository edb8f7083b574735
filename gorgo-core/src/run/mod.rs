//! Ring 4: assembly. Owns the clock, the tasks, startup and shutdown.

mod admin;
mod background;
mod clock;
mod examine;
mod facts;
mod fleet;
mod gauges;
#[cfg(feature = "kv-events")]
mod kv_events;
mod loading;
#[cfg(not(feature = "kv-events"))]
mod no_kv_events;
mod operate;
mod reload;
mod serve;
mod signals;
mod tuning;
mod warm;

#[cfg(not(feature = "kv-events"))]
use no_kv_events as kv_events;

pub use clock::WallClock;
pub use examine::examine_fleet;
pub use loading::{ConfigLoadResult, load};
pub use reload::ConfigReader;
pub use serve::{ServeError, ServeSetup, serve};
