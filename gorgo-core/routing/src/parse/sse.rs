//! Parser of server-sent events from bytes that arrive in pieces, whatever the chunking and the line ends.
//!
//! Pure, and independent of what events mean: the wire reads engines' answers with it, and `gorgo replay` its own.
//! Source: the WHATWG standard on server-sent events (line ends LF, CRLF and CR, comments, several `data:` lines, one
//! optional space after the colon, one byte order mark at the start).

use std::mem;
use std::ops::Range;

use memchr::{memchr, memchr2};

/// Event as far as it has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// Value of the `event:` field; empty if it has none.
    pub name: &'a [u8],
    /// Data lines, joined by LF.
    pub data: &'a [u8],
    /// Number of `data:` lines; 0 means only fields or blank lines, which is no event.
    pub data_lines: usize,
}

/// Receiver of what a reader finds. Positions are bytes of the piece that is being read.
pub trait SseSink {
    /// The piece begins with the LF of a CRLF whose CR ended the piece before.
    fn line_feed_belongs_to_last(&mut self) {}

    /// A line that is not blank begins here, with this byte.
    fn line_begins(&mut self, _first_byte: u8, _position: usize) {}

    /// A line that is not blank has been read to its end; this is the event so far.
    fn line_read(&mut self, _event: &SseEvent<'_>) {}

    /// A line has ended, blank or not; called before its content is processed.
    fn line_ends(&mut self) {}

    /// A blank line was read: this event is complete. `next` is the position of the next line.
    fn event_ends(&mut self, event: &SseEvent<'_>, next: usize);
}

/// Incremental reader of one stream.
#[derive(Debug)]
pub struct SseReader {
    /// Line in which the last piece ended.
    line: Vec<u8>,
    /// Data of the event, unless it is one line within the present piece.
    data: Vec<u8>,
    data_lines: usize,
    name: Vec<u8>,
    /// True if a field of an event was read and no blank line since.
    in_event: bool,
    /// True if the last piece ended in CR: an LF at the head of the next one belongs to it.
    after_cr: bool,
    first_line: bool,
}

impl Default for SseReader {
    fn default() -> Self {
        Self {
            line: Vec::new(),
            data: Vec::new(),
            data_lines: 0,
            name: Vec::new(),
            in_event: false,
            after_cr: false,
            first_line: true,
        }
    }
}

impl SseReader {
    /// Returns true if the bytes so far end between two events.
    #[must_use]
    pub const fn is_between_events(&self) -> bool {
        !self.in_event && self.line.is_empty()
    }

    /// Number of bytes kept of an event that has not ended. The caller must limit them: streams do not.
    #[must_use]
    pub const fn kept_bytes(&self) -> usize {
        self.line.len() + self.data.len()
    }

    /// Drops the bytes kept of the line and of the data of its event.
    pub fn forget(&mut self) {
        self.line = Vec::new();
        self.data = Vec::new();
    }

    /// Reads the next piece, cut at any byte.
    pub fn push(&mut self, piece: &[u8], sink: &mut impl SseSink) {
        let Some(first_byte) = piece.first() else { return };
        let mut position = 0;
        if mem::take(&mut self.after_cr) && *first_byte == b'\n' {
            position = 1;
            sink.line_feed_belongs_to_last();
        }
        // The event's data if it is one line within this piece: then nothing is copied.
        let mut single: Option<Range<usize>> = None;
        while let Some(offset) = memchr2(b'\n', b'\r', &piece[position..]) {
            let end = position + offset;
            let mut next = end + 1;
            // A CR at the end of the piece may be half of a CRLF, which only the next piece shows.
            if piece[end] == b'\r' {
                match piece.get(next) {
                    Some(b'\n') => next += 1,
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            sink.line_ends();
            if self.line.is_empty() && position == end {
                self.end_event(single.take(), piece, next, sink);
            } else if self.line.is_empty() {
                sink.line_begins(piece[position], position);
                self.field(&mut single, Some(position), piece, &piece[position..end]);
                sink.line_read(&self.event(&single, piece));
            } else {
                // The buffer is taken out and put back, so that its allocation is reused.
                let mut line = mem::take(&mut self.line);
                line.extend_from_slice(&piece[position..end]);
                self.field(&mut single, None, piece, &line);
                line.clear();
                self.line = line;
                sink.line_read(&self.event(&single, piece));
            }
            position = next;
        }
        if position < piece.len() {
            if self.line.is_empty() {
                sink.line_begins(piece[position], position);
            }
            self.line.extend_from_slice(&piece[position..]);
        }
        // The piece is about to go away, so the data that was borrowed from it is copied now.
        if let Some(range) = single {
            self.data.extend_from_slice(&piece[range]);
        }
    }

    /// Reads the bytes after the last line end, once the stream has ended.
    ///
    /// A complete event without its closing blank line counts; the standard is stricter, engines are not.
    pub fn finish(&mut self, sink: &mut impl SseSink) {
        let line = mem::take(&mut self.line);
        if !line.is_empty() {
            self.field(&mut None, None, &[], &line);
        }
        self.end_event(None, &[], 0, sink);
    }

    fn event<'a>(&'a self, single: &Option<Range<usize>>, piece: &'a [u8]) -> SseEvent<'a> {
        let data = single.clone().map_or(&self.data[..], |range| &piece[range]);
        SseEvent { name: &self.name, data, data_lines: self.data_lines }
    }

    fn end_event(&mut self, single: Option<Range<usize>>, piece: &[u8], next: usize, sink: &mut impl SseSink) {
        sink.event_ends(&self.event(&single, piece), next);
        self.data.clear();
        self.data_lines = 0;
        self.name.clear();
        self.in_event = false;
    }

    /// Reads one line that is not blank. `start`: its position in the piece, if it lies completely within it.
    fn field(&mut self, single: &mut Option<Range<usize>>, start: Option<usize>, piece: &[u8], line: &[u8]) {
        let mut line = line;
        let mut skipped = 0;
        if mem::take(&mut self.first_line)
            && let Some(rest) = line.strip_prefix(b"\xef\xbb\xbf")
        {
            (line, skipped) = (rest, 3);
        }
        // A comment (or a line that held only a byte order mark) belongs to no event.
        if line.first().is_none_or(|byte| *byte == b':') {
            return;
        }
        self.in_event = true;
        let colon = memchr(b':', line).unwrap_or(line.len());
        let mut value_at = (colon + 1).min(line.len());
        // Exactly one space after the colon is not part of the value.
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
                            self.data.extend_from_slice(&piece[range]);
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
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    /// Events with data: name, data, number of data lines.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Kept(Vec<(Vec<u8>, Vec<u8>, usize)>);

    impl SseSink for Kept {
        fn event_ends(&mut self, event: &SseEvent<'_>, _: usize) {
            if event.data_lines > 0 {
                self.0.push((event.name.to_vec(), event.data.to_vec(), event.data_lines));
            }
        }
    }

    fn read<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> Kept {
        let (mut reader, mut kept) = (SseReader::default(), Kept::default());
        for piece in pieces {
            reader.push(piece, &mut kept);
        }
        reader.finish(&mut kept);
        assert!(reader.is_between_events() && reader.kept_bytes() == 0);
        kept
    }

    fn event(name: &str, data: &str, data_lines: usize) -> (Vec<u8>, Vec<u8>, usize) {
        (name.into(), data.into(), data_lines)
    }

    #[test]
    fn events_are_read_as_the_text_has_it() {
        let text = "\u{feff}data: one\n\n: comment\n\nid: 7\n\nevent: named\ndata:two\r\ndata:  three\r\n\r\ndata\rother: x\r\r\
                    data: left open";
        let expected =
            [event("", "one", 1), event("named", "two\n three", 2), event("", "", 1), event("", "left open", 1)];
        assert_eq!(read([text.as_bytes()]).0, expected);
    }

    #[test]
    fn what_is_kept_is_known_and_can_be_forgotten() {
        let (mut reader, mut kept) = (SseReader::default(), Kept::default());
        reader.push(b"data: one\ndata: tw", &mut kept);
        assert_eq!((reader.kept_bytes(), reader.is_between_events()), (11, false));
        reader.forget();
        assert_eq!(reader.kept_bytes(), 0);
    }

    /// One line of a stream: legal and less legal forms.
    fn line() -> impl Strategy<Value = String> {
        prop_oneof![
            Just(String::new()),
            Just(": comment".to_owned()),
            Just("event: message".to_owned()),
            Just("data: {\"a\":1}".to_owned()),
            Just("data:x".to_owned()),
            Just("data".to_owned()),
            Just("data: [DONE]".to_owned()),
            "[a-z:\u{e9}\u{feff}\" ]{0,12}",
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: RngSeed::Fixed(23), failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn any_split_of_the_bytes_gives_the_same_events(
            lines in prop::collection::vec((line(), prop_oneof![Just("\n"), Just("\r\n"), Just("\r")]), 0..24),
            cuts in prop::collection::vec(0_usize..4096, 0..24),
        ) {
            let text: String = lines.iter().map(|(line, end)| format!("{line}{end}")).collect();
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
            places.extend([0, text.len()]);
            places.sort_unstable();
            let pieces = places.windows(2).map(|ends| &text.as_bytes()[ends[0]..ends[1]]);
            prop_assert_eq!(read(pieces), read([text.as_bytes()]));
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), size in 1_usize..50) {
            prop_assert_eq!(read(bytes.chunks(size)), read([&bytes[..]]));
        }
    }
}
