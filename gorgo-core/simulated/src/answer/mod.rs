//! How each API words an answer: as one JSON body and as a stream of server-sent events.

mod chat;
mod completions;
mod embeddings;
mod generate;
mod messages;
mod responses;

use serde_json::{Value, json};

use super::settings::Dialect;
use gorgo_routing::model::ApiPath;

pub(super) use embeddings::embeddings;

/// Token counts of an answer, so far or at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    pub(super) prompt: u32,
    pub(super) cached: u32,
    pub(super) completion: u32,
}

impl Counts {
    /// As OpenAI's chat and completions report them.
    pub(super) fn usage(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt.saturating_add(self.completion),
            "prompt_tokens_details": { "cached_tokens": self.cached },
        })
    }
}

/// What all wordings of one answer have in common.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    /// Unique in this engine; the API's prefix goes before it.
    pub(super) id: String,
    pub(super) model: String,
    /// Seconds since the epoch.
    pub(super) created_secs: u64,
    /// Whether a stream is to end with its usage, where the API lets the client choose.
    pub(super) include_usage: bool,
    /// `stop`, or `length` where the client's own limit ended it.
    pub(super) reason: &'static str,
}

/// The wording of one API. Events are appended to `out`, whole.
pub(super) trait Wording: Send {
    /// What comes in the same write as the first token, before it.
    fn open(&mut self, counts: Counts, out: &mut String);
    /// One token; `text` is ASCII and needs no escaping.
    fn token(&mut self, text: &str, counts: Counts, out: &mut String);
    /// All that comes after the last token.
    fn close(&mut self, counts: Counts, out: &mut String);
    /// The same answer as one body.
    fn whole(&self, text: &str, counts: Counts) -> Value;
}

/// The wording of an API that generates.
pub(super) fn wording(api: ApiPath, subject: Subject) -> Box<dyn Wording> {
    match api {
        ApiPath::Completions => Box::new(completions::Completions::new(subject)),
        ApiPath::Responses => Box::new(responses::Responses::new(subject)),
        ApiPath::Messages => Box::new(messages::Messages::new(subject)),
        ApiPath::Generate => Box::new(generate::Generate::new(subject)),
        ApiPath::ChatCompletions | ApiPath::Embeddings | ApiPath::Other => Box::new(chat::Chat::new(subject)),
    }
}

/// The last event of OpenAI's and SGLang's own streams.
const DONE: &str = "data: [DONE]\n\n";

/// Appends an unnamed event.
fn event(data: &Value, out: &mut String) {
    out.push_str("data: ");
    out.push_str(&data.to_string());
    out.push_str("\n\n");
}

/// Appends an event with a name, as Anthropic and the Responses API have them; the name is its `type`.
fn named_event(data: &Value, out: &mut String) {
    if let Some(name) = data["type"].as_str() {
        out.push_str("event: ");
        out.push_str(name);
        out.push('\n');
    }
    event(data, out);
}

/// The body of a refusal.
pub(super) fn error(dialect: Dialect, status: u16, message: &str) -> Value {
    let kind = match status {
        400 => "BadRequestError",
        404 => "NotFoundError",
        413 => "RequestEntityTooLarge",
        503 => "ServiceUnavailableError",
        _ => "InternalServerError",
    };
    match dialect {
        Dialect::Sglang => {
            json!({ "object": "error", "message": message, "type": kind, "param": null, "code": status })
        }
        Dialect::Vllm => {
            json!({ "error": { "message": message, "type": kind, "param": null, "code": status } })
        }
    }
}

/// An error in the middle of a stream, and the stream's regular end. Alike in SGLang and vLLM.
pub(super) fn error_event(status: u16, message: &str, out: &mut String) {
    let kind = "ServiceUnavailableError";
    event(&json!({ "error": { "message": message, "type": kind, "param": null, "code": status } }), out);
    out.push_str(DONE);
}

/// An event that differs from token to token only in the text: built once, split where the text goes.
struct Template {
    before: String,
    after: String,
}

/// Stands for the text while a template is built; no model name may contain it by accident.
const PLACE: &str = "\u{1}text\u{1}";

impl Template {
    /// From an event with [`PLACE`] where the text goes.
    fn new(event: &str) -> Self {
        // In JSON the control characters are written as escapes.
        let (before, after) = event.split_once("\\u0001text\\u0001").unwrap_or((event, ""));
        Self { before: before.to_owned(), after: after.to_owned() }
    }

    fn write(&self, text: &str, out: &mut String) {
        out.push_str(&self.before);
        out.push_str(text);
        out.push_str(&self.after);
    }
}
