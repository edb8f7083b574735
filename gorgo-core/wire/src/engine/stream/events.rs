//! Reads one event of a stream: generated content, an end, an error, usage.
//!
//! Most events are only scanned for a few keys: an unescaped quote cannot occur inside a JSON string, so `"content"`
//! followed by a colon is always that member. Only events with a usage object or an error are parsed.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde_json::Value;

use crate::engine::stream::usage::EventEnvelope;
use gorgo_routing::model::{ApiPath, TokenUsage};

/// Format of a stream's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamDialect {
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/completions`
    Completions,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/messages`
    Messages,
    /// SGLang's `POST /generate`
    Generate,
}

impl StreamDialect {
    /// Format of an API; `None` if it has none that gorgo reads.
    #[must_use]
    pub const fn of(path: ApiPath) -> Option<Self> {
        match path {
            ApiPath::ChatCompletions => Some(Self::Chat),
            ApiPath::Completions => Some(Self::Completions),
            ApiPath::Responses => Some(Self::Responses),
            ApiPath::Messages => Some(Self::Messages),
            ApiPath::Generate => Some(Self::Generate),
            ApiPath::Embeddings | ApiPath::Other => None,
        }
    }
}

/// Error that arrived as an event, in a stream that had begun with 200.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamError {
    /// HTTP status that the event names, if any.
    pub code: Option<u16>,
}

/// Summary of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::engine) struct EventSummary {
    /// Has generated content.
    pub(in crate::engine) content: bool,
    /// Reports that generation ended.
    pub(in crate::engine) finished: bool,
    /// Marks the end of the stream.
    pub(in crate::engine) done: bool,
    /// Reports an error.
    pub(in crate::engine) error: Option<StreamError>,
    /// Has token counts.
    pub(in crate::engine) usage: Option<TokenUsage>,
    /// Has token counts and nothing else.
    pub(in crate::engine) only_usage: bool,
}

struct JsonKey(LazyLock<Finder<'static>>);

macro_rules! keys {
    ($($name:ident = $text:literal;)*) => { $(static $name: JsonKey = JsonKey(LazyLock::new(|| Finder::new($text)));)* };
}

keys! {
    AUDIO = "\"audio\"";
    CONTENT = "\"content\"";
    DELTA = "\"delta\"";
    ERROR = "\"error\"";
    FINISH_REASON = "\"finish_reason\"";
    FUNCTION_CALL = "\"function_call\"";
    META_INFO = "\"meta_info\"";
    OBJECT_ERROR = "\"object\"";
    OUTPUT_IDS = "\"output_ids\"";
    PARTIAL_JSON = "\"partial_json\"";
    REASONING = "\"reasoning\"";
    REASONING_CONTENT = "\"reasoning_content\"";
    REFUSAL = "\"refusal\"";
    STOP_REASON = "\"stop_reason\"";
    TEXT = "\"text\"";
    THINKING = "\"thinking\"";
    TOOL_CALLS = "\"tool_calls\"";
    TYPE = "\"type\"";
    USAGE = "\"usage\"";
}

impl JsonKey {
    /// Values of this member, first to last.
    fn values<'a>(&'a self, json: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + 'a {
        let finder = &*self.0;
        let mut from = 0;
        std::iter::from_fn(move || {
            loop {
                let key = json.get(from..)?;
                let after = from + finder.find(key)? + finder.needle().len();
                from = after;
                // Without a colon it is a string value, not a key.
                if let Some(b':') = json[after..].trim_ascii_start().first() {
                    return Some(json[after..].trim_ascii_start()[1..].trim_ascii_start());
                }
            }
        })
    }

    /// Returns `true` if the member occurs with a value that is not null, false, empty or a number.
    fn filled(&self, json: &[u8]) -> bool {
        self.values(json).any(|value| match value {
            [b'"', rest @ ..] => !rest.starts_with(b"\""),
            [b'[', rest @ ..] => !rest.trim_ascii_start().starts_with(b"]"),
            [b'{', rest @ ..] => !rest.trim_ascii_start().starts_with(b"}"),
            _ => false,
        })
    }

    /// Returns `true` if the member occurs with an object as its value.
    fn object(&self, json: &[u8]) -> bool {
        self.values(json).any(|value| value.starts_with(b"{"))
    }

    /// Returns `true` if the member occurs with exactly this string as its value.
    fn is(&self, json: &[u8], text: &[u8]) -> bool {
        self.values(json).any(|value| {
            value
                .strip_prefix(b"\"")
                .and_then(|value| value.strip_prefix(text))
                .is_some_and(|rest| rest.starts_with(b"\""))
        })
    }
}

/// Returns `true` if an event with this data could be the extra usage chunk. Cheap; may err towards `true`.
pub(in crate::engine) fn may_be_usage(data: &[u8]) -> bool {
    USAGE.object(data)
}

/// Reads one event. `name` is its `event:` field, empty if there is none.
pub(in crate::engine) fn read_event(dialect: Option<StreamDialect>, name: &[u8], data: &[u8]) -> EventSummary {
    let mut seen = EventSummary::default();
    // The end marker of OpenAI's streams is no JSON.
    if data.trim_ascii() == b"[DONE]" {
        seen.done = true;
        return seen;
    }
    let named = |kind: &[u8]| name == kind || (name.is_empty() && TYPE.is(data, kind));
    match dialect {
        Some(StreamDialect::Chat) => {
            // Any of these counts: which member carries content depends on the model and on the engine's parsers.
            seen.content = [&CONTENT, &REASONING_CONTENT, &REASONING, &TOOL_CALLS, &REFUSAL, &FUNCTION_CALL, &AUDIO]
                .into_iter()
                .any(|key| key.filled(data));
            seen.finished = FINISH_REASON.filled(data);
        }
        Some(StreamDialect::Completions) => {
            seen.content = TEXT.filled(data);
            seen.finished = FINISH_REASON.filled(data);
        }
        Some(StreamDialect::Generate) => {
            seen.content = TEXT.filled(data) || OUTPUT_IDS.filled(data);
            seen.finished = FINISH_REASON.filled(data);
        }
        Some(StreamDialect::Messages) => {
            seen.content = (named(b"content_block_delta")
                // The start of a tool call is generated content, although its arguments follow later.
                && [&TEXT, &THINKING, &PARTIAL_JSON].into_iter().any(|key| key.filled(data)))
                || (named(b"content_block_start") && TYPE.is(data, b"tool_use"));
            seen.done = named(b"message_stop");
            seen.finished = seen.done || (named(b"message_delta") && STOP_REASON.filled(data));
        }
        Some(StreamDialect::Responses) => {
            // Without an `event:` field the kind is in the member `type`.
            let kind_is_delta = if name.is_empty() {
                TYPE.values(data).any(|value| {
                    let kind = value.get(1..).unwrap_or_default();
                    kind.split(|byte| *byte == b'"').next().is_some_and(|kind| kind.ends_with(b".delta"))
                })
            } else {
                name.ends_with(b".delta")
            };
            seen.content = kind_is_delta && DELTA.filled(data);
            seen.finished = named(b"response.completed") || named(b"response.incomplete");
            seen.done = seen.finished;
        }
        None => {}
    }
    let failed = name == b"error" || ERROR.filled(data) || OBJECT_ERROR.is(data, b"error") || TYPE.is(data, b"error");
    // SGLang repeats `meta_info` in every event; the last one counts.
    let counted = USAGE.object(data) || (seen.finished && META_INFO.object(data));
    if (failed || counted)
        && let Some(envelope) = EventEnvelope::parse(data)
    {
        if failed {
            // Generated text can look like an error, so the members decide unless the event's name says it.
            seen.error = error_of(&envelope, name == b"error" || !ERROR.filled(data));
        }
        if counted {
            seen.usage = Some(envelope.usage()).filter(|usage| *usage != TokenUsage::default());
            // Only these two APIs send usage in an extra chunk, so only there may an event be removed.
            let extra_chunk = matches!(dialect, Some(StreamDialect::Chat | StreamDialect::Completions));
            seen.only_usage = extra_chunk && seen.error.is_none() && envelope.only_usage();
        }
    } else if failed && name == b"error" {
        // Not JSON, but named `error`: still an error.
        seen.error = Some(StreamError { code: None });
    }
    seen
}

/// Error of an event. `certain`: the event reports it by its name or type, whatever its members.
fn error_of(envelope: &EventEnvelope<'_>, certain: bool) -> Option<StreamError> {
    let named = envelope.error.clone().filter(|error| !error.is_null()).or_else(|| envelope.nested_error());
    if named.is_none() && !certain {
        return None;
    }
    let status = |value: &Value| value.as_u64().and_then(|code| u16::try_from(code).ok());
    let code = named
        .as_ref()
        .and_then(|error| error.get("code").and_then(status).or_else(|| error.get("status").and_then(status)))
        .or_else(|| envelope.code.as_ref().and_then(status))
        .filter(|code| (400..600).contains(code));
    Some(StreamError { code })
}
