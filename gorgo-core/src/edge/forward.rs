//! One request: take in its body, choose, send, retry elsewhere, hand the answer to the relay.
//!
//! An attempt may be repeated at another replica as long as the client got nothing: no head, no byte. The head of an
//! answer is therefore held until its first byte has come; engines that send heads early (vLLM, llama.cpp) die in
//! prefill like the others.
//!
//! Repeated elsewhere are: no connection, a close before the first byte, a first-byte time-out, 502, 503 and 504, and a
//! stream whose first event is an error of the engine's. Not repeated are 4xx, and 500, which engines also give to
//! requests that they cannot digest. A failure in which nothing was sent costs no engine any work and is therefore
//! not counted against the retry budget.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::http::response;
use hyper::{HeaderMap, Request, Response, StatusCode};
use tokio::time::timeout;

use super::Data;
use super::accept::ClientConnection;
use super::answers;
use super::attempt::Attempt;
use super::choose::Call;
use super::headers::{X_GORGO_DECISION, X_GORGO_REPLICA, X_REQUEST_ID, strip_hop_by_hop, upstream};
use super::held::makes_objects;
use super::intake::{Exchange, Holder, refuse, take};
use super::ledger::{Ledger, Outcome};
use super::payload::Payload;
use super::pool::address;
use super::relay::{AnswerBody, Relay};
use super::watch::Watch;
use crate::engine::{AnswerReader, Dialect, PackedReader, StreamReader};
use crate::model::{ApiPath, ErrorClass, ReplicaId, Usage};
use crate::policy::DecideError;

/// Seeds stay below 2^53, so that every SQL tool and JSON reader shows them exactly.
const SEED_BITS: u64 = (1 << 53) - 1;

/// Answers a request by an engine.
pub(super) async fn forward(
    data: Arc<Data>,
    client: ClientConnection,
    request: Request<Incoming>,
    path: ApiPath,
) -> Response<AnswerBody> {
    let ledger = Ledger::open(&data, path);
    let id = ledger.id;
    let mut response = match take(&data, request, ledger).await {
        Ok(exchange) => exchange.run(client).await,
        Err(refused) => *refused,
    };
    if data.server.headers
        && let Ok(value) = HeaderValue::from_str(&id.to_string())
    {
        response.headers_mut().insert(X_GORGO_DECISION, value);
    }
    response
}

/// What came of an attempt.
enum Came {
    /// An answer whose first byte has come (or that has none).
    Answer(Box<(response::Parts, Relay)>),
    /// Nothing. `unsent`: surely nothing reached the engine.
    Nothing { class: ErrorClass, unsent: bool },
}

impl Exchange {
    async fn run(mut self, client: ClientConnection) -> Response<AnswerBody> {
        let mut tried: Vec<ReplicaId> = match self.holder {
            Holder::Only(holder) => self.data.replicas().filter(|replica| *replica != holder).collect(),
            Holder::Anyone | Holder::InTurn => Vec::new(),
        };
        let mut attempts = 0;
        let mut attempt = match self.choose(&tried, 1) {
            Ok(attempt) => attempt,
            Err(error) => {
                let message = match error {
                    DecideError::UnknownModel => "no replica serves this model",
                    DecideError::NoReplica => "no replica is available",
                };
                return *refuse(self.ledger, error.into(), message);
            }
        };
        loop {
            let came = self.attempt(&mut attempt, &client).await;
            tried.push(attempt.replica());
            attempts += 1;
            let failure = match &came {
                Came::Nothing { class, unsent } => Some((*class, *unsent)),
                Came::Answer(answer) if self.is_elsewhere(answer.0.status) => Some((ErrorClass::ClientError, true)),
                Came::Answer(answer) => retryable(answer.0.status, &answer.1).map(|class| (class, false)),
            };
            if let Some((class, unsent)) = failure
                && self.may_retry(attempts, unsent)
                && let Ok(next) = self.choose(&tried, attempt.number() + 1)
            {
                drop(came);
                attempt.end(Some(class), Usage::default());
                attempt = next;
                continue;
            }
            return match came {
                Came::Answer(answer) => self.answer(*answer, attempt),
                Came::Nothing { class, .. } => self.failed(class, attempt),
            };
        }
    }

    /// Whether this replica does not hold the object, and another one may.
    fn is_elsewhere(&self, status: StatusCode) -> bool {
        self.holder == Holder::InTurn && status == StatusCode::NOT_FOUND
    }

    /// `attempts`: made so far. `unsent`: the failure cost no engine any work.
    fn may_retry(&self, attempts: u32, unsent: bool) -> bool {
        (attempts < self.data.failover.max_attempts || self.holder == Holder::InTurn)
            && !self.data.cut.is_cancelled()
            && (unsent || self.data.retries.retry(self.data.clock.now()))
    }

    fn choose(&mut self, tried: &[ReplicaId], number: u16) -> Result<Attempt, DecideError> {
        let began = self.data.clock.now();
        let id = self.ledger.id;
        let call =
            Call { policy: self.data.policy, id, seed: seed(self.data.seed, id.0, number), at: began, exclude: tried };
        let choice = self.data.choose.decide(&self.prompt, &call)?;
        // For the first choice, reading the body is part of deciding.
        let lease = self.ledger.decided(choice, number, if number == 1 { self.taken_in } else { began });
        Ok(Attempt::begin(&self.data, &self.prompt, id, self.ledger.received, number, lease))
    }

    /// Sends the request and waits for the first byte of its answer, within the first-byte limit.
    async fn attempt(&self, attempt: &mut Attempt, client: &ClientConnection) -> Came {
        let limit = self.data.first_byte_timeout();
        tokio::select! {
            came = timeout(limit, self.send(attempt, client)) => came.unwrap_or_else(|_| Came::Nothing {
                class: ErrorClass::FirstByteTimeout,
                unsent: false,
            }),
            () = self.data.cut.cancelled() => Came::Nothing { class: ErrorClass::Shutdown, unsent: false },
        }
    }

    async fn send(&self, attempt: &mut Attempt, client: &ClientConnection) -> Came {
        let Some(upstream) = self.data.upstream(attempt.replica()) else {
            return Came::Nothing { class: ErrorClass::Connect, unsent: true };
        };
        let splice = self.prompt.usage_splice.as_ref().filter(|_| upstream.may_take_usage_option());
        let mut spliced = splice.and_then(|splice| Payload::spliced(&self.body, splice));
        let mut refused_option = false;
        loop {
            let asked_for_usage = spliced.is_some();
            let payload = spliced.take().unwrap_or_else(|| Payload::whole(self.body.clone()));
            let Some(request) = self.request(attempt.replica(), payload) else {
                return Came::Nothing { class: ErrorClass::Connect, unsent: true };
            };
            let sent = upstream.pool.send(request, &*self.data.clock, &mut attempt.trip).await;
            let (response, carrier) = match sent {
                Ok(sent) => sent,
                Err(error) => return Came::Nothing { class: error.class, unsent: error.unsent },
            };
            let status = response.status();
            let head = self.data.clock.now();
            attempt.head = Some(head);
            if let Some(kernel) = attempt.trip.kernel.take() {
                (self.data.apply)(kernel.event(attempt.replica(), head));
            }
            attempt.status = Some(status.as_u16());
            if asked_for_usage && status == StatusCode::BAD_REQUEST && upstream.may_refuse_usage_option() {
                // Perhaps it does not know the option that we added: once more without it.
                refused_option = true;
                attempt.again(ErrorClass::ClientError);
                continue;
            }
            if status.is_success() && (asked_for_usage || refused_option) {
                upstream.takes_usage_option(asked_for_usage);
            }
            let (parts, incoming) = response.into_parts();
            let watch = self.watch(&parts, asked_for_usage);
            let close_client = client.closer();
            let mut relay = Relay::new(&self.data, status.as_u16(), incoming, carrier, watch, close_client);
            if status.is_success() && makes_objects(self.path, self.head.uri.path()) {
                relay.seek_id(attempt.replica());
            }
            if status == StatusCode::OK
                && self.path != ApiPath::Other
                && let Err(class) = relay.first_frame().await
            {
                return Came::Nothing { class, unsent: false };
            }
            return Came::Answer(Box::new((parts, relay)));
        }
    }

    fn request(&self, replica: ReplicaId, payload: Payload) -> Option<Request<Payload>> {
        let to = self.data.upstream(replica)?;
        let mut headers = upstream(&self.head.headers, &to.authority, to.key.as_ref());
        if !headers.contains_key(&X_REQUEST_ID) {
            headers.insert(X_REQUEST_ID, HeaderValue::from_str(&format!("gorgo-{}", self.ledger.id)).ok()?);
        }
        let path = self.head.uri.path_and_query().map_or("/", |path| path.as_str());
        let uri = address(to.http, &to.authority_text, &format!("{}{path}", to.base), &mut headers)?;
        let mut request = Request::new(payload);
        *request.method_mut() = self.head.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        Some(request)
    }

    fn watch(&self, parts: &response::Parts, withhold_usage: bool) -> Watch {
        let content_type = parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        let events = content_type.get(..17).is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/event-stream"));
        if let Some(encoding) = packed(&parts.headers) {
            let reader = PackedReader::new(encoding, Dialect::of(self.path)).filter(|_| events);
            return reader.map_or(Watch::Nothing, |reader| Watch::Packed(Box::new(reader)));
        }
        match (events, self.path) {
            (true, path) => Watch::Stream(Box::new(StreamReader::new(Dialect::of(path), withhold_usage))),
            (false, ApiPath::Other) => Watch::Nothing,
            (false, _) => Watch::Answer(AnswerReader::default()),
        }
    }

    /// Hands an engine's answer to the client.
    fn answer(self, (mut parts, relay): (response::Parts, Relay), attempt: Attempt) -> Response<AnswerBody> {
        strip_hop_by_hop(&mut parts.headers);
        if relay.may_change_length() {
            parts.headers.remove(CONTENT_LENGTH);
        }
        if self.data.server.headers
            && let Some(upstream) = attempt.upstream()
        {
            parts.headers.insert(X_GORGO_REPLICA, upstream.name_header.clone());
        }
        if let Some(given) = self.head.headers.get(&X_REQUEST_ID) {
            parts.headers.entry(X_REQUEST_ID).or_insert_with(|| given.clone());
        }
        let mut response = Response::new(relay.start(attempt, self.ledger));
        *response.status_mut() = parts.status;
        *response.headers_mut() = parts.headers;
        response
    }

    /// Tells the client that no replica answered.
    fn failed(self, class: ErrorClass, attempt: Attempt) -> Response<AnswerBody> {
        let (status, code, message) = match class {
            ErrorClass::FirstByteTimeout => {
                (StatusCode::GATEWAY_TIMEOUT, "upstream_timeout", "the replica did not answer in time")
            }
            ErrorClass::Connect => (StatusCode::BAD_GATEWAY, "upstream_unreachable", "the replica cannot be reached"),
            ErrorClass::Shutdown => {
                (StatusCode::SERVICE_UNAVAILABLE, "router_shutdown", "the router shut down before the answer came")
            }
            _ => (StatusCode::BAD_GATEWAY, "upstream_closed", "the replica broke off before it answered"),
        };
        let mut response = answers::error(status, code, message);
        if self.data.server.headers
            && let Some(upstream) = attempt.upstream()
        {
            response.headers_mut().insert(X_GORGO_REPLICA, upstream.name_header.clone());
        }
        attempt.end(Some(class), Usage::default());
        self.ledger.end(&Outcome::bare(Some(status.as_u16()), class));
        response
    }
}

/// Whether an answer may be asked for again elsewhere, and what it counts as then.
fn retryable(status: StatusCode, relay: &Relay) -> Option<ErrorClass> {
    match status {
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Some(ErrorClass::UpstreamStatus)
        }
        StatusCode::OK if relay.refused_in_stream().is_some_and(|code| code >= 500) => {
            Some(ErrorClass::UpstreamErrorEvent)
        }
        _ => None,
    }
}

/// How an answer is packed, although gorgo asked for a plain one.
fn packed(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes).filter(|value| !value.eq_ignore_ascii_case(b"identity"))
}

/// The seed of an attempt's decision: that of the run, mixed with the id and the attempt (splitmix64's finaliser).
fn seed(run: u64, id: i64, attempt: u16) -> u64 {
    let mut mixed = run ^ id.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(attempt) << 48);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) & SEED_BITS
}
