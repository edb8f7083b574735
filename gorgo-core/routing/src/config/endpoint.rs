//! Address of a real engine: `http://host:port`, and nothing else.

use std::net::{Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Address of a real engine, as in its replica's `url`. Parsed once, by the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct EngineUrl {
    text: String,
    authority: String,
    host: String,
    port: u16,
}

impl EngineUrl {
    /// Parses a replica's `url`.
    ///
    /// # Errors
    /// The fault and the correct form; the text never quotes credentials.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) =
            url.split_once("://").ok_or("no scheme; write `http://host:port`, such as `http://10.0.3.7:30000`")?;
        match scheme.to_ascii_lowercase().as_str() {
            "http" => {}
            "https" => {
                return Err("https to engines is not supported yet; end TLS in front of the engine and write its \
                            http address"
                    .to_owned());
            }
            other => return Err(format!("unknown scheme `{}`; known: http", other.escape_default())),
        }
        let cut = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(cut);
        // Checked before anything of the authority is quoted, because it may contain a password.
        if authority.contains('@') {
            return Err("credentials do not belong in a url; name an environment variable in `api_key_env`".to_owned());
        }
        if !matches!(tail, "" | "/") {
            return Err("write only `http://host:port`; the path of each request is added to it".to_owned());
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(inside) => {
                let (host, after) = inside.split_once(']').ok_or("no `]` after the IPv6 address")?;
                host.parse::<Ipv6Addr>()
                    .map_err(|_| format!("`[{}]` is not an IPv6 address", host.escape_default()))?;
                let port = match after {
                    "" => None,
                    _ => Some(after.strip_prefix(':').ok_or("expected `:port` after the IPv6 address")?),
                };
                (host, port)
            }
            None => match authority.split_once(':') {
                // A second colon without brackets is an IPv6 address, whose port would be ambiguous.
                Some((_, port)) if port.contains(':') => return Err("write an IPv6 address in brackets".to_owned()),
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return Err("no host; write `http://host:port`".to_owned());
        }
        if !authority.starts_with('[')
            && !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        {
            return Err(format!("`{}` is not a host name", host.escape_default()));
        }
        let port = match port {
            // The default port of http.
            None => 80,
            Some(port) => port
                // `parse` alone would accept a sign, as in `+80`.
                .bytes()
                .all(|byte| byte.is_ascii_digit())
                .then(|| port.parse().ok())
                .flatten()
                .filter(|port| *port != 0)
                .ok_or_else(|| format!("`{}` is not a port; allowed: 1 to 65535", port.escape_default()))?,
        };
        Ok(Self { text: url.to_owned(), authority: authority.to_owned(), host: host.to_owned(), port })
    }

    /// The address of an engine that listens in this process.
    #[must_use]
    pub fn of_socket(address: SocketAddr) -> Self {
        Self {
            text: format!("http://{address}"),
            authority: address.to_string(),
            host: address.ip().to_string(),
            port: address.port(),
        }
    }

    /// The address as it was written. A history knows the replica again by this text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `host` or `host:port` as it was written: the value of the `host` header.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Host name or IP address; an IPv6 address without its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port; 80 where none was written.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl TryFrom<String> for EngineUrl {
    type Error = String;

    fn try_from(url: String) -> Result<Self, String> {
        Self::parse(&url)
    }
}

impl From<EngineUrl> for String {
    fn from(url: EngineUrl) -> Self {
        url.text
    }
}

#[cfg(test)]
mod tests {
    use super::EngineUrl;

    #[test]
    fn good_urls_are_read() {
        for (text, authority, host, port) in [
            ("http://10.0.3.7:30000", "10.0.3.7:30000", "10.0.3.7", 30_000),
            ("HTTP://engine-1.example/", "engine-1.example", "engine-1.example", 80),
            ("http://[::1]:8000", "[::1]:8000", "::1", 8_000),
            ("http://[fe80::1]", "[fe80::1]", "fe80::1", 80),
        ] {
            let url = EngineUrl::parse(text).unwrap();
            assert_eq!((url.as_str(), url.authority(), url.host(), url.port()), (text, authority, host, port));
        }
    }

    #[test]
    fn a_socket_has_the_url_that_would_be_written_for_it() {
        for address in ["127.0.0.1:8000", "[::1]:8000"] {
            let url = EngineUrl::of_socket(address.parse().unwrap());
            assert_eq!(url, EngineUrl::parse(url.as_str()).unwrap());
        }
    }

    #[test]
    fn bad_urls_say_what_to_write() {
        let says = |url: &str| EngineUrl::parse(url).unwrap_err();
        assert!(says("10.0.3.7:30000").starts_with("no scheme"));
        assert!(says("https://h").starts_with("https to engines is not supported yet"));
        assert!(says("ftp://h").starts_with("unknown scheme `ftp`"));
        assert!(says("http://h:1/v1").contains("only `http://host:port`"));
        assert!(says("http://").starts_with("no host"));
        assert!(says("http://:80").starts_with("no host"));
        assert!(says("http://::1:80").contains("brackets"));
        for url in ["http://h:0", "http://h:65536", "http://h:", "http://h:+1"] {
            assert!(says(url).contains("is not a port"), "{url}");
        }
        assert!(says("http://a b").contains("is not a host name"));
        let secret = says("http://user:hunter2@h:1");
        assert!(secret.contains("api_key_env") && !secret.contains("hunter2"));
    }
}
