//! The enabled replicas in the form that each part of the router needs; simulated engines are started here.

use std::env;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ServeError;
use super::warm::EngineLocation;
use gorgo_lab::sim::EngineProfile;
use gorgo_observe::log;
use gorgo_routing::config::{Config, EngineUrl, ReplicaConfig};
use gorgo_routing::model::{Clock, EngineKind, Replica, ReplicaId};
use gorgo_simulated::{EngineDialect, SimulatedSettings};
use gorgo_wire::edge::ReplicaSetup;
use gorgo_wire::engine::{HttpEndpoint, MonitoredReplica};

/// One enabled replica, seen from each side.
pub(super) struct FleetReplica {
    pub(super) replica: Replica,
    pub(super) setup: ReplicaSetup,
    pub(super) monitored: MonitoredReplica,
    pub(super) models: Vec<Arc<str>>,
    /// Address at which the engine publishes cache events.
    #[cfg_attr(not(feature = "kv-events"), expect(dead_code, reason = "read by the cache events only"))]
    pub(super) kv_events: Option<String>,
    /// Address that replays missed ones.
    #[cfg_attr(not(feature = "kv-events"), expect(dead_code, reason = "read by the cache events only"))]
    pub(super) kv_replay: Option<String>,
}

impl FleetReplica {
    /// Identity of the replica's engine for a later run; `None` for an engine inside this process, which ends with it.
    pub(super) fn location(&self) -> Option<EngineLocation> {
        (self.replica.engine != EngineKind::Simulated).then(|| EngineLocation {
            name: Arc::clone(&self.replica.name),
            engine: self.replica.engine.name(),
            url: self.monitored.endpoint.url().as_str().to_owned(),
        })
    }
}

/// Parts that simulated engines are started with.
pub(super) struct EngineLauncher<'a> {
    pub(super) clock: &'a Arc<dyn Clock>,
    pub(super) tracker: &'a TaskTracker,
    pub(super) stop: &'a CancellationToken,
    pub(super) seed: u64,
}

/// Starts simulated engines, and resolves addresses and keys. Ids are positions among the enabled replicas.
pub(super) async fn build_fleet(config: &Config, ground: &EngineLauncher<'_>) -> Result<Vec<FleetReplica>, ServeError> {
    let mut members = Vec::new();
    // Numbered after the filter: ids index vectors of all other parts, so a disabled replica must not leave a hole.
    for (section, id) in config.replicas.iter().filter(|section| section.enabled).zip(0_u16..) {
        let engine = EngineKind::parse(&section.engine)
            .ok_or_else(|| ServeError::replica(section, format!("unknown engine `{}`", section.engine)))?;
        let url = match (engine, &section.url) {
            (EngineKind::Simulated, _) => EngineUrl::of_socket(simulate(section, id, ground).await?),
            (_, Some(url)) => url.clone(),
            (_, None) => return Err(ServeError::replica(section, "`url` is missing".to_owned())),
        };
        let watched = monitored_replica(section, ReplicaId(id), engine, url)?;
        let name: Arc<str> = section.name.as_str().into();
        let models: Vec<Arc<str>> = section.models.iter().map(|model| model.as_str().into()).collect();
        let id = ReplicaId(id);
        members.push(FleetReplica {
            replica: Replica {
                id,
                name: Arc::clone(&name),
                // Without a region each replica is a region by itself.
                region: section.region.as_deref().unwrap_or(&section.name).into(),
                engine,
                kv_capacity_tokens: section.kv_capacity_tokens,
                decode_batch: section.decode_batch,
            },
            setup: ReplicaSetup {
                id,
                name: Arc::clone(&name),
                engine,
                endpoint: watched.endpoint.clone(),
                models: models.clone(),
            },
            monitored: watched,
            models,
            kv_events: section.kv_events.clone(),
            kv_replay: section.kv_replay.clone(),
        });
    }
    Ok(members)
}

/// Builds a replica as the probe and scrape loops see it.
pub(super) fn monitored_replica(
    section: &ReplicaConfig,
    replica: ReplicaId,
    engine: EngineKind,
    url: EngineUrl,
) -> Result<MonitoredReplica, ServeError> {
    let endpoint = HttpEndpoint::new(url, key_of(section).as_deref(), section.http)
        .map_err(|cause| ServeError::replica(section, cause.to_string()))?;
    Ok(MonitoredReplica {
        replica,
        name: section.name.as_str().into(),
        adapter: engine.adapter(),
        endpoint,
        api_key_env: section.api_key_env.clone(),
        // Only a replica without configured models is asked for its list.
        learn_models: section.models.is_empty(),
    })
}

/// Returns the API key of the replica's engine, from the environment.
fn key_of(section: &ReplicaConfig) -> Option<String> {
    section.api_key_env.as_deref().and_then(|variable| env::var(variable).ok())
}

async fn simulate(section: &ReplicaConfig, id: u16, ground: &EngineLauncher<'_>) -> Result<SocketAddr, ServeError> {
    let settings = section.simulated.clone().unwrap_or_default();
    let profile = EngineProfile::find(&settings.profile)
        .ok_or_else(|| ServeError::replica(section, format!("unknown profile `{}`", settings.profile)))?;
    // Loopback only: no client but this router should reach it. Port 0: any fixed port may be in use.
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|cause| ServeError::Listen {
        address: format!("127.0.0.1:0 (simulated engine {})", section.name),
        cause,
    })?;
    let engine = SimulatedSettings {
        profile: profile.clone(),
        speed: settings.speed,
        rtt_ms: settings.rtt_ms,
        dialect: EngineDialect::default(),
        models: if section.models.is_empty() { vec!["sim".to_owned()] } else { section.models.clone() },
        // Engines of the same profile must not draw the same noise.
        seed: ground.seed ^ u64::from(id),
        fault_injection: None,
    };
    let handle =
        gorgo_simulated::start(engine, listener, Arc::clone(ground.clock), ground.tracker, ground.stop.clone())
            .map_err(|cause| ServeError::replica(section, cause.to_string()))?;
    log::simulated_engine(&section.name, handle.addr, settings.rtt_ms, settings.speed);
    Ok(handle.addr)
}
