//! Response bodies: a single piece, or a stream in which each write arrives half a round trip after it was made.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::answer::{ResponseFormat, TokenCounts, error_event};
use super::driver::JobOutputs;
use super::settings::EngineFault;
use super::words::WordGenerator;
use gorgo_lab::sim::{EngineOutput, SimulatedLink};
use gorgo_routing::model::{Clock, UnixMicros};

/// Error that makes the server break the connection, as a fault requires.
#[derive(Debug, thiserror::Error)]
#[error("simulated fault: connection broken")]
pub(super) struct ConnectionBroken;

/// Body of an answer.
pub(super) enum SimulatedBody {
    /// Sent all at once.
    Whole(Option<Bytes>),
    /// Sent event by event.
    Stream(Box<StreamBody>),
}

impl SimulatedBody {
    pub(super) fn whole(text: impl Into<Bytes>) -> Self {
        Self::Whole(Some(text.into()))
    }
}

impl Body for SimulatedBody {
    type Data = Bytes;
    type Error = ConnectionBroken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ConnectionBroken>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(stream) => stream.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            // An exact size makes hyper send Content-Length; a stream is sent in chunks.
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// A stream of events. Outputs of the engine wait in `outputs` with their times, so that no write delays later ones,
/// however long the round trip is.
pub(super) struct StreamBody {
    outputs: JobOutputs,
    /// Output that was read before the response head was sent.
    seen: Option<EngineOutput>,
    format: Box<dyn ResponseFormat>,
    words: WordGenerator,
    counts: TokenCounts,
    link: SimulatedLink,
    clock: Arc<dyn Clock>,
    fault: Option<EngineFault>,
    /// Shutdown of the engine, which ends a stall.
    shutdown: Pin<Box<WaitForCancellationFutureOwned>>,
    sleep: Pin<Box<Sleep>>,
    /// `sleep` is set for the first of `travelling`.
    armed: bool,
    /// Writes on their way, with their times of arrival.
    travelling: VecDeque<(UnixMicros, DelayedWrite)>,
    /// The server had an opportunity to flush before the connection breaks.
    flushed: bool,
    ended: bool,
}

/// Parts from which a [`StreamBody`] is made.
pub(super) struct StreamParts {
    pub(super) outputs: JobOutputs,
    pub(super) seen: Option<EngineOutput>,
    pub(super) wording: Box<dyn ResponseFormat>,
    pub(super) words: WordGenerator,
    pub(super) prompt_tokens: u32,
    pub(super) link: SimulatedLink,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) fault: Option<EngineFault>,
    pub(super) shutdown: CancellationToken,
}

/// A write on its way to the client.
#[derive(Debug)]
enum DelayedWrite {
    /// Events that are followed by more.
    Events(Bytes),
    /// Last events of the stream.
    Last(Bytes),
    /// Break of the connection.
    Break,
    /// Silence without an end.
    Stall,
}

impl StreamBody {
    pub(super) fn new(parts: StreamParts) -> Self {
        let mut stream = Self {
            outputs: parts.outputs,
            seen: parts.seen,
            format: parts.wording,
            words: parts.words,
            counts: TokenCounts { prompt: parts.prompt_tokens, ..TokenCounts::default() },
            link: parts.link,
            fault: parts.fault,
            shutdown: Box::pin(parts.shutdown.cancelled_owned()),
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
            armed: false,
            travelling: VecDeque::new(),
            flushed: false,
            ended: false,
            clock: parts.clock,
        };
        // A fault after 0 tokens happens before any output.
        stream.fail_at(stream.clock.now());
        stream
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ConnectionBroken>>> {
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            let Some((due, _)) = self.travelling.front() else {
                let output = match self.seen.take() {
                    Some(output) => Some(output),
                    None => ready!(self.outputs.poll_next(cx)),
                };
                // Outputs are only read when nothing is travelling; their times were fixed when the engine made them.
                self.encode_output(output);
                continue;
            };
            let due = *due;
            ready!(self.poll_due(due, cx));
            if matches!(self.travelling.front(), Some((_, DelayedWrite::Break))) && !self.flushed {
                // Earlier writes must leave first: the server flushes when the body is pending.
                self.flushed = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if matches!(self.travelling.front(), Some((_, DelayedWrite::Stall))) {
                // Without this a stalled stream would keep the server from shutting down.
                ready!(self.shutdown.as_mut().poll(cx));
            }
            let (ended, result) = match self.travelling.pop_front() {
                Some((_, DelayedWrite::Events(bytes))) => (false, Ok(Frame::data(bytes))),
                Some((_, DelayedWrite::Last(bytes))) => (true, Ok(Frame::data(bytes))),
                Some((_, DelayedWrite::Break | DelayedWrite::Stall)) | None => (true, Err(ConnectionBroken)),
            };
            self.ended = ended;
            return Poll::Ready(Some(result));
        }
    }

    /// Becomes ready when the engine's clock shows `due`.
    fn poll_due(&mut self, due: UnixMicros, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let left = due.elapsed_since(self.clock.now());
            if left.is_zero() {
                self.armed = false;
                return Poll::Ready(());
            }
            if !self.armed {
                // One timer is reused for the whole stream; `armed` says whether it is set for the current front.
                self.sleep.as_mut().reset(tokio::time::Instant::now() + left);
                self.armed = true;
            }
            ready!(self.sleep.as_mut().poll(cx));
            // The timer may fire slightly early by the engine's clock; then it is set again.
            self.armed = false;
        }
    }

    /// Formats an output and sends it on its way. `None` means that the engine has stopped; the connection then breaks.
    fn encode_output(&mut self, output: Option<EngineOutput>) {
        let Some(output) = output else {
            self.travelling.push_back((self.clock.now(), DelayedWrite::Break));
            return;
        };
        let due = output.at().plus(self.link.answer_delay(output.at()));
        let mut text = String::new();
        match output {
            // The opening events are sent together with the first token, but need this count.
            EngineOutput::Prefilled { cached_tokens, .. } => self.counts.cached = cached_tokens,
            EngineOutput::Token { index, .. } => {
                if index == 0 {
                    self.format.open(self.counts, &mut text);
                }
                self.counts.completion = index.saturating_add(1);
                let mut word = String::new();
                self.words.write(index, &mut word);
                self.format.token(&word, self.counts, &mut text);
                self.travelling.push_back((due, DelayedWrite::Events(text.into())));
                self.fail_at(due);
            }
            EngineOutput::Finished { .. } => {
                // An answer without any token still opens and closes its stream.
                if self.counts.completion == 0 {
                    self.format.open(self.counts, &mut text);
                }
                self.format.close(self.counts, &mut text);
                self.travelling.push_back((due, DelayedWrite::Last(text.into())));
            }
        }
    }

    /// Sends the fault on its way if this is the number of tokens after which it occurs.
    fn fail_at(&mut self, due: UnixMicros) {
        let write = match self.fault {
            Some(EngineFault::DieAfter(tokens)) if tokens == self.counts.completion => DelayedWrite::Break,
            Some(EngineFault::StallAfter(tokens)) if tokens == self.counts.completion => DelayedWrite::Stall,
            Some(EngineFault::ErrorAfter(tokens)) if tokens == self.counts.completion => {
                let mut text = String::new();
                error_event(503, "simulated fault", &mut text);
                DelayedWrite::Last(text.into())
            }
            _ => return,
        };
        self.travelling.push_back((due, write));
    }
}
