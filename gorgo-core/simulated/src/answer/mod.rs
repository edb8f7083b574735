//! Answers in the format of each API: as one JSON body and as a stream of server-sent events.

mod chat;
mod completions;
mod embeddings;
mod generate;
mod messages;
mod responses;

use serde_json::{Value, json};

use super::settings::EngineDialect;
use gorgo_routing::model::ApiPath;

pub(super) use embeddings::embeddings;

/// Token counts of an answer, so far or at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TokenCounts {
    pub(super) prompt: u32,
    pub(super) cached: u32,
    pub(super) completion: u32,
}

impl TokenCounts {
    /// Returns the counts as OpenAI's chat and completions APIs report them.
    pub(super) fn usage(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt.saturating_add(self.completion),
            "prompt_tokens_details": { "cached_tokens": self.cached },
        })
    }
}

/// Properties of an answer that all formats have in common.
#[derive(Debug, Clone)]
pub(super) struct ResponseMetadata {
    /// Id, unique within this engine, without the prefix that each API puts before it.
    pub(super) id: String,
    pub(super) model: String,
    /// Time of creation, seconds since the epoch.
    pub(super) created_secs: u64,
    /// A stream ends with its token counts, if the API lets the client choose.
    pub(super) include_usage: bool,
    /// Finish reason: `stop`, or `length` if the client's own limit ended the answer.
    pub(super) reason: &'static str,
}

/// Answer format of one API. Only complete events are appended to `out`.
pub(super) trait ResponseFormat: Send {
    /// Appends the events before the first token; they are sent in the same write.
    fn open(&mut self, counts: TokenCounts, out: &mut String);
    /// Appends one token; `text` is ASCII and needs no escaping.
    fn token(&mut self, text: &str, counts: TokenCounts, out: &mut String);
    /// Appends everything that follows the last token.
    fn close(&mut self, counts: TokenCounts, out: &mut String);
    /// Returns the whole answer as one body.
    fn whole(&self, text: &str, counts: TokenCounts) -> Value;
}

/// Returns the answer format of an API that generates.
pub(super) fn response_format(api: ApiPath, subject: ResponseMetadata) -> Box<dyn ResponseFormat> {
    match api {
        ApiPath::Completions => Box::new(completions::CompletionsFormat::new(subject)),
        ApiPath::Responses => Box::new(responses::ResponsesFormat::new(subject)),
        ApiPath::Messages => Box::new(messages::MessagesFormat::new(subject)),
        ApiPath::Generate => Box::new(generate::GenerateFormat::new(subject)),
        ApiPath::ChatCompletions | ApiPath::Embeddings | ApiPath::Other => Box::new(chat::ChatFormat::new(subject)),
    }
}

/// Last event of OpenAI's and SGLang's own streams.
const DONE: &str = "data: [DONE]\n\n";

/// Appends an unnamed event.
fn event(data: &Value, out: &mut String) {
    out.push_str("data: ");
    out.push_str(&data.to_string());
    out.push_str("\n\n");
}

/// Appends a named event, as Anthropic and the Responses API use; the name is its `type`.
fn named_event(data: &Value, out: &mut String) {
    if let Some(name) = data["type"].as_str() {
        out.push_str("event: ");
        out.push_str(name);
        out.push('\n');
    }
    event(data, out);
}

/// Returns the body of a refusal.
pub(super) fn error(dialect: EngineDialect, status: u16, message: &str) -> Value {
    let kind = match status {
        400 => "BadRequestError",
        404 => "NotFoundError",
        413 => "RequestEntityTooLarge",
        503 => "ServiceUnavailableError",
        _ => "InternalServerError",
    };
    // SGLang puts the fields at the top level; vLLM nests them under `error`, like OpenAI.
    match dialect {
        EngineDialect::Sglang => {
            json!({ "object": "error", "message": message, "type": kind, "param": null, "code": status })
        }
        EngineDialect::Vllm => {
            json!({ "error": { "message": message, "type": kind, "param": null, "code": status } })
        }
    }
}

/// Appends an error in the middle of a stream, and the regular end of the stream. SGLang and vLLM do the same.
pub(super) fn error_event(status: u16, message: &str, out: &mut String) {
    let kind = "ServiceUnavailableError";
    event(&json!({ "error": { "message": message, "type": kind, "param": null, "code": status } }), out);
    out.push_str(DONE);
}

/// An event that differs from token to token only in the text: built once and split where the text goes.
struct EventTemplate {
    before: String,
    after: String,
}

/// Placeholder for the text while a template is built; control characters keep it distinct from any model name.
const PLACE: &str = "\u{1}text\u{1}";

impl EventTemplate {
    /// Creates a template from an event with [`PLACE`] where the text goes.
    fn new(event: &str) -> Self {
        // serde_json writes the control characters as escapes.
        let (before, after) = event.split_once("\\u0001text\\u0001").unwrap_or((event, ""));
        Self { before: before.to_owned(), after: after.to_owned() }
    }

    fn write(&self, text: &str, out: &mut String) {
        out.push_str(&self.before);
        out.push_str(text);
        out.push_str(&self.after);
    }
}
