//! A response's body on its way to the client: as it comes, byte for byte. Pieces that arrived together are passed on
//! together, in one write; a single piece is passed on at once.
//!
//! hyper pulls the body, so nothing is read from the engine while the client does not read: a slow client blocks the
//! engine's writes and does not fill gorgo's memory. hyper drops the body when the client is gone, which closes the
//! engine's connection. A response that breaks never looks complete: a stream of events gets one error event, then its
//! connection closes; any other body is aborted.

mod idle_timer;
pub(super) mod observer;

use std::future::poll_fn;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use tokio_util::sync::CancellationToken;

use super::DataPlane;
use super::forward::attempt::RequestAttempt;
use super::intake::object_owners::ObjectIdScanner;
use super::ledger::{ClientOutcome, RequestLedger};
use super::local_reply::error_event;
use super::relay::idle_timer::IdleTimer;
use super::relay::observer::{ResponseCompletion, ResponseObserver};
use super::upstream::pool::PooledConnection;
use crate::engine::StreamObservation;
use gorgo_routing::model::{ErrorClass, EventKind, ReplicaId, TokenUsage, UnixMicros};

/// Bytes ready for the client at which they are written before more are read.
const READY_BYTES: usize = 64 << 10;
/// Length up to which small pieces that are ready together are joined.
const JOINED_BYTES: usize = 16 << 10;

/// Body that gorgo sends to a client.
pub(super) enum ResponseBody {
    /// Body made by gorgo.
    Whole(Bytes),
    /// Body of an engine's response.
    Relay(Box<ResponseRelay>),
}

impl ResponseBody {
    pub(super) const fn whole(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }
}

/// An engine's response that is being relayed.
pub(super) struct ResponseRelay {
    data: Arc<DataPlane>,
    incoming: Incoming,
    connection: Option<PooledConnection>,
    rows: Option<(RequestAttempt, RequestLedger)>,
    status: u16,
    observer: ResponseObserver,
    /// Looks for the id of an object that the engine now stores.
    id_scanner: Option<ObjectIdScanner>,
    first_byte: Option<UnixMicros>,
    /// Pieces ready for the client; `next` is the first of them that was not handed over.
    out: Vec<Bytes>,
    next: usize,
    /// Bytes in `out` since it was last empty.
    ready_bytes: usize,
    end: Option<RelayEnd>,
    read_to_end: bool,
    /// Set once the pieces before an abort were sent to the client.
    flushed: bool,
    failed: bool,
    idle_timer: IdleTimer,
    /// Closes the client's connection once the body has ended.
    close_client: CancellationToken,
}

/// Remaining steps after the last piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RelayEnd {
    error: Option<ErrorClass>,
    /// Aborts the transfer, so that the client notices.
    abort: bool,
}

/// Error that makes hyper abort a transfer.
#[derive(Debug, thiserror::Error)]
#[error("the replica's response broke off")]
pub(super) struct RelayAborted;

impl ResponseRelay {
    pub(super) fn new(
        data: &Arc<DataPlane>,
        status: u16,
        incoming: Incoming,
        carrier: PooledConnection,
        watch: ResponseObserver,
        close_client: CancellationToken,
    ) -> Self {
        Self {
            data: Arc::clone(data),
            incoming,
            connection: Some(carrier),
            rows: None,
            status,
            observer: watch,
            id_scanner: None,
            first_byte: None,
            out: Vec::new(),
            next: 0,
            ready_bytes: 0,
            end: None,
            read_to_end: false,
            flushed: false,
            failed: false,
            idle_timer: IdleTimer::new(data.idle_timeout(), &data.abort),
            close_client,
        }
    }

    /// Remembers which replica holds the object that this response creates or shows.
    pub(super) fn record_owner(&mut self, replica: ReplicaId) {
        self.id_scanner = Some(ObjectIdScanner::new(replica));
    }

    /// Waits for the first frame, before anything was promised to the client. `Err`: the response broke before it
    /// began.
    pub(super) async fn first_frame(&mut self) -> Result<(), ErrorClass> {
        loop {
            let frame = poll_fn(|cx| self.poll_incoming(cx)).await;
            let now = self.data.clock.now();
            match frame {
                None => return Err(ErrorClass::UpstreamAborted),
                Some(Err(_)) => return Err(ErrorClass::UpstreamAborted),
                Some(Ok(frame)) => {
                    let Ok(piece) = frame.into_data() else { continue };
                    // An empty frame is no sign that the prefill is over.
                    if piece.is_empty() {
                        continue;
                    }
                    self.accept_piece(piece, now);
                    return Ok(());
                }
            }
        }
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut incoming = Pin::new(&mut self.incoming);
        match &mut self.connection {
            Some(carrier) => carrier.drive(cx, |cx| incoming.as_mut().poll_frame(cx)),
            None => incoming.poll_frame(cx),
        }
    }

    /// Status of an error event that came before any content: the engine refused the request.
    pub(super) fn error_before_content(&self) -> Option<u16> {
        let observed = self.observer.observed()?;
        let error = observed.error?;
        if observed.content_events > 0 { None } else { Some(error.code.unwrap_or(500)) }
    }

    /// Returns `true` if the client may get other bytes than the engine sent, which makes a stated length wrong.
    pub(super) const fn may_change_length(&self) -> bool {
        matches!(self.observer, ResponseObserver::Stream(_))
    }

    /// Hands over the rows to be written when the response ends. From here on the relay is responsible for both.
    pub(super) fn start(mut self, attempt: RequestAttempt, ledger: RequestLedger) -> ResponseBody {
        self.rows = Some((attempt, ledger));
        self.report_first_content();
        self.release_connection();
        // A body that is already complete (or empty) may never be polled by hyper, so its rows are written now.
        if self.incoming.is_end_stream() && self.end.is_none() {
            let now = self.data.clock.now();
            self.upstream_ended(now);
        }
        if let Some(ending) = self.end
            && self.out.is_empty()
        {
            self.finish_rows(ending.error);
        }
        ResponseBody::Relay(Box::new(self))
    }

    fn accept_piece(&mut self, piece: Bytes, now: UnixMicros) {
        self.first_byte.get_or_insert(now);
        if let Some((attempt, _)) = &self.rows {
            self.data.liveness.record_activity(attempt.replica(), now);
        }
        if let Some((id, replica)) = self.id_scanner.as_mut().and_then(|seeker| seeker.push(&piece)) {
            // As soon as the id has passed: the client may use it before the response ends.
            self.data.object_owners.record(&id, replica);
        }
        let before = self.out.len();
        self.observer.push(piece, now, &mut self.out);
        self.ready_bytes += self.out[before..].iter().map(Bytes::len).sum::<usize>();
        self.report_first_content();
        // Known without another poll, so the connection can serve the next request a little earlier.
        if self.incoming.is_end_stream() {
            self.upstream_ended(now);
        }
    }

    /// The engine ended its body as HTTP requires. Whether the response is complete is judged separately.
    fn upstream_ended(&mut self, now: UnixMicros) {
        self.read_to_end = true;
        self.release_connection();
        let status = self.status;
        let mut error = match status {
            400..500 => Some(ErrorClass::ClientError),
            500.. => Some(ErrorClass::UpstreamStatus),
            _ => None,
        };
        let verdict = self.observer.completion(now, &mut self.out);
        self.report_first_content();
        // The status says more than an error event, so it takes precedence.
        if verdict == ResponseCompletion::Failed {
            error = error.or(Some(ErrorClass::UpstreamErrorEvent));
        }
        if verdict == ResponseCompletion::Truncated && error.is_none() {
            self.break_off(ErrorClass::UpstreamAborted);
        } else {
            self.end = Some(RelayEnd { error, abort: false });
        }
    }

    fn report_first_content(&mut self) {
        let first_content = self.observer.observed().and_then(|observed| observed.first_content);
        if let (Some(at), Some((attempt, _))) = (first_content, &mut self.rows) {
            attempt.record_first_content(at);
        }
    }

    /// Makes the connection available to other requests, once this response was read to its end.
    fn release_connection(&mut self) {
        if let Some((attempt, _)) = &self.rows
            && self.read_to_end
            && let Some(carrier) = self.connection.take()
            && let Some(upstream) = attempt.upstream()
        {
            upstream.pool.release(carrier, self.data.clock.now());
        }
    }

    /// Ends a response that cannot be completed.
    fn break_off(&mut self, class: ErrorClass) {
        // Dropping it closes the connection, so that the engine stops generating.
        self.connection = None;
        let ResponseObserver::Stream(reader) = &mut self.observer else {
            self.end = Some(RelayEnd { error: Some(class), abort: true });
            return;
        };
        if reader.observed().done {
            // The client has all events that it waits for; only the end of the transfer is missing.
            self.end = Some(RelayEnd { error: None, abort: false });
            return;
        }
        // Half an event must not reach the client; the error event follows instead.
        reader.drop_withheld();
        if !reader.between_events() {
            self.out.push(Bytes::from_static(b"\n\n"));
        }
        let (code, message) = match class {
            ErrorClass::IdleTimeout => ("upstream_idle_timeout", "the replica sent nothing for too long"),
            ErrorClass::Shutdown => ("router_shutdown", "the router shut down before the answer was complete"),
            _ => ("upstream_aborted", "the replica broke off before the answer was complete"),
        };
        self.out.push(error_event(reader.dialect(), code, message));
        // Only after this body: the token lets hyper finish writing first.
        self.close_client.cancel();
        self.end = Some(RelayEnd { error: Some(class), abort: false });
    }

    /// Writes the rows and releases the load; once.
    fn finish_rows(&mut self, error: Option<ErrorClass>) {
        let Some((attempt, ledger)) = self.rows.take() else { return };
        // Closes the engine's connection if its response was not read to the end.
        self.connection = None;
        // A response that is not a stream has no observations, only counts.
        let counted = StreamObservation { usage: self.observer.usage(), ..StreamObservation::default() };
        let mut observed = self.observer.observed().unwrap_or(&counted).clone();
        if error.is_none() && self.status == 200 {
            self.check_cached_tokens(&attempt, &ledger, &mut observed.usage);
        }
        attempt.end(error, observed.usage);
        ledger.finish(&ClientOutcome {
            status: Some(self.status),
            error,
            first_byte: self.first_byte,
            observed: Some(&observed),
        });
    }

    fn check_cached_tokens(&self, attempt: &RequestAttempt, ledger: &RequestLedger, usage: &mut TokenUsage) {
        let Some(upstream) = attempt.upstream() else { return };
        if let Some(text) = upstream.check_cached_tokens(usage, ledger.predicted_cached_tokens.unwrap_or(0)) {
            self.data.outlet.note(EventKind::MissingSignal, attempt.replica(), text);
        }
    }

    /// Next piece for the client. Small ones that are ready together are joined, which costs less than framing and
    /// writing each separately.
    fn next_piece(&mut self) -> Option<Bytes> {
        let (first, more) = self.out.get_mut(self.next..)?.split_first_mut()?;
        let (mut length, mut count) = (first.len(), 1);
        for piece in &*more {
            if length + piece.len() > JOINED_BYTES {
                break;
            }
            length += piece.len();
            count += 1;
        }
        let piece = if count == 1 {
            mem::take(first)
        } else {
            let mut joined = Vec::with_capacity(length);
            for piece in &mut self.out[self.next..self.next + count] {
                joined.extend_from_slice(&mem::take(piece));
            }
            Bytes::from(joined)
        };
        self.next += count;
        if self.next == self.out.len() {
            self.out.clear();
            (self.next, self.ready_bytes) = (0, 0);
        }
        Some(piece)
    }

    /// Takes in all that has arrived from the engine, up to [`READY_BYTES`]. Does not wait for more if there is
    /// something.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Checked here, because an engine that never pauses would never let the idle timer see the abort.
        if self.end.is_none() && self.data.abort.is_triggered() {
            self.break_off(ErrorClass::Shutdown);
        }
        while self.end.is_none() && self.ready_bytes < READY_BYTES {
            match self.poll_incoming(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.idle_timer.reset();
                    let now = self.data.clock.now();
                    // Trailers concern the connection between router and engine only.
                    if let Ok(piece) = frame.into_data() {
                        self.accept_piece(piece, now);
                    }
                }
                Poll::Ready(Some(Err(_))) => self.break_off(ErrorClass::UpstreamAborted),
                Poll::Ready(None) => {
                    let now = self.data.clock.now();
                    self.upstream_ended(now);
                }
                // Latency before batching: what is there goes out now.
                Poll::Pending if !self.out.is_empty() => break,
                Poll::Pending => {
                    let class = ready!(self.idle_timer.poll(&*self.data.clock, cx));
                    self.break_off(class);
                }
            }
        }
        Poll::Ready(())
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayAborted>>> {
        // Everything gathered is handed over before more is read, which bounds the memory.
        if self.next == 0 {
            ready!(self.fill(cx));
        }
        if let Some(piece) = self.next_piece() {
            if let Some(ending) = self.end
                && self.out.is_empty()
            {
                // hyper need not poll again after the last byte of a stated length.
                self.finish_rows(ending.error);
            }
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let Some(ending) = self.end else { return Poll::Pending };
        self.finish_rows(ending.error);
        if ending.abort && !self.failed {
            if !mem::replace(&mut self.flushed, true) {
                // hyper drops what it has not written when a body fails; when the body has nothing ready it writes
                // first.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.failed = true;
            return Poll::Ready(Some(Err(RelayAborted)));
        }
        Poll::Ready(None)
    }
}

impl Drop for ResponseRelay {
    fn drop(&mut self) {
        // The rows are still open, so the last piece was not handed over: nobody reads any more.
        let error = self.end.and_then(|ending| ending.error).unwrap_or_else(|| self.data.drop_reason());
        self.finish_rows(Some(error));
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(mem::take(bytes))))),
            Self::Relay(relay) => relay.poll(cx).map_err(io::Error::other),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Relay(relay) => relay.out.is_empty() && relay.end.is_some_and(|ending| !ending.abort),
        }
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Self::Whole(bytes) => hyper::body::SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
            Self::Relay(_) => hyper::body::SizeHint::default(),
        }
    }
}
