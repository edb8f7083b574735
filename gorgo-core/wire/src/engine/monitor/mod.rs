//! Input of the monitoring loops: which replica to monitor, and where results go.

pub mod ejection;
pub mod examine;
pub mod health;
pub mod limits;
pub mod metrics;
pub mod probe;
pub mod scrape;

#[cfg(test)]
pub(super) mod mock;

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::client::HttpEndpoint;
use super::monitor::health::ReplicaLiveness;
use gorgo_observe::FactOutlet;
use gorgo_routing::model::engine::EngineAdapter;
use gorgo_routing::model::{Clock, EventKind, ReplicaId};

/// Replica to monitor.
#[derive(Debug, Clone)]
pub struct MonitoredReplica {
    /// Id.
    pub replica: ReplicaId,
    /// Name, for texts.
    pub name: Arc<str>,
    /// Adapter of its engine.
    pub adapter: &'static EngineAdapter,
    /// Address and key.
    pub endpoint: HttpEndpoint,
    /// Environment variable that the key should come from, for texts.
    pub api_key_env: Option<String>,
    /// True if its models must be learned because none are configured.
    pub learn_models: bool,
}

/// Time source and outlets of the monitoring loops. Cloned for each loop.
#[derive(Clone)]
pub struct ProbeContext {
    /// Source of time.
    pub clock: Arc<dyn Clock>,
    /// Outlet for results.
    pub outlet: FactOutlet,
    /// Signs of life, including those from the data plane.
    pub liveness: Arc<ReplicaLiveness>,
    /// Tracks spawned tasks (HTTP/2 connections), so that a shutdown can wait for them.
    pub tasks: TaskTracker,
    /// Ends the loops.
    pub stop: CancellationToken,
    /// Seed of the schedule's jitter.
    pub seed: u64,
}

impl std::fmt::Debug for ProbeContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProbeContext").field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// Intervals with ± 10 % jitter, so that the probes of a fleet, and of several routers, do not synchronise.
#[derive(Debug)]
pub(super) struct JitteredInterval {
    interval: Duration,
    random: ChaCha8Rng,
}

impl JitteredInterval {
    /// Schedule of one loop. `salt` distinguishes the loops of one replica.
    pub(super) fn new(interval_ms: u64, seed: u64, replica: ReplicaId, salt: u64) -> Self {
        let seed = seed ^ (u64::from(replica.0) << 8) ^ salt;
        Self { interval: Duration::from_millis(interval_ms), random: ChaCha8Rng::seed_from_u64(seed) }
    }

    pub(super) fn next(&mut self) -> Duration {
        self.interval.mul_f64(self.random.random_range(0.9..=1.1))
    }
}

/// Reports each warning once, until it changes or ends.
#[derive(Debug, Default)]
pub(super) struct WarningLatch {
    last: Option<String>,
}

impl WarningLatch {
    /// Reports the warning if it is new. `None`: all is well.
    pub(super) fn update(&mut self, text: Option<String>, watched: &MonitoredReplica, senses: &ProbeContext) {
        if self.last != text {
            if let Some(text) = &text {
                senses.outlet.note(EventKind::MissingSignal, watched.replica, text.clone());
            }
            self.last = text;
        }
    }
}

/// Warning about the API key, if the status indicates one.
pub(super) fn key_warning(watched: &MonitoredReplica, path: &str, status: StatusCode) -> Option<String> {
    if status != StatusCode::UNAUTHORIZED && status != StatusCode::FORBIDDEN {
        return None;
    }
    let (name, status) = (&watched.name, status.as_u16());
    let remedy = match (&watched.api_key_env, watched.endpoint.bearer().is_some()) {
        (Some(variable), true) => format!("the engine rejects the API key in {variable}"),
        (Some(variable), false) => format!("{variable} (api_key_env) contains no API key"),
        (None, _) => "it requires an API key; set api_key_env to the variable that contains it".to_owned(),
    };
    Some(format!("replica {name} answers {status} to GET {path}: {remedy}"))
}

/// Warning that a page is missing which the engine always has. The replica counts as alive all the same: a proxy in
/// front of the engine may hide the page.
pub(super) fn not_found_warning(watched: &MonitoredReplica, path: &str, status: StatusCode) -> Option<String> {
    (status == StatusCode::NOT_FOUND).then(|| {
        let (name, engine) = (&watched.name, watched.adapter.kind.name());
        format!(
            "replica {name} answers 404 to GET {path}, which every {engine} has; check `url`, or run \
             `gorgo doctor`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_ten_percent_and_repeats() {
        let intervals = |seed| -> Vec<Duration> {
            let mut schedule = JitteredInterval::new(2_000, seed, ReplicaId(1), 0);
            (0..200).map(|_| schedule.next()).collect()
        };
        let once = intervals(7);
        assert_eq!(once, intervals(7));
        assert_ne!(once, intervals(8));
        let (least, most) = (once.iter().min().unwrap(), once.iter().max().unwrap());
        assert!(*least >= Duration::from_millis(1_800) && *least < Duration::from_millis(1_850), "{least:?}");
        assert!(*most <= Duration::from_millis(2_200) && *most > Duration::from_millis(2_150), "{most:?}");
    }
}
