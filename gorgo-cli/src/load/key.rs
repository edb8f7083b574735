//! The API key of a server: read from the environment, never shown.

use hyper::header::HeaderValue;

/// Error: the environment variable of this name contains no usable key.
#[derive(Debug, thiserror::Error)]
#[error("environment variable {0} (API key) is unset or not a valid header value")]
pub(crate) struct KeyError(String);

/// The key in an environment variable, as the value of the `Authorization` header.
pub(crate) fn api_key(variable: &str) -> Result<HeaderValue, KeyError> {
    let key = std::env::var(variable).ok().filter(|key| !key.is_empty());
    let value = key.and_then(|key| HeaderValue::try_from(format!("Bearer {key}")).ok());
    let mut value = value.ok_or_else(|| KeyError(variable.to_owned()))?;
    // Keeps the key out of `Debug` output and logs.
    value.set_sensitive(true);
    Ok(value)
}
