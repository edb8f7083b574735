//! A replica as the data plane sees it: its address, its key, its connections, and what it is known to refuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderValue;
use tokio_util::task::TaskTracker;

use super::pool::{Pool, Target};
use crate::config::HttpVersion;
use crate::model::ReplicaId;

/// What a replica is made of.
#[derive(Debug, Clone)]
pub struct UpstreamSetup {
    /// Its place in the fleet.
    pub id: ReplicaId,
    /// Its name, as `x-gorgo-replica` says it.
    pub name: Arc<str>,
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
}

/// Whether the engine takes `stream_options`, as far as seen.
const UNKNOWN: u8 = 0;
const TAKES: u8 = 1;
const REFUSES: u8 = 2;

/// A replica.
#[derive(Debug)]
pub(super) struct Upstream {
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
        connect_timeout: Duration,
        spare_connections: usize,
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
        let target = Target { host, port: authority.port_u16().unwrap_or(80), http: setup.http };
        let key = setup.key.as_ref().map(|key| {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| UpstreamError::Key)?;
            value.set_sensitive(true);
            Ok(value)
        });
        Ok(Self {
            name_header: HeaderValue::from_bytes(setup.name.as_bytes())
                .unwrap_or_else(|_| HeaderValue::from_static("?")),
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| bad_url())?,
            authority_text: authority.as_str().to_owned(),
            base: uri.path().trim_end_matches('/').to_owned(),
            http: setup.http,
            key: key.transpose()?,
            models: setup.models.clone(),
            pool: Pool::new(target, connect_timeout, spare_connections, tracker),
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

    pub(super) fn takes_usage_option(&self, takes: bool) {
        self.usage_option.store(if takes { TAKES } else { REFUSES }, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(url: &str, key: Option<&str>) -> Result<Upstream, UpstreamError> {
        let setup = UpstreamSetup {
            id: ReplicaId(0),
            name: "a".into(),
            url: url.to_owned(),
            http: HttpVersion::Http1,
            key: key.map(str::to_owned),
            models: Vec::new(),
        };
        Upstream::new(&setup, Duration::from_secs(1), 0, TaskTracker::new())
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
}
