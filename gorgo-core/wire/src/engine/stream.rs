//! Reads server-sent events as they pass, whatever the chunking and the line ends, and passes the bytes on.
//!
//! Every byte goes on as it came, with one exception: when gorgo asked the engine for usage and the client did not, the
//! event that carries nothing but usage is taken out. For that alone bytes are held back, at most those of one
//! event that is not decided yet; the event is let go as soon as a complete line shows that it is another one.
//!
//! Pure: bytes and moments in, bytes and observations out. Source: the WHATWG text on server-sent events (line ends
//! LF, CRLF and CR, comments, several `data:` lines, one optional space after the colon).

use std::mem;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use memchr::memchr2;

use super::stream_events::{Dialect, Seen, StreamError, look, may_be_usage};
use super::stream_gaps::Gaps;
use super::stream_usage::merge;
use gorgo_routing::model::{At, Usage};

/// An event longer than this is not read any more, and nothing after it; its bytes still pass. Bytes.
const MAX_EVENT: usize = 8 << 20;

/// What was seen of a stream so far.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// First generated content of any kind; a role or an empty delta is none.
    pub first_content: Option<At>,
    /// Last generated content.
    pub last_content: Option<At>,
    /// Events with generated content.
    pub content_events: u64,
    /// Gaps between them.
    pub gaps: Gaps,
    /// What the engine counted.
    pub usage: Usage,
    /// The stream's end marker came (`[DONE]`, `message_stop`, `response.completed`).
    pub done: bool,
    /// Generation said that it ended (a finish reason).
    pub finished: bool,
    /// The first error event.
    pub error: Option<StreamError>,
    /// An event was too long to read; nothing after it was observed.
    pub unread: bool,
}

impl Observed {
    /// Mean time between tokens: (last − first content) / (tokens − 1); `None` for fewer than two tokens, and where the
    /// engine did not count them.
    #[must_use]
    pub fn mean_gap(&self) -> Option<Duration> {
        let between = self.usage.completion_tokens?.checked_sub(1).filter(|count| *count > 0)?;
        Some(self.last_content?.since(self.first_content?) / between)
    }

    fn take(&mut self, seen: &Seen, at: At) {
        if seen.content {
            if let Some(last) = self.last_content {
                self.gaps.push(at.since(last));
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

/// Whether the bytes of the event being read wait for a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// Between events, or nothing is ever held.
    Idle,
    /// This event may be the one to take out.
    Undecided,
    /// This event passes.
    Passing,
}

/// An incremental reader of one stream.
#[derive(Debug)]
pub struct StreamReader {
    dialect: Option<Dialect>,
    withhold_usage: bool,
    observed: Observed,
    /// The line that the last chunk ended in.
    line: Vec<u8>,
    /// The event's data, where it is not one line within the present chunk.
    data: Vec<u8>,
    data_lines: usize,
    name: Vec<u8>,
    /// A field of an event was read and no blank line since.
    in_event: bool,
    /// The last chunk ended in CR: an LF at the head of the next one belongs to it.
    after_cr: bool,
    /// The last line ended an event that was taken out.
    took_out: bool,
    first_line: bool,
    hold: Hold,
    held: Vec<Bytes>,
}

impl StreamReader {
    /// A reader at the head of a stream. `withhold_usage`: take out the event that carries nothing but usage.
    #[must_use]
    pub fn new(dialect: Option<Dialect>, withhold_usage: bool) -> Self {
        Self {
            dialect,
            withhold_usage,
            observed: Observed::default(),
            line: Vec::new(),
            data: Vec::new(),
            data_lines: 0,
            name: Vec::new(),
            in_event: false,
            after_cr: false,
            took_out: false,
            first_line: true,
            hold: Hold::Idle,
            held: Vec::new(),
        }
    }

    /// What was seen so far.
    #[must_use]
    pub const fn observed(&self) -> &Observed {
        &self.observed
    }

    /// The shape of the events.
    #[must_use]
    pub const fn dialect(&self) -> Option<Dialect> {
        self.dialect
    }

    /// Whether the bytes passed on so far end between two events, so that another event may follow.
    #[must_use]
    pub fn between_events(&self) -> bool {
        self.hold == Hold::Undecided || (!self.in_event && self.line.is_empty() && !self.observed.unread)
    }

    /// Reads the next bytes, received `at`. What may go on to the client is appended to `out`, without copying.
    pub fn push(&mut self, chunk: &Bytes, at: At, out: &mut Vec<Bytes>) {
        if chunk.is_empty() {
            return;
        }
        if self.observed.unread {
            out.push(chunk.clone());
            return;
        }
        let mut pass = Pass { chunk, from: 0, hold_from: 0 };
        let mut position = 0;
        if mem::take(&mut self.after_cr) && chunk[0] == b'\n' {
            position = 1;
            if self.took_out {
                pass.from = 1;
            }
        }
        let mut single: Option<Range<usize>> = None;
        while let Some(offset) = memchr2(b'\n', b'\r', &chunk[position..]) {
            let end = position + offset;
            let mut next = end + 1;
            if chunk[end] == b'\r' {
                match chunk.get(next) {
                    Some(b'\n') => next += 1,
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            self.took_out = false;
            if self.line.is_empty() && position == end {
                self.end_of_event(single.take(), next, at, &mut pass, out);
            } else if self.line.is_empty() {
                self.begin_hold(chunk[position], position, &mut pass);
                self.field(&mut single, Some(position), chunk, &chunk[position..end]);
                self.let_go_if_decided(&single, chunk, out);
            } else {
                let mut line = mem::take(&mut self.line);
                line.extend_from_slice(&chunk[position..end]);
                self.field(&mut single, None, chunk, &line);
                line.clear();
                self.line = line;
                self.let_go_if_decided(&single, chunk, out);
            }
            position = next;
        }
        if position < chunk.len() {
            if self.line.is_empty() {
                self.begin_hold(chunk[position], position, &mut pass);
            }
            self.line.extend_from_slice(&chunk[position..]);
        }
        if let Some(range) = single {
            self.data.extend_from_slice(&chunk[range]);
        }
        if self.line.len() + self.data.len() > MAX_EVENT {
            self.observed.unread = true;
            self.line = Vec::new();
            self.data = Vec::new();
            self.release(out);
        }
        if self.hold == Hold::Undecided {
            pass.emit(pass.hold_from, out);
            self.held.push(chunk.slice(pass.hold_from..));
        } else {
            pass.emit(chunk.len(), out);
        }
    }

    /// The stream ended: reads what stands after its last line end, and lets go what is still held.
    ///
    /// A complete event without its closing blank line counts; the text is stricter, engines are not.
    pub fn finish(&mut self, at: At, out: &mut Vec<Bytes>) {
        if self.observed.unread {
            return;
        }
        let line = mem::take(&mut self.line);
        let none = Bytes::new();
        if !line.is_empty() {
            self.field(&mut None, None, &none, &line);
        }
        self.end_of_event(None, 0, at, &mut Pass { chunk: &none, from: 0, hold_from: 0 }, out);
    }

    /// Drops what is held: the stream broke inside an event.
    pub fn drop_held(&mut self) {
        self.held.clear();
    }

    fn begin_hold(&mut self, first_byte: u8, position: usize, pass: &mut Pass<'_>) {
        if self.withhold_usage && self.hold == Hold::Idle && first_byte != b':' {
            self.hold = Hold::Undecided;
            pass.hold_from = position;
        }
    }

    /// Reads one line that is not blank. `start`: where in the chunk it stands, where it stands wholly in it.
    fn field(&mut self, single: &mut Option<Range<usize>>, start: Option<usize>, chunk: &[u8], line: &[u8]) {
        let mut line = line;
        let mut skipped = 0;
        if mem::take(&mut self.first_line)
            && let Some(rest) = line.strip_prefix(b"\xef\xbb\xbf")
        {
            (line, skipped) = (rest, 3);
        }
        if line.first().is_none_or(|byte| *byte == b':') {
            return;
        }
        self.in_event = true;
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let mut value_at = (colon + 1).min(line.len());
        if line.get(value_at) == Some(&b' ') {
            value_at += 1;
        }
        let value = &line[value_at..];
        match &line[..colon] {
            b"data" => {
                self.data_lines += 1;
                match start {
                    Some(start) if self.data_lines == 1 => {
                        let from = start + skipped + value_at;
                        *single = Some(from..from + value.len());
                    }
                    _ => {
                        if let Some(range) = single.take() {
                            self.data.extend_from_slice(&chunk[range]);
                        }
                        if self.data_lines > 1 {
                            self.data.push(b'\n');
                        }
                        self.data.extend_from_slice(value);
                    }
                }
            }
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            _ => {}
        }
    }

    /// Lets an event go whose first data line is complete and is not usage. Only a JSON text spread over several data
    /// lines stays undecided until the event ends.
    fn let_go_if_decided(&mut self, single: &Option<Range<usize>>, chunk: &[u8], out: &mut Vec<Bytes>) {
        if self.hold != Hold::Undecided || self.data_lines != 1 {
            return;
        }
        let data = single.clone().map_or(&self.data[..], |range| &chunk[range]).trim_ascii();
        let complete = !data.starts_with(b"{") || data.ends_with(b"}");
        if complete && !may_be_usage(data) {
            self.release(out);
        }
    }

    fn release(&mut self, out: &mut Vec<Bytes>) {
        if self.hold == Hold::Undecided {
            self.hold = Hold::Passing;
            out.append(&mut self.held);
        }
    }

    /// A blank line: the event is complete. `next` is the byte of the chunk after the line's end.
    fn end_of_event(
        &mut self,
        single: Option<Range<usize>>,
        next: usize,
        at: At,
        pass: &mut Pass<'_>,
        out: &mut Vec<Bytes>,
    ) {
        let mut take_out = false;
        if self.data_lines > 0 {
            let data = single.map_or(&self.data[..], |range| &pass.chunk[range]);
            let seen = look(self.dialect, &self.name, data);
            self.observed.take(&seen, at);
            take_out = seen.only_usage;
        }
        if self.hold == Hold::Undecided && take_out {
            pass.emit(pass.hold_from, out);
            pass.from = next;
            self.held.clear();
            self.took_out = true;
        } else {
            self.release(out);
        }
        self.hold = Hold::Idle;
        self.data.clear();
        self.data_lines = 0;
        self.name.clear();
        self.in_event = false;
    }
}

/// The part of a chunk that was not passed on, held or taken out yet.
struct Pass<'a> {
    chunk: &'a Bytes,
    from: usize,
    /// Where in the chunk the held bytes begin; 0 where they began in an earlier one.
    hold_from: usize,
}

impl Pass<'_> {
    fn emit(&mut self, to: usize, out: &mut Vec<Bytes>) {
        if to > self.from {
            out.push(self.chunk.slice(self.from..to));
            self.from = to;
        }
    }
}

#[cfg(test)]
mod tests;
