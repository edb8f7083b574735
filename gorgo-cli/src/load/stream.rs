//! Scan of the answer's event stream for three things: when content came, what the engine counted, and how it ended.
//!
//! The router's own reader finds the events and memmem searches them; only the one with the usage object is parsed. An
//! event has content if it has a text that is not empty (`content`, `reasoning_content`, `reasoning`, `text`) or a tool
//! call; a role chunk or a finish reason is no content.

use gorgo_routing::model::TokenUsage;
use gorgo_routing::parse::sse::{SseEvent, SseReader, SseSink};
use memchr::memmem;
use serde::Deserialize;

/// Longest incomplete event that is kept, bytes. An event is one token's worth of text; anything longer is an endless
/// answer that is not an event stream.
const LONGEST_EVENT: usize = 4 << 20;

/// Keys whose text is content.
const TEXT_KEYS: [&[u8]; 4] = [b"\"content\"", b"\"reasoning_content\"", b"\"text\"", b"\"reasoning\""];

/// An event stream as it is read, and its contents so far.
#[derive(Debug, Default)]
pub(crate) struct StreamScan {
    events: SseReader,
    /// Contents so far.
    pub(crate) said: StreamSaid,
    /// True once an event was too long for a stream.
    pub(crate) overlong: bool,
}

/// Contents of the events of a stream.
#[derive(Debug, Default)]
pub(crate) struct StreamSaid {
    /// Events with content.
    pub(crate) content_events: u32,
    /// Token counts of the engine.
    pub(crate) usage: TokenUsage,
    /// True once `[DONE]` came.
    pub(crate) done: bool,
    /// Message of the first error event.
    pub(crate) error: Option<String>,
}

impl SseSink for StreamSaid {
    fn event_ends(&mut self, event: &SseEvent<'_>, _next: usize) {
        if event.data_lines > 0 {
            self.event(event.data.trim_ascii());
        }
    }
}

impl StreamScan {
    /// Reads the next bytes, cut anywhere. Returns true if an event that ended in them had content.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> bool {
        // The moment of a token is when its event is complete, so events are counted, not bytes.
        let before = self.said.content_events;
        self.events.push(bytes, &mut self.said);
        // Without this limit a server that never ends a line would fill the memory of the load generator.
        if self.events.kept_bytes() > LONGEST_EVENT {
            self.overlong = true;
            self.events.forget();
        }
        self.said.content_events != before
    }

    /// Ends the stream: bytes after the last line end count as well. Returns true if they were content.
    pub(crate) fn finish(&mut self) -> bool {
        let before = self.said.content_events;
        self.events.finish(&mut self.said);
        self.said.content_events != before
    }
}

impl StreamSaid {
    /// Contents of an answer that came as one JSON document. Counts as one event, whatever it contains.
    pub(crate) fn of_whole(body: &[u8]) -> Self {
        let mut said = Self::default();
        said.event(body.trim_ascii());
        said.done = serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok();
        said
    }

    fn event(&mut self, data: &[u8]) {
        if data == b"[DONE]" {
            self.done = true;
        // Only at the start of the event: there it is the document's own key, whatever the rest contains.
        } else if data.starts_with(b"{\"error\"") || data.starts_with(b"{\"object\":\"error\"") {
            self.error.get_or_insert_with(|| message(data));
        } else {
            if has_content(data) {
                self.content_events = self.content_events.saturating_add(1);
            }
            // Chunks before the last have `"usage":null`, so this parses about one event of a stream.
            if has_value(data, b"\"usage\"", |value| value.starts_with(b"{")) {
                self.read_usage(data);
            }
        }
    }

    fn read_usage(&mut self, data: &[u8]) {
        if let Ok(UsageEvent { usage: Some(usage) }) = serde_json::from_slice(data) {
            // If several events have counts, later ones replace earlier ones, and a missing count keeps the one before.
            self.usage = TokenUsage {
                prompt_tokens: usage.prompt_tokens.or(self.usage.prompt_tokens),
                cached_tokens: usage
                    .prompt_tokens_details
                    .and_then(|details| details.cached_tokens)
                    .or(self.usage.cached_tokens),
                completion_tokens: usage.completion_tokens.or(self.usage.completion_tokens),
            };
        }
    }
}

#[derive(Deserialize)]
struct UsageEvent {
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct WireUsage {
    prompt_tokens: Option<u32>,
    completion_tokens: Option<u32>,
    prompt_tokens_details: Option<WireDetails>,
}

#[derive(Deserialize)]
struct WireDetails {
    cached_tokens: Option<u32>,
}

fn has_content(data: &[u8]) -> bool {
    let text = |value: &[u8]| value.starts_with(b"\"") && !value.starts_with(b"\"\"");
    // Engines send an empty `tool_calls` list in chunks that call no tool.
    let list =
        |value: &[u8]| value.strip_prefix(b"[").is_some_and(|inside| !inside.trim_ascii_start().starts_with(b"]"));
    TEXT_KEYS.iter().any(|key| has_value(data, key, text)) || has_value(data, b"\"tool_calls\"", list)
}

/// True if the key (quotes included) occurs with a value that passes. Inside a JSON text its quotes would be escaped,
/// so generated text is never mistaken for a key.
fn has_value(data: &[u8], key: &[u8], passes: impl Fn(&[u8]) -> bool) -> bool {
    memmem::find_iter(data, key).any(|at| {
        let after = data.get(at + key.len()..).unwrap_or_default().trim_ascii_start();
        after.strip_prefix(b":").is_some_and(|value| passes(value.trim_ascii_start()))
    })
}

/// Message of an error body or event: `error.message`, `error`, `message` or `detail` if it is JSON with one of those,
/// else the text itself; cut to a line that fits a report.
pub(crate) fn message(body: &[u8]) -> String {
    const LONGEST: usize = 200;
    let json: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let said = json.as_ref().and_then(|json| {
        let places = ["/error/message", "/error", "/message", "/detail"];
        places.iter().find_map(|place| json.pointer(place)?.as_str())
    });
    let text = said.map_or_else(|| String::from_utf8_lossy(body), Into::into);
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    const CHAT: &str = concat!(
        ": keep-alive\n\n",
        "data: {\"id\":\"1\",\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],\"usage\":null}\r\n\r\n",
        "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\": {\"content\": \"a \\\"text\\\":\\\"b\"}}]}\n\n",
        "data:{\"choices\":[{\"delta\":{\"content\":null,\"tool_calls\":[{\"index\":0}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[]},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":3,\"total_tokens\":15,",
        "\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\n",
        "data: [DONE]\n\n",
    );

    fn scan_in_pieces(text: &str, piece: usize) -> StreamSaid {
        let mut scan = StreamScan::default();
        for piece in text.as_bytes().chunks(piece.max(1)) {
            scan.feed(piece);
        }
        scan.said
    }

    #[test]
    fn content_is_text_reasoning_or_a_tool_call_and_nothing_else() {
        let scan = scan_in_pieces(CHAT, usize::MAX);
        assert_eq!((scan.content_events, scan.done, scan.error.as_deref()), (3, true, None));
        let usage = TokenUsage { prompt_tokens: Some(12), cached_tokens: Some(8), completion_tokens: Some(3) };
        assert_eq!(scan.usage, usage);
    }

    #[test]
    fn feed_says_when_content_came() {
        let mut scan = StreamScan::default();
        assert!(
            !scan.feed(b"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\ndata: {\"cho")
        );
        assert!(!scan.feed(b"ices\":[{\"text\":\"a\"}]}\n"));
        assert!(scan.feed(b"\n"));
        assert!(!scan.feed(b": comment\n\ndata: {\"choices\":[{\"text\":\"b\"}]}"));
        assert!(scan.finish());
    }

    #[test]
    fn error_events_keep_their_words() {
        let scan = scan_in_pieces("data: {\"error\":{\"message\":\"engine  died\",\"type\":\"x\"}}\n\n", 7);
        assert_eq!((scan.error.as_deref(), scan.done, scan.content_events), (Some("engine died"), false, 0));
        assert_eq!(message(b"<html>\n no </html>"), "<html> no </html>");
        assert_eq!(message(b"{\"detail\":\"Not Found\"}"), "Not Found");
        assert_eq!(message("é".repeat(300).as_bytes()).chars().count(), 201);
    }

    #[test]
    fn an_endless_event_is_not_kept() {
        let mut scan = StreamScan::default();
        for _ in 0..5 {
            scan.feed(&vec![b'x'; 1 << 20]);
        }
        assert!(scan.overlong);
        assert!(scan.events.kept_bytes() <= LONGEST_EVENT);
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(3), failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn where_the_bytes_are_cut_does_not_matter(piece in 1_usize..200) {
            let (whole, cut) = (scan_in_pieces(CHAT, usize::MAX), scan_in_pieces(CHAT, piece));
            prop_assert_eq!((whole.content_events, whole.usage, whole.done), (cut.content_events, cut.usage, cut.done));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1_usize..50) {
            let mut scan = StreamScan::default();
            for piece in bytes.chunks(piece) {
                scan.feed(piece);
            }
            scan.said.event(&[b"{\"usage\":{", bytes.as_slice()].concat());
            let _ = message(&bytes);
        }
    }
}
