//! The operators' listener: `GET /metrics`, `/health`, `/ready`, `/replicas`, `/policy`, `/tuners`; actions, by POST:
//! `/replicas/NAME/drain` and `/resume`, `/policy/pin/NAME`, `/policy/unpin`.
//!
//! There is no authentication: anyone who can reach this port may do all of it. Pages in an operator's browser may not:
//! their requests carry an `Origin` header, and are refused.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, ORIGIN};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::operate::{ActionError, OperatorActions};
use gorgo_observe::log;
use gorgo_observe::meter::RouterMetrics;

/// Sources of the operators' pages.
pub(super) struct AdminPages {
    pub(super) meter: Arc<RouterMetrics>,
    pub(super) operators: OperatorActions,
    /// Returns true while the router takes requests.
    pub(super) ready: Box<dyn Fn() -> bool + Send + Sync>,
}

/// Serves until `stop`. Open connections are closed then: no response here is worth waiting for.
pub(super) async fn serve(
    pages: Arc<AdminPages>,
    listener: TcpListener,
    tracker: TaskTracker,
    stop: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(cause) => {
                // Most likely the process is out of file handles: without a pause this loop would spin.
                log::accept_failed("admin", &cause);
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        // Responses are small: Nagle's algorithm would only delay them. A socket that refuses the option still works.
        let _ = stream.set_nodelay(true);
        let pages = Arc::clone(&pages);
        let stop = stop.clone();
        tracker.spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let pages = Arc::clone(&pages);
                async move { Ok::<_, Infallible>(answer(&pages, &request).await) }
            });
            let builder = auto::Builder::new(TokioExecutor::new());
            tokio::select! {
                () = stop.cancelled() => {}
                // Errors are ignored: a scraper that disconnects during a response harms nobody.
                _ = builder.serve_connection(TokioIo::new(stream), service) => {}
            }
        });
    }
}

/// Pages that can be read.
const READ_PATHS: [&str; 6] = ["/metrics", "/health", "/ready", "/replicas", "/policy", "/tuners"];

async fn answer<B>(pages: &AdminPages, request: &Request<B>) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let looks = request.method() == Method::GET || request.method() == Method::HEAD;
    match (path, parse_action(path)) {
        // Actions come first, and never by GET: a prefetching browser or a crawler must not drain a replica.
        (_, Some(_)) if request.method() != Method::POST => only("POST"),
        // Browsers add `Origin` to cross-site POSTs, command-line clients do not: this guards against forged ones.
        (_, Some(_)) if request.headers().contains_key(ORIGIN) => {
            text(StatusCode::FORBIDDEN, "requests from web pages are refused; use `gorgo ctl` or curl\n".to_owned())
        }
        (_, Some(deed)) => done(deed.apply(&pages.operators).await),
        // An unknown path gets the list of known ones, whatever the method.
        (path, None) if !READ_PATHS.contains(&path) => {
            let known = "known paths: /metrics /health /ready /replicas /policy /tuners; by POST /replicas/NAME/drain \
                         /replicas/NAME/resume /policy/pin/NAME /policy/unpin\n";
            text(StatusCode::NOT_FOUND, known.to_owned())
        }
        _ if !looks => only("GET, HEAD"),
        ("/metrics", _) => match pages.meter.page() {
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
        // From here on the method is GET or HEAD; hyper leaves out the body of a response to HEAD.
        ("/replicas", _) => json_page(&pages.operators.replicas()),
        ("/policy", _) => json_page(&pages.operators.policy()),
        ("/tuners", _) => json_page(&pages.operators.tuners()),
        ("/ready", _) if (pages.ready)() => text(StatusCode::OK, "ready\n".to_owned()),
        ("/ready", _) => text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n".to_owned()),
        _ => text(StatusCode::OK, "ok\n".to_owned()),
    }
}

/// Action that an operator requests by POST.
#[derive(Debug, PartialEq, Eq)]
enum AdminAction<'p> {
    Drain(&'p str),
    Resume(&'p str),
    Pin(&'p str),
    Unpin,
}

fn parse_action(path: &str) -> Option<AdminAction<'_>> {
    if path == "/policy/unpin" {
        return Some(AdminAction::Unpin);
    }
    if let Some(name) = path.strip_prefix("/policy/pin/") {
        return Some(AdminAction::Pin(name));
    }
    // Split from the right: the verb is the last segment, and a replica's name may contain a slash.
    let (name, verb) = path.strip_prefix("/replicas/")?.rsplit_once('/')?;
    match verb {
        "drain" => Some(AdminAction::Drain(name)),
        "resume" => Some(AdminAction::Resume(name)),
        _ => None,
    }
}

impl AdminAction<'_> {
    async fn apply(self, operators: &OperatorActions) -> Result<String, ActionError> {
        match self {
            Self::Drain(name) => operators.drain(name, true),
            Self::Resume(name) => operators.drain(name, false),
            Self::Pin(name) => operators.pin(Some(name)).await,
            Self::Unpin => operators.pin(None).await,
        }
    }
}

fn done(done: Result<String, ActionError>) -> Response<Full<Bytes>> {
    match done {
        Ok(said) => text(StatusCode::OK, format!("{said}\n")),
        Err(ActionError::Unknown(said)) => text(StatusCode::NOT_FOUND, format!("{said}\n")),
        // The action took effect, but a restart would forget it: no success, so that a script notices.
        Err(ActionError::NotPersisted(said)) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{said}\n")),
    }
}

fn only(methods: &'static str) -> Response<Full<Bytes>> {
    let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, format!("method not allowed; use {methods}\n"));
    refused.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    refused
}

fn json_page(value: &serde_json::Value) -> Response<Full<Bytes>> {
    let mut page = text(StatusCode::OK, format!("{value:#}\n"));
    page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    page
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deeds_are_read_from_paths() {
        assert_eq!(parse_action("/replicas/us-ashburn/drain"), Some(AdminAction::Drain("us-ashburn")));
        assert_eq!(parse_action("/replicas/a/resume"), Some(AdminAction::Resume("a")));
        assert_eq!(parse_action("/policy/pin/gorgo"), Some(AdminAction::Pin("gorgo")));
        assert_eq!(parse_action("/policy/unpin"), Some(AdminAction::Unpin));
        for path in ["/replicas", "/replicas/a", "/replicas/a/stop", "/policy", "/drain", "/"] {
            assert_eq!(parse_action(path), None, "{path}");
        }
    }
}
