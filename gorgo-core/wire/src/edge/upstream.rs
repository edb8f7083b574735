//! A replica as the data plane sees it: its address, its key, its connections, and what it is known to refuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use hyper::Uri;
use hyper::header::HeaderValue;
use tokio_util::task::TaskTracker;

use super::dial::Target;
use super::pool::{Keeping, Pool};
use crate::engine::{Adapter, adapter};
use gorgo_routing::config::HttpVersion;
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
    /// `http://host:port`, with an optional path that is put before every request's path.
    pub url: String,
    /// Protocol towards it.
    pub http: HttpVersion,
    /// Its API key; without one the client's own `Authorization` goes on.
    pub key: Option<String>,
    /// Models it is configured to serve; listed where it does not answer itself.
    pub models: Vec<Arc<str>>,
}

/// Why a replica cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// The address is none.
    #[error("`{0}` is not an address of the form http://host:port")]
    Url(String),
    /// TLS is not built in.
    #[error("`{0}`: https to an engine is not supported, use http")]
    Https(String),
    /// The key cannot stand in a header. It is not shown.
    #[error("the api key has characters that a header cannot carry")]
    Key,
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
    pub(super) authority: HeaderValue,
    pub(super) authority_text: String,
    /// Put before every path; no slash at its end.
    pub(super) base: String,
    pub(super) http: HttpVersion,
    pub(super) key: Option<HeaderValue>,
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
    ) -> Result<Self, UpstreamError> {
        let bad_url = || UpstreamError::Url(setup.url.clone());
        let uri: Uri = setup.url.parse().map_err(|_| bad_url())?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(UpstreamError::Https(setup.url.clone())),
            _ => return Err(bad_url()),
        }
        let authority = uri.authority().ok_or_else(bad_url)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let target = Target { host, port: authority.port_u16().unwrap_or(80), http: setup.http, congestion };
        let key = setup.key.as_ref().map(|key| {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| UpstreamError::Key)?;
            value.set_sensitive(true);
            Ok(value)
        });
        Ok(Self {
            name: Arc::clone(&setup.name),
            adapter: adapter(setup.engine),
            cached_tokens: CachedTokens::default(),
            name_header: HeaderValue::from_bytes(setup.name.as_bytes())
                .unwrap_or_else(|_| HeaderValue::from_static("?")),
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| bad_url())?,
            authority_text: authority.as_str().to_owned(),
            base: uri.path().trim_end_matches('/').to_owned(),
            http: setup.http,
            key: key.transpose()?,
            models: setup.models.clone(),
            pool: Pool::new(target, keeping, tracker),
            usage_option: AtomicU8::new(UNKNOWN),
        })
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

    fn build(url: &str, key: Option<&str>) -> Result<Upstream, UpstreamError> {
        let setup = UpstreamSetup {
            id: ReplicaId(0),
            name: "a".into(),
            engine: EngineKind::Vllm,
            url: url.to_owned(),
            http: HttpVersion::Http1,
            key: key.map(str::to_owned),
            models: Vec::new(),
        };
        let keeping = Keeping { connect_timeout: Duration::from_secs(1), spare: 0, idle_max: Duration::from_secs(4) };
        Upstream::new(&setup, None, keeping, TaskTracker::new())
    }

    #[test]
    fn addresses_are_checked() {
        let upstream = build("http://10.0.3.7:30000/base/", Some("k")).unwrap();
        assert_eq!((upstream.authority_text.as_str(), upstream.base.as_str()), ("10.0.3.7:30000", "/base"));
        assert_eq!(build("http://[::1]:8000", None).unwrap().authority_text, "[::1]:8000");
        assert_eq!(build("https://a", None).unwrap_err(), UpstreamError::Https("https://a".to_owned()));
        assert_eq!(build("10.0.0.1:80", None).unwrap_err(), UpstreamError::Url("10.0.0.1:80".to_owned()));
        assert_eq!(build("http://a", Some("a\nb")).unwrap_err(), UpstreamError::Key);
    }

    fn told(upstream: &Upstream, cached: Option<u32>, believed: u32) -> (Option<u32>, bool) {
        let mut usage = Usage { prompt_tokens: Some(9), cached_tokens: cached, ..Usage::default() };
        let text = upstream.check_cached_tokens(&mut usage, believed);
        (usage.cached_tokens, text.is_some())
    }

    #[test]
    fn an_engine_that_never_reports_cached_tokens_is_complained_of_once() {
        let upstream = build("http://a", None).unwrap();
        assert_eq!(upstream.check_cached_tokens(&mut Usage::default(), 9), None, "no usage, no complaint");
        assert_eq!(told(&upstream, None, 0), (None, false), "nothing was to be expected");
        assert_eq!(told(&upstream, None, 256), (None, true));
        assert_eq!(told(&upstream, None, 256), (None, false));
        // Nothing was ever expected of this one: it gets ten chances.
        let upstream = build("http://a", None).unwrap();
        let complaints: Vec<bool> = (0..20).map(|_| told(&upstream, None, 0).1).collect();
        assert_eq!(complaints.iter().position(|said| *said), Some(9));
        assert_eq!(complaints.iter().filter(|said| **said).count(), 1);
    }

    #[test]
    fn an_engine_that_reports_cached_tokens_means_none_by_silence() {
        let upstream = build("http://a", None).unwrap();
        assert_eq!(told(&upstream, Some(0), 256), (Some(0), false));
        assert_eq!(told(&upstream, None, 256), (Some(0), false));
    }
}
