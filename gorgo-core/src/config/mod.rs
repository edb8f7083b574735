//! Files + environment + flags → `Config`.

mod sections;

pub use sections::{
    Admin, Config, Failover, Hedge, HttpVersion, Index, Log, LogFormat, Probe, ReplicaSection, Retention, Scrape,
    Server, Simulated, Store,
};
