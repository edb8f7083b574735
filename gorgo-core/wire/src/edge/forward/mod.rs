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

use super::DataPlane;
use super::choose::admission::{RoutingRefusal, admit};
use super::forward::attempt::RequestAttempt;
use super::forward::buffered_request::AttemptResult;
use super::headers::{X_GORGO_DECISION, X_GORGO_REPLICA, X_REQUEST_ID, strip_hop_by_hop};
use super::intake::{ActiveRequest, EligibleReplicas, accept_request, refuse};
use super::ledger::{ClientOutcome, RequestLedger};
use super::listen::connection::ClientConnection;
use super::local_reply;
use super::relay::{ResponseBody, ResponseRelay};
use gorgo_routing::model::{ApiPath, ErrorClass, RefusalReason, ReplicaId, TokenUsage};

/// Seeds stay below 2^53, so that every SQL tool and JSON reader shows them exactly.
const SEED_BITS: u64 = (1 << 53) - 1;

/// Answers a request by forwarding it to an engine.
pub(super) async fn forward(
    data: Arc<DataPlane>,
    client: ClientConnection,
    request: Request<Incoming>,
    path: ApiPath,
) -> Response<ResponseBody> {
    let ledger = RequestLedger::open(&data, path);
    let id = ledger.id;
    let mut response = match accept_request(&data, request, ledger).await {
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

impl ActiveRequest {
    async fn run(mut self, client: ClientConnection) -> Response<ResponseBody> {
        let mut tried: Vec<ReplicaId> = match self.eligible {
            // An object lives in one engine: excluding all others leaves the policy no other choice.
            EligibleReplicas::Only(holder) => {
                self.request.data.replica_ids().filter(|replica| *replica != holder).collect()
            }
            EligibleReplicas::Any | EligibleReplicas::EachInTurn => Vec::new(),
        };
        let turn = match admit(&self.request, self.ledger.id, &tried, self.body_read_at) {
            Ok(turn) => turn,
            Err(error) => return self.refuse_routing(&error.into()),
        };
        let mut attempt = match turn.begin_when_admitted(&self.request, &mut self.ledger, &tried).await {
            Ok(attempt) => attempt,
            Err(why) => return self.refuse_routing(&why),
        };
        // Attempts that may have cost an engine work.
        let mut spent = 0;
        loop {
            let (came, first) = self.run_hedged(attempt, &mut tried, &mut spent, &client).await;
            attempt = first;
            let failure = retryable_failure(self.eligible, &came);
            if let Some((class, unsent)) = failure
                && self.may_retry(spent, unsent)
                && let Ok(turn) = admit(&self.request, self.ledger.id, &tried, self.request.data.clock.now())
            {
                // Its own place at a gate must be free before it waits at another replica's.
                drop(came);
                attempt.end(Some(class), TokenUsage::default());
                attempt = match turn.begin_when_admitted(&self.request, &mut self.ledger, &tried).await {
                    Ok(next) => next,
                    Err(why) => return self.refuse_routing(&why),
                };
                continue;
            }
            // Only now is it certain whose predictions the outcome is compared with.
            self.ledger.attribute_to(&attempt);
            return match came {
                AttemptResult::Response(answer) => {
                    if failure.is_none() {
                        attempt.mark_answered();
                        self.request.report_served(&attempt);
                    }
                    self.relay_response(*answer, attempt)
                }
                AttemptResult::NoResponse { class, .. } => self.respond_failed(class, attempt),
            };
        }
    }

    /// Decides whether another attempt is allowed. `spent`: attempts so far that may have cost an engine work.
    /// `unsent`: this failure did not cost any; such failures are retried as long as a replica is left, unless only one
    /// attempt is allowed.
    fn may_retry(&self, spent: u32, unsent: bool) -> bool {
        let data = &self.request.data;
        let most = data.failover.max_attempts;
        // Looking for an object's holder must reach every replica, whatever the limit on attempts. The budget is asked
        // last, because asking counts a retry.
        (spent < most || self.eligible == EligibleReplicas::EachInTurn || (unsent && most > 1))
            && !data.abort.is_triggered()
            && (unsent || data.retry_budget.try_retry(data.clock.now()))
    }

    /// Hands an engine's response to the client.
    fn relay_response(
        self,
        (mut parts, relay): (response::Parts, ResponseRelay),
        attempt: RequestAttempt,
    ) -> Response<ResponseBody> {
        strip_hop_by_hop(&mut parts.headers);
        // Events may be withheld or added, so the engine's length would be wrong; hyper then sends chunks.
        if relay.may_change_length() {
            parts.headers.remove(CONTENT_LENGTH);
        }
        if self.request.data.server.headers
            && let Some(upstream) = attempt.upstream()
        {
            parts.headers.insert(X_GORGO_REPLICA, upstream.name_header.clone());
        }
        if let Some(given) = self.request.head.headers.get(&X_REQUEST_ID) {
            parts.headers.entry(X_REQUEST_ID).or_insert_with(|| given.clone());
        }
        let mut response = Response::new(relay.start(attempt, self.ledger));
        *response.status_mut() = parts.status;
        *response.headers_mut() = parts.headers;
        response
    }

    /// Tells the client that the request cannot be routed.
    fn refuse_routing(self, why: &RoutingRefusal) -> Response<ResponseBody> {
        let message = match why.refusal {
            RefusalReason::UnknownModel => "no replica serves this model",
            RefusalReason::GateFull => "the selected replica's queue is full; retry later",
            RefusalReason::Draining => "the router shut down while the request waited for a replica",
            _ => "no replica is available",
        };
        let mut response = *refuse(self.ledger, why.refusal, message);
        if let Some(secs) = why.retry_secs {
            response.headers_mut().insert(RETRY_AFTER, secs.into());
        }
        response
    }

    /// Tells the client that no replica answered.
    fn respond_failed(self, class: ErrorClass, attempt: RequestAttempt) -> Response<ResponseBody> {
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
        if self.request.data.server.headers
            && let Some(upstream) = attempt.upstream()
        {
            response.headers_mut().insert(X_GORGO_REPLICA, upstream.name_header.clone());
        }
        attempt.end(Some(class), TokenUsage::default());
        self.ledger.finish(&ClientOutcome::without_response(Some(status.as_u16()), class));
        response
    }
}

/// Reason why this is no final response, if another replica may have one. `true`: it cost no engine work.
pub(super) fn retryable_failure(holder: EligibleReplicas, came: &AttemptResult) -> Option<(ErrorClass, bool)> {
    match came {
        AttemptResult::NoResponse { class, unsent } => Some((*class, *unsent)),
        // A replica that does not hold the object answers 404 without any work; another one may hold it.
        AttemptResult::Response(answer)
            if holder == EligibleReplicas::EachInTurn && answer.0.status == StatusCode::NOT_FOUND =>
        {
            Some((ErrorClass::ClientError, true))
        }
        AttemptResult::Response(answer) => retryable_response(&answer.0, &answer.1).map(|class| (class, false)),
    }
}

/// Error class of a response that may be retried elsewhere.
fn retryable_response(head: &response::Parts, relay: &ResponseRelay) -> Option<ErrorClass> {
    match head.status {
        StatusCode::TOO_MANY_REQUESTS if head.headers.contains_key(RETRY_AFTER) => Some(ErrorClass::UpstreamStatus),
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Some(ErrorClass::UpstreamStatus)
        }
        StatusCode::OK if relay.error_before_content().is_some_and(|code| code >= 500) => {
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
