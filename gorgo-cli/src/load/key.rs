//! The API key of a server: read from the environment, never shown.

use hyper::header::HeaderValue;

/// No usable key in the environment variable of this name.
#[derive(Debug, thiserror::Error)]
#[error("{0}, which is to hold the API key: no such environment variable, or not a key")]
pub(crate) struct KeyError(String);

/// The key that an environment variable holds, as the header sends it.
pub(crate) fn api_key(variable: &str) -> Result<HeaderValue, KeyError> {
    let key = std::env::var(variable).ok().filter(|key| !key.is_empty());
    let value = key.and_then(|key| HeaderValue::try_from(format!("Bearer {key}")).ok());
    let mut value = value.ok_or_else(|| KeyError(variable.to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}
