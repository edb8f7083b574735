//! The real engines of a configuration, each asked once whether it is what it is said to be.

use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::ServeError;
use super::fleet::watched;
use gorgo_routing::config::Config;
use gorgo_routing::model::{Clock, EngineKind, ReplicaId};
use gorgo_wire::engine::examine::{Finding, examine};

/// What was found of each enabled replica that is not simulated, by name, in the file's order, one after another.
///
/// # Errors
/// An address or a key that cannot be used.
pub async fn examine_fleet(config: &Config, clock: &dyn Clock) -> Result<Vec<(String, Finding)>, ServeError> {
    let limit = Duration::from_millis(config.probe.timeout_ms);
    let tasks = TaskTracker::new();
    let mut findings = Vec::new();
    for section in config.replicas.iter().filter(|section| section.enabled) {
        let (Some(engine), Some(url)) = (EngineKind::parse(&section.engine), &section.url) else { continue };
        if engine != EngineKind::Simulated {
            let watched = watched(section, ReplicaId(0), engine, url.clone())?;
            findings.push((section.name.clone(), examine(&watched, limit, clock, &tasks).await));
        }
    }
    Ok(findings)
}
