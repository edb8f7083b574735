//! Step 5 of a request: it reaches its replica.
//!
//! A replica as the data plane sees it: its address, its key, its connections, and what it is known to refuse.

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

use super::upstream::dial::Target;
use super::upstream::pool::{Keeping, Pool};
use crate::engine::Endpoint;
use gorgo_routing::model::engine::Adapter;
use gorgo_routing::model::{EngineKind, ReplicaId, Usage};

/// What a replica is made of.
#[derive(Debug, Clone)]
pub struct UpstreamSetup {
    /// Its place in the fleet.
    pub id: ReplicaId,
    /// Its name, as `x-gorgo-replica` says it.
    pub name: Arc<str>,
    /// What kind of engine it is.
    pub engine: EngineKind,
    /// Its address, its protocol and its API key; without a key the client's own `Authorization` goes on.
    pub endpoint: Endpoint,
    /// Models it is configured to serve; listed where it does not answer itself.
    pub models: Vec<Arc<str>>,
}

/// Why the data plane cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// The session header's name is none.
    #[error("`{0}` is not a header name")]
    SessionHeader(String),
    /// The system has no such congestion control, or does not let this process choose it.
    #[error(
        "server.congestion_control = `{name}`: {cause}; /proc/sys/net/ipv4/tcp_allowed_congestion_control lists what may \
         be chosen"
    )]
    Congestion {
        /// What was asked for.
        name: String,
        /// What the system said.
        cause: String,
    },
}

/// Whether the engine takes `stream_options`, as far as seen.
const UNKNOWN: u8 = 0;
const TAKES: u8 = 1;
const REFUSES: u8 = 2;

/// Answers without cached tokens, none expected, after which an engine is taken not to report them.
const SILENT_ANSWERS: u32 = 9;

/// Whether the engine says how many prompt tokens it had cached.
#[derive(Debug, Default)]
struct CachedTokens {
    /// It did at least once.
    given: AtomicBool,
    /// Answers without.
    silent: AtomicU32,
    /// The complaint was made.
    said: AtomicBool,
}

/// A replica.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) name: Arc<str>,
    adapter: &'static Adapter,
    cached_tokens: CachedTokens,
    pub(super) name_header: HeaderValue,
    pub(super) endpoint: Endpoint,
    pub(super) models: Vec<Arc<str>>,
    pub(super) pool: Arc<Pool>,
    usage_option: AtomicU8,
}

impl Upstream {
    pub(super) fn new(
        setup: &UpstreamSetup,
        congestion: Option<Arc<str>>,
        keeping: Keeping,
        tracker: TaskTracker,
    ) -> Self {
        let url = setup.endpoint.url();
        let target = Target { host: url.host().to_owned(), port: url.port(), http: setup.endpoint.http(), congestion };
        Self {
            name: Arc::clone(&setup.name),
            adapter: setup.engine.adapter(),
            cached_tokens: CachedTokens::default(),
            name_header: HeaderValue::from_bytes(setup.name.as_bytes())
                .unwrap_or_else(|_| HeaderValue::from_static("?")),
            endpoint: setup.endpoint.clone(),
            models: setup.models.clone(),
            pool: Pool::new(target, keeping, tracker),
            usage_option: AtomicU8::new(UNKNOWN),
        }
    }

    /// Whether usage may be asked for with `stream_options`.
    pub(super) fn may_take_usage_option(&self) -> bool {
        self.usage_option.load(Ordering::Relaxed) != REFUSES
    }

    /// Whether a 400 could be due to `stream_options`.
    pub(super) fn may_refuse_usage_option(&self) -> bool {
        self.usage_option.load(Ordering::Relaxed) == UNKNOWN
    }

    /// Reads the counts of a whole answer with an eye on cached tokens. `believed`: what the index expected. The text,
    /// once per replica, says which flag would make the engine report them.
    ///
    /// Engines leave the figure out where it is 0 (vLLM, SGLang), so an engine that ever gave it is taken to mean 0, and
    /// one that never did is complained of only when it was expected to have something, or has stayed silent for long.
    pub(super) fn check_cached_tokens(&self, usage: &mut Usage, believed: u32) -> Option<String> {
        usage.prompt_tokens?;
        if usage.cached_tokens.is_some() {
            self.cached_tokens.given.store(true, Ordering::Relaxed);
            return None;
        }
        if self.cached_tokens.given.load(Ordering::Relaxed) {
            usage.cached_tokens = Some(0);
            return None;
        }
        self.adapter.cached_tokens_flag?;
        let silent = self.cached_tokens.silent.fetch_add(1, Ordering::Relaxed);
        if believed == 0 && silent < SILENT_ANSWERS {
            return None;
        }
        let said = self.cached_tokens.said.swap(true, Ordering::Relaxed);
        (!said).then(|| self.adapter.missing_cached_tokens(&self.name))
    }

    pub(super) fn takes_usage_option(&self, takes: bool) {
        self.usage_option.store(if takes { TAKES } else { REFUSES }, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use gorgo_routing::config::{EngineUrl, HttpVersion};

    fn build() -> Upstream {
        let url = EngineUrl::parse("http://a").unwrap();
        let setup = UpstreamSetup {
            id: ReplicaId(0),
            name: "a".into(),
            engine: EngineKind::Vllm,
            endpoint: Endpoint::new(url, None, HttpVersion::Http1).unwrap(),
            models: Vec::new(),
        };
        let keeping = Keeping { connect_timeout: Duration::from_secs(1), spare: 0, idle_max: Duration::from_secs(4) };
        Upstream::new(&setup, None, keeping, TaskTracker::new())
    }

    fn told(upstream: &Upstream, cached: Option<u32>, believed: u32) -> (Option<u32>, bool) {
        let mut usage = Usage { prompt_tokens: Some(9), cached_tokens: cached, ..Usage::default() };
        let text = upstream.check_cached_tokens(&mut usage, believed);
        (usage.cached_tokens, text.is_some())
    }

    #[test]
    fn an_engine_that_never_reports_cached_tokens_is_complained_of_once() {
        let upstream = build();
        assert_eq!(upstream.check_cached_tokens(&mut Usage::default(), 9), None, "no usage, no complaint");
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
