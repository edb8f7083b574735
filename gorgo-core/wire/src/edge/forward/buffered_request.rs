//! A request in the form that engines get it. It can be sent more than once; one attempt sends it and waits for the
//! first byte of the response.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::http::{request, response};
use hyper::{HeaderMap, Request, StatusCode};
use tokio::time::timeout;

use crate::edge::DataPlane;
use crate::edge::forward::attempt::RequestAttempt;
use crate::edge::headers::{X_REQUEST_ID, client_key, upstream};
use crate::edge::intake::object_owners::creates_objects;
use crate::edge::ledger::RequestLedger;
use crate::edge::listen::connection::ClientConnection;
use crate::edge::relay::ResponseRelay;
use crate::edge::relay::observer::ResponseObserver;
use crate::edge::upstream::body::UpstreamBody;
use crate::edge::upstream::pool::request_target;
use crate::engine::{CompressedStreamReader, ServedRequest, StreamDialect, StreamReader, UsageReader};
use gorgo_routing::model::{ApiPath, DecisionId, ErrorClass, ParsedRequest, ReplicaId};

/// Request that was read completely and can be sent, repeatedly if necessary.
pub(in crate::edge) struct BufferedRequest {
    pub(in crate::edge) data: Arc<DataPlane>,
    pub(in crate::edge) head: request::Parts,
    body: Bytes,
    pub(in crate::edge) prompt: Arc<ParsedRequest>,
    pub(in crate::edge) path: ApiPath,
    id: DecisionId,
    /// Number of attempts so far.
    attempts: AtomicU16,
}

/// Result of an attempt.
pub(in crate::edge) enum AttemptResult {
    /// Response whose first byte has arrived (or that has no body).
    Response(Box<(response::Parts, ResponseRelay)>),
    /// No response. `unsent`: certainly nothing reached the engine.
    NoResponse { class: ErrorClass, unsent: bool },
}

impl BufferedRequest {
    pub(in crate::edge) fn new(
        data: Arc<DataPlane>,
        ledger: &RequestLedger,
        head: request::Parts,
        body: Bytes,
        prompt: Arc<ParsedRequest>,
    ) -> Self {
        let path = prompt.path;
        Self { data, head, body, prompt, path, id: ledger.id, attempts: AtomicU16::new(0) }
    }

    /// Number of a new attempt, from 1.
    pub(in crate::edge) fn next_attempt_number(&self) -> u16 {
        self.attempts.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Reports to the listener, if there is one, that an engine answered this request.
    pub(in crate::edge) fn report_served(&self, by: &RequestAttempt) {
        if by.status == Some(200)
            && let Some(tell) = &self.data.on_served
        {
            tell(&ServedRequest { replica: by.replica(), decision: self.id, prompt: &self.prompt, body: &self.body });
        }
    }

    /// Returns `true` if a second replica may be asked at the same time: only for streams, and only if the request
    /// creates no object at the engine.
    pub(in crate::edge) fn is_hedgeable(&self) -> bool {
        self.prompt.stream && self.path != ApiPath::Other && !creates_objects(self.path, self.head.uri.path())
    }

    /// Sends the request and waits for the first byte of the response, within the first-byte limit.
    pub(in crate::edge) async fn run_attempt(
        &self,
        attempt: &mut RequestAttempt,
        client: &ClientConnection,
    ) -> AttemptResult {
        let limit = self.data.first_byte_timeout();
        tokio::select! {
            came = timeout(limit, self.send(attempt, client)) => came.unwrap_or_else(|_| AttemptResult::NoResponse {
                class: ErrorClass::FirstByteTimeout,
                unsent: false,
            }),
            () = self.data.abort.wait() => AttemptResult::NoResponse { class: ErrorClass::Shutdown, unsent: false },
        }
    }

    async fn send(&self, attempt: &mut RequestAttempt, client: &ClientConnection) -> AttemptResult {
        let Some(upstream) = self.data.replica(attempt.replica()) else {
            return AttemptResult::NoResponse { class: ErrorClass::Connect, unsent: true };
        };
        // Without usage in the stream there are no token counts to learn from, so gorgo adds the option if the client
        // did not; the usage event is then withheld from the client.
        let splice = self.prompt.usage_splice.as_ref().filter(|_| upstream.may_take_usage_option());
        let mut spliced = splice.and_then(|splice| UpstreamBody::spliced(&self.body, splice));
        let mut refused_option = false;
        loop {
            let asked_for_usage = spliced.is_some();
            let payload = spliced.take().unwrap_or_else(|| UpstreamBody::whole(self.body.clone()));
            let Some(request) = self.upstream_request(attempt.replica(), payload) else {
                return AttemptResult::NoResponse { class: ErrorClass::Connect, unsent: true };
            };
            let sent = upstream.pool.send(request, &*self.data.clock, &mut attempt.timing).await;
            let (response, carrier) = match sent {
                Ok(sent) => sent,
                Err(error) => return AttemptResult::NoResponse { class: error.error_class, unsent: error.unsent },
            };
            // A head is a sign of life even if the prefill takes long: the health check must not count it as silence.
            let status = response.status();
            let head = self.data.clock.now();
            attempt.head_at = Some(head);
            self.data.liveness.record_activity(attempt.replica(), head);
            if let Some(kernel) = attempt.timing.kernel.take() {
                self.data.outlet.kernel_rtt(attempt.replica(), head, (kernel.smoothed_ms, kernel.min_ms));
            }
            attempt.status = Some(status.as_u16());
            // With the client's own API key, a 429 may mean that key's limit, which says nothing about the replica.
            let of_replica = upstream.endpoint.bearer().is_some() || client_key(&self.head.headers).is_none();
            if status == StatusCode::SERVICE_UNAVAILABLE || (status == StatusCode::TOO_MANY_REQUESTS && of_replica) {
                attempt.retry_after = retry_after(response.headers());
            }
            if asked_for_usage && status == StatusCode::BAD_REQUEST && upstream.may_refuse_usage_option() {
                // Perhaps the engine does not know the option that gorgo added: retry once without it.
                refused_option = true;
                attempt.restart_at_same_replica(ErrorClass::ClientError, self.next_attempt_number());
                continue;
            }
            // Only now is it known that the option was the cause: the same body without it succeeded (or with it did).
            if status.is_success() && (asked_for_usage || refused_option) {
                upstream.record_usage_option(asked_for_usage);
            }
            let (parts, incoming) = response.into_parts();
            let watch = self.observe_response(&parts, asked_for_usage);
            let close_client = client.close_token();
            let mut relay = ResponseRelay::new(&self.data, status.as_u16(), incoming, carrier, watch, close_client);
            if status.is_success() && creates_objects(self.path, self.head.uri.path()) {
                relay.record_owner(attempt.replica());
            }
            // Some engines send the head before the prefill. Until the first frame nothing was promised to the client,
            // so an engine that dies in prefill can still be replaced.
            if status == StatusCode::OK
                && self.path != ApiPath::Other
                && let Err(class) = relay.first_frame().await
            {
                return AttemptResult::NoResponse { class, unsent: false };
            }
            return AttemptResult::Response(Box::new((parts, relay)));
        }
    }

    fn upstream_request(&self, replica: ReplicaId, payload: UpstreamBody) -> Option<Request<UpstreamBody>> {
        let to = self.data.replica(replica)?;
        let mut headers = upstream(&self.head.headers, to.endpoint.authority(), to.endpoint.bearer());
        // The engine's log and gorgo's history can then be joined by this id.
        if !headers.contains_key(&X_REQUEST_ID) {
            headers.insert(X_REQUEST_ID, HeaderValue::from_str(&format!("gorgo-{}", self.id)).ok()?);
        }
        let path = self.head.uri.path_and_query().map_or("/", |path| path.as_str());
        let uri = request_target(&to.endpoint, path, &mut headers)?;
        let mut request = Request::new(payload);
        *request.method_mut() = self.head.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        Some(request)
    }

    fn observe_response(&self, parts: &response::Parts, withhold_usage: bool) -> ResponseObserver {
        let content_type = parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        // 17 bytes: the media type without parameters such as `charset`.
        let events = content_type.get(..17).is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/event-stream"));
        if let Some(encoding) = content_coding(&parts.headers) {
            let reader = CompressedStreamReader::new(encoding, StreamDialect::of(self.path)).filter(|_| events);
            return reader.map_or(ResponseObserver::Unread, |reader| ResponseObserver::Compressed(Box::new(reader)));
        }
        match (events, self.path) {
            (true, path) => {
                ResponseObserver::Stream(Box::new(StreamReader::new(StreamDialect::of(path), withhold_usage)))
            }
            (false, ApiPath::Other) => ResponseObserver::Unread,
            (false, _) => ResponseObserver::Json(UsageReader::default()),
        }
    }
}

/// Time for which the engine asks to get no requests (`Retry-After` in seconds; dates are ignored).
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().filter(|seconds| *seconds > 0)?;
    Some(Duration::from_secs(seconds))
}

/// Content coding of a response, if the engine used one although gorgo asked for none.
fn content_coding(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes).filter(|value| !value.eq_ignore_ascii_case(b"identity"))
}
