//! The load generator's HTTP client: kept connections, one request at a time on each, times taken around the wire.
//!
//! A request is silently sent again only if nothing of it had been sent (a kept connection that the server had closed
//! meanwhile). Any other failure becomes the error of that sample and never ends the run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use gorgo_lab::trace::RequestSample;
use gorgo_routing::model::{Clock, ErrorClass, UnixMicros};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

use super::failure::{RequestFailure, class_of};
use super::stream::{StreamSaid, StreamScan, message};
use super::target::{ReplayApi, ServerUrl};

/// Bytes of an error body that are read for its message.
const ERROR_BODY_BYTES: usize = 64 << 10;

const ROW_INDEX: HeaderName = HeaderName::from_static("x-gorgo-trace-row-index");
const SLIP: HeaderName = HeaderName::from_static("x-gorgo-scheduling-slip-ms");
const SOURCE_ROW: HeaderName = HeaderName::from_static("x-gorgo-source-row-id");
const SESSION: HeaderName = HeaderName::from_static("x-session-id");
const REPLICA: &str = "x-gorgo-replica";
const DECISION: &str = "x-gorgo-decision";

/// One request to be sent.
#[derive(Debug)]
pub(crate) struct ReplayRequest {
    /// Facts known before sending; the client fills in the rest.
    pub(crate) sample: RequestSample,
    /// Start of the run, from which `scheduled_ms` counts.
    pub(crate) start: UnixMicros,
    /// Session to send with it, if any.
    pub(crate) session: Option<String>,
    /// The body.
    pub(crate) body: Bytes,
}

/// Settings common to all requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestOptions {
    /// API to call.
    pub(crate) api: ReplayApi,
    /// True for event streams, false for whole answers.
    pub(crate) stream: bool,
    /// Limit of each request from sending to its last byte.
    pub(crate) limit: Duration,
    /// Number of times that a request is sent again after no answer or status 502.
    pub(crate) retries: u32,
}

/// Pause before a request is sent again; doubled each time.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A connection with no request on it.
type IdleConnection = SendRequest<Full<Bytes>>;

/// Sends requests to one server.
pub(crate) struct ReplayClient {
    target: ServerUrl,
    path: Uri,
    headers: HeaderMap,
    options: RequestOptions,
    clock: Arc<dyn Clock>,
    tracker: TaskTracker,
    idle: Mutex<Vec<IdleConnection>>,
}

impl ReplayClient {
    /// A client of `target`.
    pub(crate) fn new(
        target: ServerUrl,
        asked: &RequestOptions,
        key: Option<&HeaderValue>,
        clock: Arc<dyn Clock>,
        tracker: TaskTracker,
    ) -> Result<Self, hyper::http::Error> {
        let path = Uri::try_from(target.api_path(asked.api))?;
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::try_from(target.url.authority())?);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            header::ACCEPT,
            HeaderValue::from_static(if asked.stream { "text/event-stream" } else { "application/json" }),
        );
        if let Some(key) = key {
            headers.insert(header::AUTHORIZATION, key.clone());
        }
        Ok(Self { target, path, headers, options: *asked, clock, tracker, idle: Mutex::default() })
    }

    /// Clock that all times are taken from.
    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Opens connections ahead of the first request, so that no request's slip includes the set-up of a connection.
    pub(crate) async fn warm(self: &Arc<Self>, connections: usize) -> Result<(), RequestFailure> {
        let dial = |_| {
            let client = Arc::clone(self);
            self.tracker.spawn(async move { client.dial().await.map(|connection| client.release(connection)) })
        };
        // Dialled in parallel: one after the other, 64 connections over a far link take 64 round trips.
        let dialled: Vec<_> = (0..connections).map(dial).collect();
        for handle in dialled {
            handle.await.unwrap_or_else(|error| Err(RequestFailure::new(ErrorClass::Connect, error.to_string())))?;
        }
        Ok(())
    }

    /// Time to set up a connection, ms: one round trip, because HTTP sends nothing before the first request.
    pub(crate) async fn connect_ms(&self) -> Result<f64, RequestFailure> {
        let start = self.clock.now();
        self.dial().await.map(|_| self.clock.now().millis_since(start))
    }

    /// Fetches a path below the server's base, such as `/v1/models`: JSON, with status 200.
    pub(crate) async fn get_json(&self, path: &str) -> Result<serde_json::Value, RequestFailure> {
        // A separate connection, dropped afterwards, so that the kept ones are only those of the load.
        let mut connection = self.dial().await?;
        let mut request = Request::new(Full::default());
        let path = Uri::try_from(self.target.path(path));
        *request.uri_mut() = path.map_err(|error| RequestFailure::new(ErrorClass::Connect, error.to_string()))?;
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let exchange = async {
            let response = connection.send_request(request).await?;
            let status = response.status();
            Ok::<_, hyper::Error>((status, response.into_body().collect().await?.to_bytes()))
        };
        let answer = tokio::time::timeout(self.options.limit, exchange).await;
        let answer = answer.map_err(|_| RequestFailure::new(ErrorClass::FirstByteTimeout, "no answer in time"))?;
        let (status, body) = answer.map_err(|error| RequestFailure::wire(&error))?;
        if status != StatusCode::OK {
            return Err(RequestFailure::new(class_of(status), format!("status {status}: {}", message(&body))));
        }
        serde_json::from_slice(&body)
            .map_err(|_| RequestFailure::new(ErrorClass::UpstreamProtocol, "the answer is not JSON"))
    }

    /// Sends one request and reads its answer to the end. Never fails: errors are recorded in the sample.
    pub(crate) async fn exchange(&self, job: ReplayRequest) -> RequestSample {
        let ReplayRequest { mut sample, start, session, body } = job;
        sample.sent_ms = self.clock.now().millis_since(start);
        let mut first_sent_ms = None;
        let failure = loop {
            let attempt = self.attempt(&mut sample, start, session.as_deref(), body.clone());
            let failure = match tokio::time::timeout(self.options.limit, attempt).await {
                Ok(Ok(())) => None,
                Ok(Err(failure)) => Some(failure),
                Err(_) => {
                    // Without a status not even the head came; with one, the answer stopped in the middle.
                    let headless = sample.status.is_none();
                    let class = if headless { ErrorClass::FirstByteTimeout } else { ErrorClass::IdleTimeout };
                    Some(RequestFailure::new(
                        class,
                        format!("not complete after {} s", self.options.limit.as_secs_f64()),
                    ))
                }
            };
            let again = failure.as_ref().is_some_and(|failure| is_worth_another(&sample, failure.class));
            if !again || sample.retries >= self.options.retries {
                break failure;
            }
            first_sent_ms.get_or_insert(sample.sent_ms);
            // 2¹⁰ pauses are 100 s; the cap keeps the shift below the width of the number.
            tokio::time::sleep(RETRY_PAUSE.saturating_mul(1_u32 << sample.retries.min(10))).await;
            sample.retries += 1;
            // A sample describes its last attempt; the replica of a failed one must not be reported for the next.
            (sample.status, sample.replica, sample.decision) = (None, None, None);
        };
        // A user who waits for an answer counts from the first send, so retries must not shorten latencies.
        if let Some(first_ms) = first_sent_ms {
            sample.ttft_ms = sample.ttft_ms.map(|ttft_ms| ttft_ms + sample.sent_ms - first_ms);
            sample.sent_ms = first_ms;
        }
        sample.e2e_ms = (self.clock.now().millis_since(start) - sample.sent_ms).max(0.0);
        if let Some(failure) = failure {
            sample.error = Some(failure.class);
            sample.detail = Some(failure.detail.into());
        }
        sample
    }

    async fn attempt(
        &self,
        sample: &mut RequestSample,
        start: UnixMicros,
        session: Option<&str>,
        body: Bytes,
    ) -> Result<(), RequestFailure> {
        let (connection, response) = self.send(sample, start, session, body).await?;
        let (head, body) = response.into_parts();
        sample.status = Some(head.status.as_u16());
        let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        sample.replica = text(REPLICA).map(Into::into);
        sample.decision = text(DECISION).and_then(|value| value.parse().ok());
        if head.status != StatusCode::OK {
            let (said, whole) = error_text(body).await;
            // Only a body read to its end leaves the connection ready for the next request.
            if whole {
                self.release(connection);
            }
            return Err(RequestFailure::new(class_of(head.status), said));
        }
        if self.options.stream {
            self.read_stream(sample, start, body).await?;
        } else {
            read_whole(sample, body).await?;
        }
        self.release(connection);
        Ok(())
    }

    /// Sends on a kept connection or a new one; `sent_ms` is the moment when the request is handed over.
    async fn send(
        &self,
        sample: &mut RequestSample,
        start: UnixMicros,
        session: Option<&str>,
        body: Bytes,
    ) -> Result<(IdleConnection, Response<Incoming>), RequestFailure> {
        loop {
            let kept = self.take();
            let fresh = kept.is_none();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.dial().await?,
            };
            // A kept connection that the server closed is no failure: take the next, and dial when none is left.
            if let Err(error) = connection.ready().await {
                if fresh {
                    return Err(RequestFailure::wire(&error));
                }
                continue;
            }
            sample.sent_ms = self.clock.now().millis_since(start);
            match connection.try_send_request(self.request(sample, session, body.clone())).await {
                Ok(response) => return Ok((connection, response)),
                // hyper returns a request only if none of it was sent: the kept connection had been closed meanwhile.
                Err(mut error) => match error.take_message() {
                    Some(_) if !fresh => {}
                    _ => return Err(RequestFailure::wire(error.error())),
                },
            }
        }
    }

    fn request(&self, sample: &RequestSample, session: Option<&str>, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.clone();
        let mut headers = self.headers.clone();
        // Headers by which a server's log can be joined with the rows of the trace.
        headers.insert(ROW_INDEX, HeaderValue::from(sample.row));
        headers.insert(SLIP, header_text(&format!("{:.3}", sample.slip_ms())));
        if let Some(id) = &sample.id {
            headers.insert(SOURCE_ROW, header_text(id));
        }
        if let Some(session) = session {
            headers.insert(SESSION, header_text(session));
        }
        *request.headers_mut() = headers;
        request
    }

    async fn read_stream(
        &self,
        sample: &mut RequestSample,
        start: UnixMicros,
        mut body: Incoming,
    ) -> Result<(), RequestFailure> {
        let mut scan = StreamScan::default();
        let mut last_content_ms = 0.0;
        // One time per frame: events in the same frame arrived together.
        let cut = loop {
            let (content, end) = match body.frame().await {
                Some(Ok(frame)) => (frame.data_ref().is_some_and(|data| scan.feed(data)), None),
                Some(Err(error)) => (false, Some(Some(error))),
                None => (scan.finish(), Some(None)),
            };
            if content {
                last_content_ms = self.clock.now().millis_since(start) - sample.sent_ms;
                sample.ttft_ms.get_or_insert(last_content_ms);
            }
            if let Some(cut) = end {
                break cut;
            }
        };
        let StreamScan { said, overlong, .. } = scan;
        sample.usage = said.usage;
        sample.content_events = said.content_events;
        // Events are a lower bound of tokens: engines may send several tokens in one event, so their own count is
        // preferred.
        let tokens = said.usage.completion_tokens.unwrap_or(said.content_events);
        if let (Some(first_ms), 2..) = (sample.ttft_ms, tokens) {
            // n tokens have n − 1 gaps.
            sample.itl_ms = Some((last_content_ms - first_ms) / f64::from(tokens - 1));
        }
        // An error event explains the end of the stream better than the closed connection that follows it.
        if let Some(words) = said.error {
            Err(RequestFailure::new(ErrorClass::UpstreamErrorEvent, words))
        } else if let Some(error) = cut {
            Err(RequestFailure::new(ErrorClass::UpstreamAborted, error.to_string()))
        } else if overlong {
            Err(RequestFailure::new(ErrorClass::UpstreamProtocol, "the answer is not an event stream"))
        } else if !said.done {
            Err(RequestFailure::new(ErrorClass::UpstreamAborted, "the stream ended without [DONE]"))
        } else {
            Ok(())
        }
    }

    async fn dial(&self) -> Result<IdleConnection, RequestFailure> {
        let failed = |error: std::io::Error| {
            let (host, port) = (self.target.url.host(), self.target.url.port());
            RequestFailure::new(ErrorClass::Connect, format!("cannot connect to {host} port {port}: {error}"))
        };
        let socket = TcpStream::connect((self.target.url.host(), self.target.url.port())).await.map_err(failed)?;
        // With Nagle's algorithm the last segment of a body would wait for an acknowledgement, a whole round trip.
        socket.set_nodelay(true).map_err(failed)?;
        let (connection, driver) =
            handshake(TokioIo::new(socket)).await.map_err(|error| RequestFailure::wire(&error))?;
        // The request on this connection sees the same error, so the driver's copy can be dropped.
        self.tracker.spawn(async move { driver.await.ok() });
        Ok(connection)
    }

    /// Takes the connection used last, so that only few stay warm under light load.
    fn take(&self) -> Option<IdleConnection> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn release(&self, connection: IdleConnection) {
        if !connection.is_closed() {
            // Closed connections are dropped here; those that close later are found by `ready` when taken.
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }
}

/// True if another try may succeed and the request cannot have been answered before: no answer came, or a gateway's
/// 502.
fn is_worth_another(sample: &RequestSample, class: ErrorClass) -> bool {
    match sample.status {
        None => matches!(class, ErrorClass::Connect | ErrorClass::UpstreamClosed),
        Some(status) => status == StatusCode::BAD_GATEWAY.as_u16(),
    }
}

/// Reads an answer that comes as one document.
async fn read_whole(sample: &mut RequestSample, body: Incoming) -> Result<(), RequestFailure> {
    let body = body.collect().await;
    let body = body.map_err(|error| RequestFailure::new(ErrorClass::UpstreamAborted, error.to_string()))?.to_bytes();
    let said = StreamSaid::of_whole(&body);
    sample.usage = said.usage;
    sample.content_events = said.content_events;
    match said {
        StreamSaid { error: Some(words), .. } => Err(RequestFailure::new(ErrorClass::UpstreamErrorEvent, words)),
        StreamSaid { done: false, .. } => {
            Err(RequestFailure::new(ErrorClass::UpstreamProtocol, "the answer is not JSON"))
        }
        _ => Ok(()),
    }
}

/// Message of an error body, and true if the body was read to its end.
async fn error_text(mut body: Incoming) -> (String, bool) {
    let mut start = BytesMut::new();
    let whole = loop {
        match body.frame().await {
            Some(Ok(frame)) => start.extend(frame.into_data().ok()),
            Some(Err(_)) => break false,
            None => break true,
        }
        if start.len() > ERROR_BODY_BYTES {
            break false;
        }
    };
    (message(&start), whole)
}

/// A text as a header value; in hexadecimal if it contains bytes that no header allows (control characters).
fn header_text(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| {
        let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        HeaderValue::try_from(digits).unwrap_or_else(|_| HeaderValue::from_static(""))
    })
}
