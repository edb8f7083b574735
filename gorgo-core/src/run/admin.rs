//! The operators' listener: `GET /metrics`, `/health`, `/ready`.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::observe::log;
use crate::observe::meter::Meter;

/// What the operators' pages show.
pub(super) struct Pages {
    pub(super) meter: Arc<Meter>,
    /// Whether requests are welcome.
    pub(super) ready: Box<dyn Fn() -> bool + Send + Sync>,
}

/// Serves until `stop`. Connections are cut then: nothing here is worth waiting for.
pub(super) async fn serve(pages: Arc<Pages>, listener: TcpListener, tracker: TaskTracker, stop: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(cause) => {
                // Out of file handles, most likely; trying again at once would only spin.
                log::accept_failed("admin", &cause);
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let pages = Arc::clone(&pages);
        let stop = stop.clone();
        tracker.spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(&pages, &request);
                async move { Ok::<_, Infallible>(answer) }
            });
            let builder = auto::Builder::new(TokioExecutor::new());
            tokio::select! {
                () = stop.cancelled() => {}
                // A scraper that goes away in mid-answer is nobody's business.
                _ = builder.serve_connection(TokioIo::new(stream), service) => {}
            }
        });
    }
}

fn answer<B>(pages: &Pages, request: &Request<B>) -> Response<Full<Bytes>> {
    let known = ["/metrics", "/health", "/ready"].contains(&request.uri().path());
    if known && request.method() != Method::GET && request.method() != Method::HEAD {
        let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match request.uri().path() {
        "/metrics" => match pages.meter.page() {
            Ok(page) => {
                let mut page = text(StatusCode::OK, page);
                page.headers_mut().insert(
                    CONTENT_TYPE,
                    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8"),
                );
                page
            }
            Err(cause) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("metrics: {cause}\n")),
        },
        "/health" => text(StatusCode::OK, "ok\n".to_owned()),
        "/ready" if (pages.ready)() => text(StatusCode::OK, "ready\n".to_owned()),
        "/ready" => text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n".to_owned()),
        _ => text(StatusCode::NOT_FOUND, "known here: /metrics /health /ready\n".to_owned()),
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
