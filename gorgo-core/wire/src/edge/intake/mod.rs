//! Intake of a request: reads and parses its body and determines which replicas may answer. A request that no replica
//! may answer is refused here.

mod body;
mod models;
pub(super) mod object_owners;
pub(super) mod route;

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Response};
use tokio::task::spawn_blocking;

use super::DataPlane;
use super::budget::BufferedBytes;
use super::forward::buffered_request::BufferedRequest;
use super::headers::client_key;
use super::intake::body::{BLOCKING_BYTES, BodyError, BodyLimits, ContentCoding, discard_body, read_body};
use super::intake::object_owners::{object_in_body, object_in_path};
use super::ledger::RequestLedger;
use super::local_reply;
use super::relay::ResponseBody;
use gorgo_routing::model::{ParsedRequest, RefusalReason, ReplicaId, UnixMicros};
use gorgo_routing::policy::ReadError;

/// Request that was read, with its ledger.
pub(super) struct ActiveRequest {
    pub(super) request: BufferedRequest,
    pub(super) ledger: RequestLedger,
    _body_bytes: BufferedBytes,
    pub(super) eligible: EligibleReplicas,
    /// Time at which the body was complete.
    pub(super) body_read_at: UnixMicros,
}

/// Replicas that may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EligibleReplicas {
    /// Every replica.
    Any,
    /// The one that holds what the request refers to.
    Only(ReplicaId),
    /// The holder is unknown: replicas are tried in turn until one does not answer 404.
    EachInTurn,
}

/// Reads the body. `Err` is the response to a request that cannot be routed; its rows are written.
pub(super) async fn accept_request(
    data: &Arc<DataPlane>,
    request: Request<Incoming>,
    mut ledger: RequestLedger,
) -> Result<ActiveRequest, Box<Response<ResponseBody>>> {
    let (head, mut incoming) = request.into_parts();
    // The body is discarded first: a client that is still sending would see a reset instead of the response.
    if data.draining.is_cancelled() {
        discard_body(incoming, &head.headers).await;
        return Err(refuse(ledger, RefusalReason::Draining, "the router is shutting down"));
    }
    let mut held = data.body_budget.open();
    let limits = BodyLimits { max_bytes: data.server.max_body_bytes, idle: data.idle_timeout() };
    let too_large = || format!("the request body exceeds server.max_body_bytes = {} bytes", data.server.max_body_bytes);
    let body = match read_body(&mut incoming, limits, &mut held).await {
        Ok(body) => body,
        Err(why) => {
            // Released before the drain, which may take seconds and keeps nothing.
            drop(held);
            let (refusal, message) = match why {
                BodyError::TooLarge => (RefusalReason::BodyTooLarge, too_large()),
                BodyError::BufferFull => (
                    RefusalReason::Overloaded,
                    format!(
                        "request bodies in memory exceed server.max_buffered_bytes = {} bytes; retry later",
                        data.server.max_buffered_bytes
                    ),
                ),
                BodyError::ClientGone => {
                    (RefusalReason::ClientGone, "the request body did not arrive in time".to_owned())
                }
                BodyError::Malformed => {
                    (RefusalReason::MalformedBody, "the body's transfer coding is malformed".to_owned())
                }
            };
            if matches!(refusal, RefusalReason::BodyTooLarge | RefusalReason::Overloaded) {
                discard_body(incoming, &head.headers).await;
            }
            return Err(refuse(ledger, refusal, &message));
        }
    };
    let taken_in = data.clock.now();
    ledger.body_bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
    let Ok(packing) = ContentCoding::of(&head.headers) else {
        let message = "this content-encoding is not supported; send gzip, deflate or a plain body";
        return Err(refuse(ledger, RefusalReason::MalformedBody, message));
    };
    let (mut prompt, refers_to) = match parse_request(data, &head, &body, packing).await {
        Ok(read) => read,
        Err(RequestReadError::Malformed(message)) => {
            return Err(refuse(ledger, RefusalReason::MalformedBody, &message));
        }
        Err(RequestReadError::TooLarge) => {
            return Err(refuse(ledger, RefusalReason::BodyTooLarge, &format!("decompressed, {}", too_large())));
        }
    };
    // `usage_splice` holds offsets into the plain text, but the engine gets the client's compressed body.
    if packing.is_some() {
        prompt.usage_splice = None;
    }
    let prompt = Arc::new(prompt);
    ledger.prompt = Some(Arc::clone(&prompt));
    let holder = match (refers_to, object_in_path(head.uri.path())) {
        (Some(replica), _) => EligibleReplicas::Only(replica),
        (None, Some(id)) => {
            data.object_owners.owner_of(id.as_bytes()).map_or(EligibleReplicas::EachInTurn, EligibleReplicas::Only)
        }
        (None, None) => EligibleReplicas::Any,
    };
    let asked = BufferedRequest::new(Arc::clone(data), &ledger, head, body, prompt);
    Ok(ActiveRequest { request: asked, ledger, _body_bytes: held, eligible: holder, body_read_at: taken_in })
}

enum RequestReadError {
    Malformed(String),
    TooLarge,
}

/// Has the body parsed; long ones off the event loop. Also returns the holder of what the body refers to.
async fn parse_request(
    data: &Arc<DataPlane>,
    head: &Parts,
    body: &Bytes,
    packing: Option<ContentCoding>,
) -> Result<(ParsedRequest, Option<ReplicaId>), RequestReadError> {
    let path = head.uri.path().to_owned();
    let bytes_of = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
    let session = bytes_of(head.headers.get(&data.session_header).map(HeaderValue::as_bytes));
    let key = bytes_of(client_key(&head.headers));
    // Copied out of the head: `work` may run on another thread.
    let slo_ttft_ms = head.headers.get(SLO_TTFT_MS).and_then(|value| {
        let stated = parse_slo_ms(value);
        if stated.is_none() {
            data.unread_hints.count();
        }
        stated
    });
    let work = {
        let (data, body) = (Arc::clone(data), body.clone());
        move || {
            let unpacked = match packing.map(|packing| packing.decode(&body, data.server.max_body_bytes)) {
                None => None,
                Some(Ok(plain)) => Some(plain),
                Some(Err(BodyError::TooLarge)) => return Err(RequestReadError::TooLarge),
                Some(Err(_)) => {
                    return Err(RequestReadError::Malformed("the body does not match its content-encoding".to_owned()));
                }
            };
            let text = unpacked.as_deref().unwrap_or(&body);
            let mut prompt = data
                .selector
                .read(&path, text, session.as_deref(), key.as_deref())
                .map_err(|ReadError::Malformed(message)| RequestReadError::Malformed(message))?;
            prompt.slo_ttft_ms = slo_ttft_ms;
            Ok((prompt, object_in_body(&path, text).and_then(|id| data.object_owners.owner_of(id))))
        }
    };
    // A compressed body is about 16 times longer when decompressed (text in JSON compresses well).
    let long = body.len() > if packing.is_some() { BLOCKING_BYTES / 16 } else { BLOCKING_BYTES };
    if !long {
        return work();
    }
    spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(RequestReadError::Malformed("the body could not be read".to_owned())))
}

/// Request header with the TTFT that the client wants, ms: a fact for policies (`slo_ttft_ms`).
const SLO_TTFT_MS: &str = "x-slo-ttft-ms";

/// Parses a number of ms above 0, up to a day. With anything else the request continues as if the header were absent,
/// since it is only a hint; it is counted, so that an operator notices a client that sends it wrongly.
fn parse_slo_ms(value: &HeaderValue) -> Option<f64> {
    let stated: f64 = value.to_str().ok()?.trim().parse().ok()?;
    (stated > 0.0 && stated <= 86_400_000.0).then_some(stated)
}

/// Answers a request that cannot be routed, and writes its rows.
pub(super) fn refuse(ledger: RequestLedger, refusal: RefusalReason, message: &str) -> Box<Response<ResponseBody>> {
    let (status, code) = local_reply::refusal(refusal);
    let mut response = local_reply::error(status, code, message);
    // The rest of the body may be unread, and a draining router accepts no further request on this connection.
    if matches!(refusal, RefusalReason::Draining | RefusalReason::BodyTooLarge | RefusalReason::ClientGone) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    // Nobody was there to read that status, so the row has none.
    let told = (refusal != RefusalReason::ClientGone).then_some(status.as_u16());
    ledger.refuse(refusal, told);
    Box::new(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stated_slo_is_a_number_of_ms_or_nothing() {
        let of = |text: &'static str| parse_slo_ms(&HeaderValue::from_static(text));
        assert_eq!((of("800"), of(" 0.5 ")), (Some(800.0), Some(0.5)));
        for nothing in ["", "0", "-3", "NaN", "inf", "86400001", "800ms"] {
            assert_eq!(of(nothing), None, "{nothing}");
        }
    }
}
