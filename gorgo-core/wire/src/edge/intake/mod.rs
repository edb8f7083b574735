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

use super::Data;
use super::budget::HeldBytes;
use super::forward::buffered_request::Asked;
use super::headers::client_key;
use super::intake::body::{LONG_WORK, Limits, NotTaken, Packing, drain, take_in};
use super::intake::object_owners::{named_by_body, named_by_path};
use super::ledger::Ledger;
use super::local_reply;
use super::relay::AnswerBody;
use gorgo_routing::model::{At, Prompt, Refusal, ReplicaId};
use gorgo_routing::policy::ReadError;

/// Request that was read, with its ledger.
pub(super) struct Exchange {
    pub(super) asked: Asked,
    pub(super) ledger: Ledger,
    _held: HeldBytes,
    pub(super) holder: Holder,
    /// Time at which the body was complete.
    pub(super) taken_in: At,
}

/// Replicas that may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// Every replica.
    Anyone,
    /// The one that holds what the request refers to.
    Only(ReplicaId),
    /// The holder is unknown: replicas are tried in turn until one does not answer 404.
    InTurn,
}

/// Reads the body. `Err` is the response to a request that cannot be routed; its rows are written.
pub(super) async fn take(
    data: &Arc<Data>,
    request: Request<Incoming>,
    mut ledger: Ledger,
) -> Result<Exchange, Box<Response<AnswerBody>>> {
    let (head, mut incoming) = request.into_parts();
    // The body is discarded first: a client that is still sending would see a reset instead of the response.
    if data.draining.is_cancelled() {
        drain(incoming, &head.headers).await;
        return Err(refuse(ledger, Refusal::Draining, "the router is shutting down"));
    }
    let mut held = data.bodies.open();
    let limits = Limits { max_bytes: data.server.max_body_bytes, idle: data.idle_timeout() };
    let too_large = || format!("the request body exceeds server.max_body_bytes = {} bytes", data.server.max_body_bytes);
    let body = match take_in(&mut incoming, limits, &mut held).await {
        Ok(body) => body,
        Err(why) => {
            // Released before the drain, which may take seconds and keeps nothing.
            drop(held);
            let (refusal, message) = match why {
                NotTaken::TooLarge => (Refusal::BodyTooLarge, too_large()),
                NotTaken::Overloaded => (
                    Refusal::Overloaded,
                    format!(
                        "request bodies in memory exceed server.max_buffered_bytes = {} bytes; retry later",
                        data.server.max_buffered_bytes
                    ),
                ),
                NotTaken::ClientGone => (Refusal::ClientGone, "the request body did not arrive in time".to_owned()),
                NotTaken::Malformed => (Refusal::MalformedBody, "the body's transfer coding is malformed".to_owned()),
            };
            if matches!(refusal, Refusal::BodyTooLarge | Refusal::Overloaded) {
                drain(incoming, &head.headers).await;
            }
            return Err(refuse(ledger, refusal, &message));
        }
    };
    let taken_in = data.clock.now();
    ledger.body_bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
    let Ok(packing) = Packing::of(&head.headers) else {
        let message = "this content-encoding is not supported; send gzip, deflate or a plain body";
        return Err(refuse(ledger, Refusal::MalformedBody, message));
    };
    let (mut prompt, refers_to) = match read(data, &head, &body, packing).await {
        Ok(read) => read,
        Err(NotRead::Malformed(message)) => return Err(refuse(ledger, Refusal::MalformedBody, &message)),
        Err(NotRead::TooLarge) => {
            return Err(refuse(ledger, Refusal::BodyTooLarge, &format!("decompressed, {}", too_large())));
        }
    };
    // `usage_splice` holds offsets into the plain text, but the engine gets the client's compressed body.
    if packing.is_some() {
        prompt.usage_splice = None;
    }
    let prompt = Arc::new(prompt);
    ledger.prompt = Some(Arc::clone(&prompt));
    let holder = match (refers_to, named_by_path(head.uri.path())) {
        (Some(replica), _) => Holder::Only(replica),
        (None, Some(id)) => data.holders.of(id.as_bytes()).map_or(Holder::InTurn, Holder::Only),
        (None, None) => Holder::Anyone,
    };
    let asked = Asked::new(Arc::clone(data), &ledger, head, body, prompt);
    Ok(Exchange { asked, ledger, _held: held, holder, taken_in })
}

enum NotRead {
    Malformed(String),
    TooLarge,
}

/// Has the body parsed; long ones off the event loop. Also returns the holder of what the body refers to.
async fn read(
    data: &Arc<Data>,
    head: &Parts,
    body: &Bytes,
    packing: Option<Packing>,
) -> Result<(Prompt, Option<ReplicaId>), NotRead> {
    let path = head.uri.path().to_owned();
    let bytes_of = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
    let session = bytes_of(head.headers.get(&data.session_header).map(HeaderValue::as_bytes));
    let key = bytes_of(client_key(&head.headers));
    // Copied out of the head: `work` may run on another thread.
    let slo_ttft_ms = head.headers.get(SLO_TTFT_MS).and_then(|value| {
        let stated = stated_ms(value);
        if stated.is_none() {
            data.unread_hints.count();
        }
        stated
    });
    let work = {
        let (data, body) = (Arc::clone(data), body.clone());
        move || {
            let unpacked = match packing.map(|packing| packing.unpack(&body, data.server.max_body_bytes)) {
                None => None,
                Some(Ok(plain)) => Some(plain),
                Some(Err(NotTaken::TooLarge)) => return Err(NotRead::TooLarge),
                Some(Err(_)) => {
                    return Err(NotRead::Malformed("the body does not match its content-encoding".to_owned()));
                }
            };
            let text = unpacked.as_deref().unwrap_or(&body);
            let mut prompt = data
                .choose
                .read(&path, text, session.as_deref(), key.as_deref())
                .map_err(|ReadError::Malformed(message)| NotRead::Malformed(message))?;
            prompt.slo_ttft_ms = slo_ttft_ms;
            Ok((prompt, named_by_body(&path, text).and_then(|id| data.holders.of(id))))
        }
    };
    // A compressed body is about 16 times longer when decompressed (text in JSON compresses well).
    let long = body.len() > if packing.is_some() { LONG_WORK / 16 } else { LONG_WORK };
    if !long {
        return work();
    }
    spawn_blocking(work).await.unwrap_or_else(|_| Err(NotRead::Malformed("the body could not be read".to_owned())))
}

/// Request header with the TTFT that the client wants, ms: a fact for policies (`slo_ttft_ms`).
const SLO_TTFT_MS: &str = "x-slo-ttft-ms";

/// Parses a number of ms above 0, up to a day. With anything else the request continues as if the header were absent,
/// since it is only a hint; it is counted, so that an operator notices a client that sends it wrongly.
fn stated_ms(value: &HeaderValue) -> Option<f64> {
    let stated: f64 = value.to_str().ok()?.trim().parse().ok()?;
    (stated > 0.0 && stated <= 86_400_000.0).then_some(stated)
}

/// Answers a request that cannot be routed, and writes its rows.
pub(super) fn refuse(ledger: Ledger, refusal: Refusal, message: &str) -> Box<Response<AnswerBody>> {
    let (status, code) = local_reply::refusal(refusal);
    let mut response = local_reply::error(status, code, message);
    // The rest of the body may be unread, and a draining router accepts no further request on this connection.
    if matches!(refusal, Refusal::Draining | Refusal::BodyTooLarge | Refusal::ClientGone) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    // Nobody was there to read that status, so the row has none.
    let told = (refusal != Refusal::ClientGone).then_some(status.as_u16());
    ledger.refuse(refusal, told);
    Box::new(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stated_slo_is_a_number_of_ms_or_nothing() {
        let of = |text: &'static str| stated_ms(&HeaderValue::from_static(text));
        assert_eq!((of("800"), of(" 0.5 ")), (Some(800.0), Some(0.5)));
        for nothing in ["", "0", "-3", "NaN", "inf", "86400001", "800ms"] {
            assert_eq!(of(nothing), None, "{nothing}");
        }
    }
}
