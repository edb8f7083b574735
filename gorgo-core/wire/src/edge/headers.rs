//! Headers that pass through the router. End-to-end headers pass unchanged; those that belong to one connection do not.

use hyper::HeaderMap;
use hyper::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

/// Request id, passed in both directions; made from the decision id if the client sends none.
pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Name of the replica that answered.
pub(super) const X_GORGO_REPLICA: HeaderName = HeaderName::from_static("x-gorgo-replica");
/// Decision id, decimal.
pub(super) const X_GORGO_DECISION: HeaderName = HeaderName::from_static("x-gorgo-decision");
/// Anthropic's header for an API key.
pub(super) const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
static PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Removes headers that belong to one connection (RFC 9110, section 7.6.1), including those that `Connection` names.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [
        &CONNECTION,
        &KEEP_ALIVE,
        &PROXY_CONNECTION,
        &PROXY_AUTHENTICATE,
        &PROXY_AUTHORIZATION,
        &TE,
        &TRAILER,
        &TRANSFER_ENCODING,
        &UPGRADE,
    ] {
        headers.remove(name);
    }
}

/// Request headers for an engine. `authority` and `key` are the replica's; without a key the client's own
/// `Authorization` passes.
pub(super) fn upstream(client: &HeaderMap, authority: &HeaderValue, key: Option<&HeaderValue>) -> HeaderMap {
    let mut headers = client.clone();
    strip_hop_by_hop(&mut headers);
    // The body is already here, so there is nothing to wait for; its length may change by the splice.
    headers.remove(EXPECT);
    headers.remove(CONTENT_LENGTH);
    headers.insert(HOST, authority.clone());
    // A compressed response could not be read for tokens and usage as it passes.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Some(key) = key {
        headers.insert(AUTHORIZATION, key.clone());
        // Otherwise the engine might check the client's key instead of the configured one.
        headers.remove(X_API_KEY);
    }
    headers
}

/// API key of the client, which can identify a session; only a hash of it is ever kept.
pub(super) fn client_key(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(AUTHORIZATION).or_else(|| headers.get(X_API_KEY)).map(HeaderValue::as_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn what_belongs_to_one_connection_does_not_cross() {
        let client = map(&[
            ("host", "router"),
            ("connection", "close, X-Private"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("expect", "100-continue"),
            ("accept-encoding", "gzip"),
            ("content-length", "3"),
            ("authorization", "Bearer client"),
            ("content-encoding", "gzip"),
            ("x-anything", "stays"),
        ]);
        let authority = HeaderValue::from_static("engine:80");
        let expected = map(&[
            ("host", "engine:80"),
            ("accept-encoding", "identity"),
            ("authorization", "Bearer client"),
            ("content-encoding", "gzip"),
            ("x-anything", "stays"),
        ]);
        assert_eq!(upstream(&client, &authority, None), expected);
        let key = HeaderValue::from_static("Bearer engine");
        assert_eq!(upstream(&client, &authority, Some(&key))[AUTHORIZATION], "Bearer engine");
    }
}
