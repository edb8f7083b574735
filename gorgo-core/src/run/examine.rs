//! Examination of the real engines of a configuration: each is queried once and compared with its configuration.

use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::ServeError;
use super::fleet::monitored_replica;
use gorgo_routing::config::Config;
use gorgo_routing::model::{Clock, EngineKind, ReplicaId};
use gorgo_wire::engine::examine::{EngineFinding, examine};

/// Examines each enabled replica that is not simulated, one by one, in the file's order; findings by name.
///
/// # Errors
/// An address or a key that cannot be used.
pub async fn examine_fleet(config: &Config, clock: &dyn Clock) -> Result<Vec<(String, EngineFinding)>, ServeError> {
    let limit = Duration::from_millis(config.probe.timeout_ms);
    let tasks = TaskTracker::new();
    let mut findings = Vec::new();
    for section in config.replicas.iter().filter(|section| section.enabled) {
        let (Some(engine), Some(url)) = (EngineKind::parse(&section.engine), &section.url) else { continue };
        if engine != EngineKind::Simulated {
            // The id goes nowhere: findings carry the replica's name.
            let watched = monitored_replica(section, ReplicaId(0), engine, url.clone())?;
            findings.push((section.name.clone(), examine(&watched, limit, clock, &tasks).await));
        }
    }
    Ok(findings)
}
