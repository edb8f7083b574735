//! One request: read the body, choose, send, retry elsewhere, hand the response to the relay.
//!
//! An attempt may be repeated at another replica as long as the client got nothing: no head, no byte. The head of a
//! response is therefore withheld until its first byte arrives: engines that send heads early (vLLM, llama.cpp) can
//! still die in prefill like the others.
//!
//! Retried elsewhere: no connection, a close before the first byte, a first-byte time-out, 502, 503 and 504, and a
//! stream whose first event is an error of the engine; also 429 with `Retry-After`: this engine is full, another one
//! may not be. Not retried: other 4xx, and 500, which engines also send for requests that they cannot process. A
//! failure in which nothing was sent costs no engine any work and does not count against the retry budget.

pub(super) mod attempt;
pub(super) mod buffered_request;
mod hedge;
pub(super) mod hedge_delays;

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, HeaderValue, RETRY_AFTER};
use hyper::http::response;
use hyper::{Request, Response, StatusCode};

use super::Data;
use super::choose::admission::{NotRouted, enter};
use super::forward::attempt::Attempt;
use super::forward::buffered_request::Came;
use super::headers::{X_GORGO_DECISION, X_GORGO_REPLICA, X_REQUEST_ID, strip_hop_by_hop};
use super::intake::{Exchange, Holder, refuse, take};
use super::ledger::{Ledger, Outcome};
use super::listen::connection::ClientConnection;
use super::local_reply;
use super::relay::{AnswerBody, Relay};
use gorgo_routing::model::{ApiPath, ErrorClass, Refusal, ReplicaId, Usage};

/// Seeds stay below 2^53, so that every SQL tool and JSON reader shows them exactly.
const SEED_BITS: u64 = (1 << 53) - 1;

/// Answers a request by forwarding it to an engine.
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
    // The map keeps the capacity that the request's headers once needed, and hyper keeps the map with the connection.
    let fitted = response.headers().clone();
    *response.headers_mut() = fitted;
    response
}

impl Exchange {
    async fn run(mut self, client: ClientConnection) -> Response<AnswerBody> {
        let mut tried: Vec<ReplicaId> = match self.holder {
            // An object lives in one engine: excluding all others leaves the policy no other choice.
            Holder::Only(holder) => self.asked.data.replicas().filter(|replica| *replica != holder).collect(),
            Holder::Anyone | Holder::InTurn => Vec::new(),
        };
        let turn = match enter(&self.asked, self.ledger.id, &tried, self.taken_in) {
            Ok(turn) => turn,
            Err(error) => return self.not_routed(&error.into()),
        };
        let mut attempt = match turn.taken(&self.asked, &mut self.ledger, &tried).await {
            Ok(attempt) => attempt,
            Err(why) => return self.not_routed(&why),
        };
        // Attempts that may have cost an engine work.
        let mut spent = 0;
        loop {
            let (came, first) = self.race(attempt, &mut tried, &mut spent, &client).await;
            attempt = first;
            let failure = failure(self.holder, &came);
            if let Some((class, unsent)) = failure
                && self.may_retry(spent, unsent)
                && let Ok(turn) = enter(&self.asked, self.ledger.id, &tried, self.asked.data.clock.now())
            {
                // Its own place at a gate must be free before it waits at another replica's.
                drop(came);
                attempt.end(Some(class), Usage::default());
                attempt = match turn.taken(&self.asked, &mut self.ledger, &tried).await {
                    Ok(next) => next,
                    Err(why) => return self.not_routed(&why),
                };
                continue;
            }
            // Only now is it certain whose predictions the outcome is compared with.
            self.ledger.belongs_to(&attempt);
            return match came {
                Came::Answer(answer) => {
                    if failure.is_none() {
                        attempt.answered();
                        self.asked.served(&attempt);
                    }
                    self.answer(*answer, attempt)
                }
                Came::Nothing { class, .. } => self.failed(class, attempt),
            };
        }
    }

    /// Decides whether another attempt is allowed. `spent`: attempts so far that may have cost an engine work.
    /// `unsent`: this failure did not cost any; such failures are retried as long as a replica is left, unless only one
    /// attempt is allowed.
    fn may_retry(&self, spent: u32, unsent: bool) -> bool {
        let data = &self.asked.data;
        let most = data.failover.max_attempts;
        // Looking for an object's holder must reach every replica, whatever the limit on attempts. The budget is asked
        // last, because asking counts a retry.
        (spent < most || self.holder == Holder::InTurn || (unsent && most > 1))
            && !data.cut.is_made()
            && (unsent || data.retries.retry(data.clock.now()))
    }

    /// Hands an engine's response to the client.
    fn answer(self, (mut parts, relay): (response::Parts, Relay), attempt: Attempt) -> Response<AnswerBody> {
        strip_hop_by_hop(&mut parts.headers);
        // Events may be withheld or added, so the engine's length would be wrong; hyper then sends chunks.
        if relay.may_change_length() {
            parts.headers.remove(CONTENT_LENGTH);
        }
        if self.asked.data.server.headers
            && let Some(upstream) = attempt.upstream()
        {
            parts.headers.insert(X_GORGO_REPLICA, upstream.name_header.clone());
        }
        if let Some(given) = self.asked.head.headers.get(&X_REQUEST_ID) {
            parts.headers.entry(X_REQUEST_ID).or_insert_with(|| given.clone());
        }
        let mut response = Response::new(relay.start(attempt, self.ledger));
        *response.status_mut() = parts.status;
        *response.headers_mut() = parts.headers;
        response
    }

    /// Tells the client that the request cannot be routed.
    fn not_routed(self, why: &NotRouted) -> Response<AnswerBody> {
        let message = match why.refusal {
            Refusal::UnknownModel => "no replica serves this model",
            Refusal::GateFull => "the selected replica's queue is full; retry later",
            Refusal::Draining => "the router shut down while the request waited for a replica",
            _ => "no replica is available",
        };
        let mut response = *refuse(self.ledger, why.refusal, message);
        if let Some(secs) = why.retry_secs {
            response.headers_mut().insert(RETRY_AFTER, secs.into());
        }
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
            _ => (StatusCode::BAD_GATEWAY, "upstream_closed", "the replica closed the connection before it answered"),
        };
        let mut response = local_reply::error(status, code, message);
        if self.asked.data.server.headers
            && let Some(upstream) = attempt.upstream()
        {
            response.headers_mut().insert(X_GORGO_REPLICA, upstream.name_header.clone());
        }
        attempt.end(Some(class), Usage::default());
        self.ledger.end(&Outcome::bare(Some(status.as_u16()), class));
        response
    }
}

/// Reason why this is no final response, if another replica may have one. `true`: it cost no engine work.
pub(super) fn failure(holder: Holder, came: &Came) -> Option<(ErrorClass, bool)> {
    match came {
        Came::Nothing { class, unsent } => Some((*class, *unsent)),
        // A replica that does not hold the object answers 404 without any work; another one may hold it.
        Came::Answer(answer) if holder == Holder::InTurn && answer.0.status == StatusCode::NOT_FOUND => {
            Some((ErrorClass::ClientError, true))
        }
        Came::Answer(answer) => retryable(&answer.0, &answer.1).map(|class| (class, false)),
    }
}

/// Error class of a response that may be retried elsewhere.
fn retryable(head: &response::Parts, relay: &Relay) -> Option<ErrorClass> {
    match head.status {
        StatusCode::TOO_MANY_REQUESTS if head.headers.contains_key(RETRY_AFTER) => Some(ErrorClass::UpstreamStatus),
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Some(ErrorClass::UpstreamStatus)
        }
        StatusCode::OK if relay.refused_in_stream().is_some_and(|code| code >= 500) => {
            Some(ErrorClass::UpstreamErrorEvent)
        }
        _ => None,
    }
}

/// Seed of an attempt's decision: the run's seed mixed with the decision's id and the attempt (splitmix64's finaliser).
pub(super) fn seed(run: u64, id: i64, attempt: u16) -> u64 {
    // Neighbouring ids and attempts differ in few bits; the multiplications spread these over the whole seed.
    let mut mixed = run ^ id.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(attempt) << 48);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) & SEED_BITS
}
