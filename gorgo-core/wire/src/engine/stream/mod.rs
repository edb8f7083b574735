//! Reads what engines respond.
//!
//! Reads an engine's server-sent events as they pass, and passes the bytes on.
//!
//! Every byte passes as it came, with one exception: when gorgo asked the engine for usage and the client did not, the
//! event that carries only usage is removed. Only for that are bytes withheld, at most those of one undecided event; an
//! event is released as soon as a complete line shows that it is another one.
//!
//! Pure: bytes and times in, bytes and observations out. [`gorgo_routing::parse::sse`] finds the events.

pub(super) mod compressed;
pub(super) mod events;
pub(super) mod gaps;
mod usage;
pub(super) mod whole_response;

use std::time::Duration;

use bytes::Bytes;

use super::stream::events::{EventSummary, StreamDialect, StreamError, may_be_usage, read_event};
use super::stream::gaps::TokenGaps;
use super::stream::usage::merge;
use gorgo_routing::model::{TokenUsage, UnixMicros};
use gorgo_routing::parse::sse::{SseEvent, SseReader, SseSink};

/// Length beyond which an event, and everything after it, is no longer read; its bytes still pass. Bytes.
const MAX_EVENT: usize = 8 << 20;

/// Observations of a stream so far.
#[derive(Debug, Clone, Default)]
pub struct StreamObservation {
    /// Time of the first generated content of any kind; a role or an empty delta is none.
    pub first_content: Option<UnixMicros>,
    /// Time of the last generated content.
    pub last_content: Option<UnixMicros>,
    /// Events with generated content.
    pub content_events: u64,
    /// Gaps between them.
    pub gaps: TokenGaps,
    /// Token counts of the engine.
    pub usage: TokenUsage,
    /// The stream's end marker was seen (`[DONE]`, `message_stop`, `response.completed`).
    pub done: bool,
    /// A finish reason was seen.
    pub finished: bool,
    /// First error event.
    pub error: Option<StreamError>,
    /// An event was too long to read; nothing after it was observed.
    pub overlong: bool,
}

impl StreamObservation {
    /// Mean time between tokens: (last − first content) / (tokens − 1); `None` for fewer than two tokens, or if the
    /// engine did not count them.
    #[must_use]
    pub fn mean_gap(&self) -> Option<Duration> {
        let between = self.usage.completion_tokens?.checked_sub(1).filter(|count| *count > 0)?;
        Some(self.last_content?.elapsed_since(self.first_content?) / between)
    }

    fn observe(&mut self, seen: &EventSummary, at: UnixMicros) {
        if seen.content {
            if let Some(last) = self.last_content {
                // Between events and not between tokens: an event may carry several.
                self.gaps.push(at.elapsed_since(last));
            }
            self.first_content.get_or_insert(at);
            self.last_content = Some(at);
            self.content_events += 1;
        }
        if let Some(usage) = seen.usage {
            merge(&mut self.usage, usage);
        }
        self.done |= seen.done;
        self.finished |= seen.finished;
        self.error = self.error.or(seen.error);
    }
}

/// State of the event being read: whether its bytes are withheld.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WithholdState {
    /// Between events, or nothing is ever withheld.
    Idle,
    /// This event may be the one to remove.
    Undecided,
    /// This event passes.
    Passing,
}

/// Incremental reader of one stream.
#[derive(Debug)]
pub struct StreamReader {
    events: SseReader,
    view: StreamView,
}

/// Observations of the stream, and its withheld bytes.
#[derive(Debug)]
struct StreamView {
    dialect: Option<StreamDialect>,
    withhold_usage: bool,
    observed: StreamObservation,
    /// The last line ended an event that was removed.
    took_out: bool,
    hold: WithholdState,
    held: Vec<Bytes>,
}

impl StreamReader {
    /// Reader at the start of a stream. `withhold_usage`: remove the event that carries only usage.
    #[must_use]
    pub fn new(dialect: Option<StreamDialect>, withhold_usage: bool) -> Self {
        let view = StreamView {
            dialect,
            withhold_usage,
            observed: StreamObservation::default(),
            took_out: false,
            hold: WithholdState::Idle,
            held: Vec::new(),
        };
        Self { events: SseReader::default(), view }
    }

    /// Observations so far.
    #[must_use]
    pub const fn observed(&self) -> &StreamObservation {
        &self.view.observed
    }

    /// Format of the events.
    #[must_use]
    pub const fn dialect(&self) -> Option<StreamDialect> {
        self.view.dialect
    }

    /// Returns `true` if the bytes passed on so far end between two events, so that another event may follow.
    #[must_use]
    pub fn between_events(&self) -> bool {
        self.view.hold == WithholdState::Undecided || (self.events.is_between_events() && !self.view.observed.overlong)
    }

    /// Reads the next bytes, received at `at`. Bytes that may go on to the client are appended to `out`, without
    /// copying.
    pub fn push(&mut self, chunk: &Bytes, at: UnixMicros, out: &mut Vec<Bytes>) {
        if chunk.is_empty() {
            return;
        }
        // The parser was reset inside an event, so nothing after that can be parsed.
        if self.view.observed.overlong {
            out.push(chunk.clone());
            return;
        }
        let mut pass = ChunkCursor { view: &mut self.view, chunk, at, out, from: 0, hold_from: 0 };
        self.events.push(chunk, &mut pass);
        // A stream without the end of an event must not fill the memory.
        if self.events.kept_bytes() > MAX_EVENT {
            pass.view.observed.overlong = true;
            self.events.forget();
            pass.release();
        }
        // Slices of the engine's buffer, not copies: withholding needs no extra memory.
        if pass.view.hold == WithholdState::Undecided {
            pass.emit(pass.hold_from);
            pass.view.held.push(chunk.slice(pass.hold_from..));
        } else {
            pass.emit(chunk.len());
        }
    }

    /// Ends the stream: reads the rest after its last line end, and releases withheld bytes.
    pub fn finish(&mut self, at: UnixMicros, out: &mut Vec<Bytes>) {
        if self.view.observed.overlong {
            return;
        }
        let chunk = Bytes::new();
        self.events.finish(&mut ChunkCursor { view: &mut self.view, chunk: &chunk, at, out, from: 0, hold_from: 0 });
    }

    /// Drops withheld bytes: the stream broke inside an event.
    pub fn drop_withheld(&mut self) {
        self.view.held.clear();
    }
}

/// One chunk on its way through: the part of it that was not yet passed on, withheld or removed.
struct ChunkCursor<'a> {
    view: &'a mut StreamView,
    chunk: &'a Bytes,
    at: UnixMicros,
    out: &'a mut Vec<Bytes>,
    from: usize,
    /// Start of the withheld bytes in the chunk; 0 if they began in an earlier one.
    hold_from: usize,
}

impl ChunkCursor<'_> {
    fn emit(&mut self, to: usize) {
        if to > self.from {
            self.out.push(self.chunk.slice(self.from..to));
            self.from = to;
        }
    }

    fn release(&mut self) {
        if self.view.hold == WithholdState::Undecided {
            self.view.hold = WithholdState::Passing;
            self.out.append(&mut self.view.held);
        }
    }
}

impl SseSink for ChunkCursor<'_> {
    fn line_feed_belongs_to_last(&mut self) {
        // A `\r\n` split between two chunks: its `\n` belongs to the event that was removed.
        if self.view.took_out {
            self.from = 1;
        }
    }

    fn line_ends(&mut self) {
        // Only a `\n` directly after the removed event belongs to it.
        self.view.took_out = false;
    }

    fn line_begins(&mut self, first_byte: u8, position: usize) {
        // A comment (`:`) is not part of an event and passes at once, as keep-alives should.
        if self.view.withhold_usage && self.view.hold == WithholdState::Idle && first_byte != b':' {
            self.view.hold = WithholdState::Undecided;
            self.hold_from = position;
        }
    }

    /// Releases an event whose first data line is complete and is not usage. Only a JSON text that is spread over
    /// several data lines remains undecided until the event ends.
    fn line_read(&mut self, event: &SseEvent<'_>) {
        if self.view.hold != WithholdState::Undecided || event.data_lines != 1 {
            return;
        }
        let data = event.data.trim_ascii();
        let complete = !data.starts_with(b"{") || data.ends_with(b"}");
        if complete && !may_be_usage(data) {
            self.release();
        }
    }

    fn event_ends(&mut self, event: &SseEvent<'_>, next: usize) {
        let mut take_out = false;
        if event.data_lines > 0 {
            let seen = read_event(self.view.dialect, event.name, event.data);
            self.view.observed.observe(&seen, self.at);
            take_out = seen.only_usage;
        }
        if self.view.hold == WithholdState::Undecided && take_out {
            // Everything before the event passes, then the event is skipped.
            self.emit(self.hold_from);
            self.from = next;
            self.view.held.clear();
            self.view.took_out = true;
        } else {
            self.release();
        }
        self.view.hold = WithholdState::Idle;
    }
}

#[cfg(test)]
mod tests;
