//! Routes by path: which handler answers which request.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use crate::edge::DataPlane;
use crate::edge::forward::forward;
use crate::edge::intake::models;
use crate::edge::listen::connection::ClientConnection;
use crate::edge::local_reply::{error, json_text, wrong_method};
use crate::edge::relay::ResponseBody;
use gorgo_routing::model::ApiPath;

/// Answers any request of the data port.
pub(in crate::edge) async fn answer(
    data: Arc<DataPlane>,
    client: ClientConnection,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let path = request.uri().path();
    let method = request.method();
    match path {
        "/health" | "/ready" | "/v1/models" if *method == Method::OPTIONS => allowed("GET, HEAD, OPTIONS"),
        "/health" | "/ready" | "/v1/models" if !matches!(*method, Method::GET | Method::HEAD) => {
            wrong_method("GET, HEAD, OPTIONS")
        }
        "/health" => json_text(StatusCode::OK, r#"{"status":"ok"}"#.to_owned()),
        "/ready" if data.is_ready() => json_text(StatusCode::OK, r#"{"status":"ready"}"#.to_owned()),
        "/ready" => error(
            StatusCode::SERVICE_UNAVAILABLE,
            "not_ready",
            "the router is starting or draining, or no replica is available",
        ),
        "/v1/models" => models::list(&data, request.headers()).await,
        _ => match ApiPath::from_path(path) {
            // `CONNECT` and `OPTIONS *` concern the server itself, so no engine can answer them for the client.
            ApiPath::Other if *method == Method::CONNECT || path == "*" => wrong_method("GET, HEAD, POST, OPTIONS"),
            ApiPath::Other => match path.strip_prefix("/v1/models/") {
                Some(model) if matches!(*method, Method::GET | Method::HEAD) => {
                    models::one(&data, request.headers(), model).await
                }
                _ if !data.server.pass_engine_paths && !path.starts_with("/v1/") => error(
                    StatusCode::NOT_FOUND,
                    "unknown_path",
                    "unknown path; to pass it to an engine, set server.pass_engine_paths",
                ),
                _ => forward(data, client, request, ApiPath::Other).await,
            },
            _ if *method == Method::OPTIONS => allowed("POST, OPTIONS"),
            api if *method == Method::POST => forward(data, client, request, api).await,
            _ => wrong_method("POST, OPTIONS"),
        },
    }
}

fn allowed(methods: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::whole(bytes::Bytes::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    response
}
