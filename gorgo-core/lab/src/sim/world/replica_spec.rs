//! The replicas of a configuration as the simulator sets them up.

use std::sync::Arc;

use crate::sim::EngineProfile;
use gorgo_routing::config::ReplicaConfig;
use gorgo_routing::model::{EngineKind, Replica, ReplicaId};

/// One replica of the simulated fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicaSpec {
    /// Replica as decisions see it.
    pub replica: Replica,
    /// Models that it serves.
    pub models: Vec<Arc<str>>,
    /// Profile of its engine.
    pub profile: EngineProfile,
    /// Factor that divides the engine's times.
    pub speed: f64,
    /// Mean round trip, ms.
    pub rtt_ms: f64,
    /// The configuration contains settings for its simulation. If false, the numbers above are defaults.
    pub has_simulation_settings: bool,
}

/// A replica that cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaSpecError {
    /// The configured profile does not exist.
    #[error("replica {replica}: unknown profile \"{profile}\"; known: {known}")]
    Profile {
        /// Name of the replica.
        replica: String,
        /// Profile as configured.
        profile: String,
        /// Names of all profiles.
        known: String,
    },
    /// No replica is enabled.
    #[error("no replica is enabled; enable at least one [[replica]]")]
    NoReplica,
}

/// Returns the enabled replicas; ids are positions among them, as in `serve`.
///
/// # Errors
/// A profile does not exist, or no replica is enabled.
pub fn replica_specs(sections: &[ReplicaConfig]) -> Result<Vec<ReplicaSpec>, ReplicaSpecError> {
    let enabled = sections.iter().filter(|section| section.enabled).zip(0_u16..);
    let list = enabled.map(|(section, id)| replica_spec(section, ReplicaId(id))).collect::<Result<Vec<_>, _>>()?;
    if list.is_empty() { Err(ReplicaSpecError::NoReplica) } else { Ok(list) }
}

fn replica_spec(section: &ReplicaConfig, id: ReplicaId) -> Result<ReplicaSpec, ReplicaSpecError> {
    let settings = section.simulated.clone().unwrap_or_default();
    let profile = EngineProfile::find(&settings.profile).ok_or_else(|| ReplicaSpecError::Profile {
        replica: section.name.clone(),
        profile: settings.profile.clone(),
        known: EngineProfile::names().collect::<Vec<_>>().join(", "),
    })?;
    Ok(ReplicaSpec {
        replica: Replica {
            id,
            name: section.name.as_str().into(),
            region: section.region.as_deref().unwrap_or(&section.name).into(),
            engine: EngineKind::parse(&section.engine).unwrap_or(EngineKind::OpenAi),
            kv_capacity_tokens: section.kv_capacity_tokens,
            decode_batch: section.decode_batch,
        },
        models: section.models.iter().map(|model| model.as_str().into()).collect(),
        profile: profile.clone(),
        speed: settings.speed,
        rtt_ms: settings.rtt_ms,
        has_simulation_settings: section.simulated.is_some(),
    })
}
