//! What can go wrong with one request, in the classes that the router's database uses too.

use gorgo_routing::model::ErrorClass;
use hyper::StatusCode;

/// What went wrong, and in whose words.
#[derive(Debug, thiserror::Error)]
#[error("{detail}")]
pub(crate) struct Failure {
    /// Which kind, as this client saw it: upstream is the server it talked to.
    pub(crate) class: ErrorClass,
    /// The server's or the system's words.
    pub(crate) detail: String,
}

impl Failure {
    /// A failure of that class, in those words.
    pub(crate) fn new(class: ErrorClass, detail: impl Into<String>) -> Self {
        Self { class, detail: detail.into() }
    }

    /// The connection failed under a request.
    pub(crate) fn wire(error: &hyper::Error) -> Self {
        let class = if error.is_parse() { ErrorClass::UpstreamProtocol } else { ErrorClass::UpstreamClosed };
        Self::new(class, error.to_string())
    }
}

/// 4xx is the request's fault, 5xx the server's; anything else is no answer to a request for a stream.
pub(crate) fn class_of(status: StatusCode) -> ErrorClass {
    if status.is_client_error() {
        ErrorClass::ClientError
    } else if status.is_server_error() {
        ErrorClass::UpstreamStatus
    } else {
        ErrorClass::UpstreamProtocol
    }
}
