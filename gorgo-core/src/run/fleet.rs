//! The enabled replicas in the form that each part of the router needs; simulated engines are started here.

use std::env;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ServeError;
use super::warm::Place;
use gorgo_lab::sim::Profile;
use gorgo_observe::log;
use gorgo_routing::config::{Config, EngineUrl, ReplicaSection};
use gorgo_routing::model::{Clock, EngineKind, Replica, ReplicaId};
use gorgo_simulated::{Dialect, Settings};
use gorgo_wire::edge::UpstreamSetup;
use gorgo_wire::engine::{Endpoint, Watched};

/// One enabled replica, seen from each side.
pub(super) struct Member {
    pub(super) replica: Replica,
    pub(super) upstream: UpstreamSetup,
    pub(super) watched: Watched,
    pub(super) models: Vec<Arc<str>>,
    /// Address at which the engine publishes cache events.
    #[cfg_attr(not(feature = "kv-events"), expect(dead_code, reason = "read by the cache events only"))]
    pub(super) kv_events: Option<String>,
    /// Address that replays missed ones.
    #[cfg_attr(not(feature = "kv-events"), expect(dead_code, reason = "read by the cache events only"))]
    pub(super) kv_replay: Option<String>,
}

impl Member {
    /// Identity of the replica's engine for a later run; `None` for an engine inside this process, which ends with it.
    pub(super) fn place(&self) -> Option<Place> {
        (self.replica.engine != EngineKind::Simulated).then(|| Place {
            name: Arc::clone(&self.replica.name),
            engine: self.replica.engine.name(),
            url: self.watched.endpoint.url().as_str().to_owned(),
        })
    }
}

/// Parts that simulated engines are started with.
pub(super) struct Ground<'a> {
    pub(super) clock: &'a Arc<dyn Clock>,
    pub(super) tracker: &'a TaskTracker,
    pub(super) stop: &'a CancellationToken,
    pub(super) seed: u64,
}

/// Starts simulated engines, and resolves addresses and keys. Ids are positions among the enabled replicas.
pub(super) async fn gather(config: &Config, ground: &Ground<'_>) -> Result<Vec<Member>, ServeError> {
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
        let watched = watched(section, ReplicaId(id), engine, url)?;
        let name: Arc<str> = section.name.as_str().into();
        let models: Vec<Arc<str>> = section.models.iter().map(|model| model.as_str().into()).collect();
        let id = ReplicaId(id);
        members.push(Member {
            replica: Replica {
                id,
                name: Arc::clone(&name),
                // Without a region each replica is a region by itself.
                region: section.region.as_deref().unwrap_or(&section.name).into(),
                engine,
                kv_capacity_tokens: section.kv_capacity_tokens,
                decode_batch: section.decode_batch,
            },
            upstream: UpstreamSetup {
                id,
                name: Arc::clone(&name),
                engine,
                endpoint: watched.endpoint.clone(),
                models: models.clone(),
            },
            watched,
            models,
            kv_events: section.kv_events.clone(),
            kv_replay: section.kv_replay.clone(),
        });
    }
    Ok(members)
}

/// Builds a replica as the probe and scrape loops see it.
pub(super) fn watched(
    section: &ReplicaSection,
    replica: ReplicaId,
    engine: EngineKind,
    url: EngineUrl,
) -> Result<Watched, ServeError> {
    let endpoint = Endpoint::new(url, key_of(section).as_deref(), section.http)
        .map_err(|cause| ServeError::replica(section, cause.to_string()))?;
    Ok(Watched {
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
fn key_of(section: &ReplicaSection) -> Option<String> {
    section.api_key_env.as_deref().and_then(|variable| env::var(variable).ok())
}

async fn simulate(section: &ReplicaSection, id: u16, ground: &Ground<'_>) -> Result<SocketAddr, ServeError> {
    let settings = section.simulated.clone().unwrap_or_default();
    let profile = Profile::find(&settings.profile)
        .ok_or_else(|| ServeError::replica(section, format!("unknown profile `{}`", settings.profile)))?;
    // Loopback only: no client but this router should reach it. Port 0: any fixed port may be in use.
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|cause| ServeError::Listen {
        address: format!("127.0.0.1:0 (simulated engine {})", section.name),
        cause,
    })?;
    let engine = Settings {
        profile: profile.clone(),
        speed: settings.speed,
        rtt_ms: settings.rtt_ms,
        dialect: Dialect::default(),
        models: if section.models.is_empty() { vec!["sim".to_owned()] } else { section.models.clone() },
        // Engines of the same profile must not draw the same noise.
        seed: ground.seed ^ u64::from(id),
        faulty: None,
    };
    let handle =
        gorgo_simulated::start(engine, listener, Arc::clone(ground.clock), ground.tracker, ground.stop.clone())
            .map_err(|cause| ServeError::replica(section, cause.to_string()))?;
    log::simulated_engine(&section.name, handle.addr, settings.rtt_ms, settings.speed);
    Ok(handle.addr)
}
