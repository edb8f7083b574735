//! `--to`: the server that requests go to.

use gorgo_routing::config::EngineUrl;
use hyper::Uri;

/// API that requests use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ReplayApi {
    /// `/v1/chat/completions`, one user message per request.
    Chat,
    /// `/v1/completions`, the bare text: no chat template adds tokens.
    Completions,
}

impl ReplayApi {
    const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
        }
    }
}

/// A server by its base URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    /// Address of the server.
    pub(super) url: EngineUrl,
    /// Path before `/v1` in every request; empty, or without a slash at the end.
    base: String,
}

/// Error: a URL that no replay can send to.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ServerUrlError {
    #[error("--to {0}: not a URL such as http://127.0.0.1:8080")]
    Malformed(String),
    #[error("--to {0}: only plain http is supported; use the server's own address, not that of its TLS proxy")]
    Scheme(String),
}

impl ServerUrl {
    /// Parses `http://HOST[:PORT][/BASE]`; the scheme may be omitted, and a `/v1` at the end is ignored.
    pub(crate) fn parse(text: &str) -> Result<Self, ServerUrlError> {
        // Users paste base URLs of other clients, which often end in `/v1`; the paths here add it themselves.
        let malformed = || ServerUrlError::Malformed(text.to_owned());
        let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = with_scheme.parse().map_err(|_| malformed())?;
        if uri.scheme_str() != Some("http") {
            return Err(ServerUrlError::Scheme(text.to_owned()));
        }
        let authority = uri.authority().ok_or_else(malformed)?;
        if uri.query().is_some() {
            return Err(malformed());
        }
        let url = EngineUrl::parse(&format!("http://{authority}")).map_err(|_| malformed())?;
        let base = uri.path().trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base).to_owned();
        Ok(Self { url, base })
    }

    /// The engine at the address of a configured replica.
    pub(crate) const fn engine(url: EngineUrl) -> Self {
        Self { url, base: String::new() }
    }

    /// Path of an API on this server.
    pub(crate) fn api_path(&self, api: ReplayApi) -> String {
        format!("{}{}", self.base, api.path())
    }

    /// A path on this server, such as `/v1/models`.
    pub(crate) fn path(&self, below: &str) -> String {
        format!("{}{below}", self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_people_write() {
        let path = |text: &str| {
            ServerUrl::parse(text)
                .map(|target| (target.url.host().to_owned(), target.url.port(), target.api_path(ReplayApi::Chat)))
        };
        let chat = "/v1/chat/completions".to_owned();
        let local = Ok(("127.0.0.1".to_owned(), 8080, chat.clone()));
        for text in ["http://127.0.0.1:8080", "127.0.0.1:8080", "http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1/"] {
            assert_eq!(path(text), local, "{text}");
        }
        assert_eq!(path("http://router"), Ok(("router".to_owned(), 80, chat.clone())));
        assert_eq!(path("http://[::1]:9"), Ok(("::1".to_owned(), 9, chat)));
        assert_eq!(path("http://a:1/team/v1").unwrap().2, "/team/v1/chat/completions");
        assert_eq!(ServerUrl::parse("http://a:1/team").unwrap().path("/v1/models"), "/team/v1/models");
    }

    #[test]
    fn urls_that_cannot_be_replayed_to() {
        assert!(matches!(ServerUrl::parse("https://a"), Err(ServerUrlError::Scheme(_))));
        for text in ["", "http://", "http://a b", "http://a/?x=1"] {
            assert!(matches!(ServerUrl::parse(text), Err(ServerUrlError::Malformed(_))), "{text}");
        }
    }
}
