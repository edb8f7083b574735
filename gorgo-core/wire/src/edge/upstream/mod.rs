//! A replica as the data plane sees it: its address, its key, its connections, and options that it is known to reject.

pub(super) mod body;
pub(super) mod dial;
mod fleet_pools;
mod inline_connection;
pub(super) mod pool;
mod replica_socket;
mod slow_start;
pub mod tcp_info;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use hyper::header::HeaderValue;
use tokio_util::task::TaskTracker;

use super::upstream::dial::ReplicaAddress;
use super::upstream::pool::{ConnectionPool, PoolConfig};
use crate::engine::HttpEndpoint;
use gorgo_routing::model::engine::EngineAdapter;
use gorgo_routing::model::{EngineKind, ReplicaId, TokenUsage};

/// Settings of a replica.
#[derive(Debug, Clone)]
pub struct ReplicaSetup {
    /// Position in the fleet.
    pub id: ReplicaId,
    /// Name, as in `x-gorgo-replica`.
    pub name: Arc<str>,
    /// Kind of engine.
    pub engine: EngineKind,
    /// Address, protocol and API key; without a key the client's own `Authorization` passes.
    pub endpoint: HttpEndpoint,
    /// Models that it is configured to serve; listed if it does not answer itself.
    pub models: Vec<Arc<str>>,
}

/// Reasons why the data plane cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataPlaneSetupError {
    /// The name of the session header is invalid.
    #[error("server.session_header = `{0}`: not a valid header name")]
    SessionHeader(String),
    /// The system has no such congestion control, or does not let this process choose it.
    #[error(
        "server.congestion_control = `{name}`: {cause}; /proc/sys/net/ipv4/tcp_allowed_congestion_control lists the \
         allowed ones"
    )]
    Congestion {
        /// Name from the configuration.
        name: String,
        /// Error of the system.
        cause: String,
    },
}

/// Support for `stream_options`, as far as observed.
const UNKNOWN: u8 = 0;
const TAKES: u8 = 1;
const REFUSES: u8 = 2;

/// Answers without cached tokens, none expected, after which an engine is assumed not to report them.
const UNREPORTED_LIMIT: u32 = 9;

/// Observations of whether the engine reports how many prompt tokens it had cached.
#[derive(Debug, Default)]
struct CachedTokenReports {
    /// Reported at least once.
    reported: AtomicBool,
    /// Answers without the figure.
    unreported: AtomicU32,
    /// The warning was given.
    warned: AtomicBool,
}

/// Replica.
#[derive(Debug)]
pub(super) struct UpstreamReplica {
    pub(super) name: Arc<str>,
    adapter: &'static EngineAdapter,
    cached_tokens: CachedTokenReports,
    pub(super) name_header: HeaderValue,
    pub(super) endpoint: HttpEndpoint,
    pub(super) models: Vec<Arc<str>>,
    pub(super) pool: Arc<ConnectionPool>,
    usage_option: AtomicU8,
}

impl UpstreamReplica {
    pub(super) fn new(
        setup: &ReplicaSetup,
        congestion: Option<Arc<str>>,
        keeping: PoolConfig,
        tracker: TaskTracker,
    ) -> Self {
        let url = setup.endpoint.url();
        let target =
            ReplicaAddress { host: url.host().to_owned(), port: url.port(), http: setup.endpoint.http(), congestion };
        Self {
            name: Arc::clone(&setup.name),
            adapter: setup.engine.adapter(),
            cached_tokens: CachedTokenReports::default(),
            // The configuration allows only names that a header can carry; the fallback avoids a panic here.
            name_header: HeaderValue::from_bytes(setup.name.as_bytes())
                .unwrap_or_else(|_| HeaderValue::from_static("?")),
            endpoint: setup.endpoint.clone(),
            models: setup.models.clone(),
            pool: ConnectionPool::new(target, keeping, tracker),
            usage_option: AtomicU8::new(UNKNOWN),
        }
    }

    /// Returns `true` if usage may be requested with `stream_options`.
    pub(super) fn may_take_usage_option(&self) -> bool {
        self.usage_option.load(Ordering::Relaxed) != REFUSES
    }

    /// Returns `true` if a 400 may have been caused by `stream_options`.
    pub(super) fn may_refuse_usage_option(&self) -> bool {
        // Once an answer has settled the question, a 400 has another cause.
        self.usage_option.load(Ordering::Relaxed) == UNKNOWN
    }

    /// Checks the counts of a complete response for cached tokens. `believed`: tokens that the index expected. Returns,
    /// once per replica, a text that names the flag which makes the engine report them.
    ///
    /// Engines omit the figure if it is 0 (vLLM, SGLang), so for an engine that ever reported it a missing figure means
    /// 0. An engine that never did is warned about only if it was expected to have something cached, or has omitted the
    /// figure many times.
    pub(super) fn check_cached_tokens(&self, usage: &mut TokenUsage, believed: u32) -> Option<String> {
        // Without any usage, the absence of one figure says nothing.
        usage.prompt_tokens?;
        if usage.cached_tokens.is_some() {
            self.cached_tokens.reported.store(true, Ordering::Relaxed);
            return None;
        }
        if self.cached_tokens.reported.load(Ordering::Relaxed) {
            usage.cached_tokens = Some(0);
            return None;
        }
        // An engine without such a flag cannot be made to report them, so there is nothing to warn about.
        self.adapter.cached_tokens_flag?;
        let silent = self.cached_tokens.unreported.fetch_add(1, Ordering::Relaxed);
        // Nothing expected and few answers so far: the figure may have been 0 each time.
        if believed == 0 && silent < UNREPORTED_LIMIT {
            return None;
        }
        // Swapped, so that of several answers at once only one causes the warning.
        let said = self.cached_tokens.warned.swap(true, Ordering::Relaxed);
        (!said).then(|| self.adapter.missing_cached_tokens(&self.name))
    }

    pub(super) fn record_usage_option(&self, takes: bool) {
        self.usage_option.store(if takes { TAKES } else { REFUSES }, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use gorgo_routing::config::{EngineUrl, HttpVersion};

    fn build() -> UpstreamReplica {
        let url = EngineUrl::parse("http://a").unwrap();
        let setup = ReplicaSetup {
            id: ReplicaId(0),
            name: "a".into(),
            engine: EngineKind::Vllm,
            endpoint: HttpEndpoint::new(url, None, HttpVersion::Http1).unwrap(),
            models: Vec::new(),
        };
        let keeping =
            PoolConfig { connect_timeout: Duration::from_secs(1), spare: 0, idle_max: Duration::from_secs(4) };
        UpstreamReplica::new(&setup, None, keeping, TaskTracker::new())
    }

    fn told(upstream: &UpstreamReplica, cached: Option<u32>, believed: u32) -> (Option<u32>, bool) {
        let mut usage = TokenUsage { prompt_tokens: Some(9), cached_tokens: cached, ..TokenUsage::default() };
        let text = upstream.check_cached_tokens(&mut usage, believed);
        (usage.cached_tokens, text.is_some())
    }

    #[test]
    fn an_engine_that_never_reports_cached_tokens_is_complained_of_once() {
        let upstream = build();
        assert_eq!(upstream.check_cached_tokens(&mut TokenUsage::default(), 9), None, "no usage, no complaint");
        assert_eq!(told(&upstream, None, 0), (None, false), "nothing was to be expected");
        assert_eq!(told(&upstream, None, 256), (None, true));
        assert_eq!(told(&upstream, None, 256), (None, false));
        // Nothing was ever expected of this one: it gets ten chances.
        let upstream = build();
        let complaints: Vec<bool> = (0..20).map(|_| told(&upstream, None, 0).1).collect();
        assert_eq!(complaints.iter().position(|said| *said), Some(9));
        assert_eq!(complaints.iter().filter(|said| **said).count(), 1);
    }

    #[test]
    fn an_engine_that_reports_cached_tokens_means_none_by_silence() {
        let upstream = build();
        assert_eq!(told(&upstream, Some(0), 256), (Some(0), false));
        assert_eq!(told(&upstream, None, 256), (Some(0), false));
    }
}
