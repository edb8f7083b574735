//! Responses that gorgo itself gives, in OpenAI's error format.

use bytes::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use super::relay::ResponseBody;
use crate::engine::StreamDialect;
use gorgo_routing::model::RefusalReason;

/// Seconds after which a client may retry when no replica was available. When a queue at the gate is full, the gate
/// computes a better value.
const RETRY_AFTER_SECS: &str = "1";

/// Response with this JSON text.
pub(super) fn json_text(status: StatusCode, text: String) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::whole(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Error response of gorgo. 503 and 429 carry `Retry-After`.
pub(super) fn error(status: StatusCode, code: &str, message: &str) -> Response<ResponseBody> {
    let body = json!({ "error": member(status, code, message) });
    let mut response = json_text(status, body.to_string());
    if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECS));
    }
    response
}

/// 405 with the methods that the path supports.
pub(super) fn wrong_method(allowed: &'static str) -> Response<ResponseBody> {
    let mut response = error(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        &format!("method not allowed for this path; allowed: {allowed}"),
    );
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// HTTP status and error code of a refusal.
pub(super) const fn refusal(refusal: RefusalReason) -> (StatusCode, &'static str) {
    match refusal {
        RefusalReason::MalformedBody => (StatusCode::BAD_REQUEST, "malformed_body"),
        // Rarely read by anyone: the body did not arrive, so the client has usually left.
        RefusalReason::ClientGone => (StatusCode::REQUEST_TIMEOUT, "request_timeout"),
        RefusalReason::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
        RefusalReason::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, "overloaded"),
        RefusalReason::UnknownModel => (StatusCode::NOT_FOUND, "model_not_found"),
        RefusalReason::NoReplica => (StatusCode::SERVICE_UNAVAILABLE, "no_replica_available"),
        RefusalReason::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        RefusalReason::GateFull => (StatusCode::TOO_MANY_REQUESTS, "queue_full"),
    }
}

fn member(status: StatusCode, code: &str, message: &str) -> Value {
    let kind = if status == StatusCode::TOO_MANY_REQUESTS {
        "rate_limit_error"
    } else if status.is_client_error() {
        "invalid_request_error"
    } else {
        "upstream_error"
    };
    json!({ "message": message, "type": kind, "param": null, "code": code })
}

/// Event that ends a stream which broke. Its first member is `error`, so that every client that looks for it finds it.
///
/// Anthropic's API and the Responses API distinguish events by name and type, so both are included for them.
pub(super) fn error_event(dialect: Option<StreamDialect>, code: &str, message: &str) -> Bytes {
    let member = member(StatusCode::BAD_GATEWAY, code, message);
    let text = match dialect {
        Some(StreamDialect::Messages | StreamDialect::Responses) => {
            format!("event: error\ndata: {{\"error\":{member},\"type\":\"error\"}}\n\n")
        }
        _ => format!("data: {{\"error\":{member}}}\n\n"),
    };
    Bytes::from(text)
}
