//! Failures of one request, in the same classes as the router's database.

use gorgo_routing::model::ErrorClass;
use hyper::StatusCode;

/// Failure of a request, with its class and the original words.
#[derive(Debug, thiserror::Error)]
#[error("{detail}")]
pub(crate) struct RequestFailure {
    /// Class as this client saw it: upstream is the server it talked to.
    pub(crate) class: ErrorClass,
    /// The server's or the system's words.
    pub(crate) detail: String,
}

impl RequestFailure {
    /// A failure of this class, in these words.
    pub(crate) fn new(class: ErrorClass, detail: impl Into<String>) -> Self {
        Self { class, detail: detail.into() }
    }

    /// A failure of the connection during a request.
    pub(crate) fn wire(error: &hyper::Error) -> Self {
        let class = if error.is_parse() { ErrorClass::UpstreamProtocol } else { ErrorClass::UpstreamClosed };
        Self::new(class, error.to_string())
    }
}

/// Class of an HTTP status: 4xx is the request's fault, 5xx the server's; anything else is not an answer to a request
/// for a stream.
pub(crate) fn class_of(status: StatusCode) -> ErrorClass {
    if status.is_client_error() {
        ErrorClass::ClientError
    } else if status.is_server_error() {
        ErrorClass::UpstreamStatus
    } else {
        ErrorClass::UpstreamProtocol
    }
}
