//! Head of a request: the few values that routing reads, borrowed from the body.

use std::borrow::Cow;
use std::fmt;

use super::canonical::CanonicalWriter;
use super::fields::{BodyFields, Field};
use super::json::{JsonKind, RawJson};
use super::usage_splice::usage_splice;
use super::{FORMATS, ParseError, RequestFormat, other};
use crate::model::{ApiPath, BodySplice, CanonicalSink};

/// Request as read. Owns no text of the prompt.
#[derive(Clone)]
pub struct RequestHead<'a> {
    /// API of the request.
    pub path: ApiPath,
    /// Model that it names.
    pub model: Option<Cow<'a, str>>,
    /// True if it requests a stream.
    pub stream: bool,
    /// Requested limit of the answer, tokens.
    pub max_tokens: Option<u32>,
    /// End user that it names: `user`, or Anthropic's `metadata.user_id`.
    pub user: Option<Cow<'a, str>>,
    /// Exact number of prompt tokens, if the prompt consists of token ids.
    pub exact_tokens: Option<u32>,
    /// Requested adapter; a list of them as its JSON text.
    pub adapter: Option<Cow<'a, str>>,
    /// Salt that separates its cache entries from others'.
    pub cache_salt: Option<Cow<'a, str>>,
    /// Addition to the body that makes the engine report usage at the end of the stream.
    pub usage_splice: Option<BodySplice>,
    fields: BodyFields<'a>,
    format: &'static RequestFormat,
}

/// Reads a request body once.
///
/// # Errors
/// The fault that makes the body unusable for any engine. Never occurs for [`ApiPath::Other`].
pub fn read_head(path: ApiPath, body: &[u8]) -> Result<RequestHead<'_>, ParseError> {
    let format = FORMATS.iter().copied().find(|format| format.path == path).unwrap_or(&other::FORMAT);
    let fields = match BodyFields::read(body, format.messages) {
        Ok(fields) => fields,
        // The body of an unknown path may be anything; it is passed on unread.
        Err(_) if format.any_body => BodyFields::none(),
        Err(error) => return Err(error),
    };
    let exact_tokens = (format.check)(&fields)?;
    let stream = fields.get(Field::Stream).is_some_and(RawJson::is_true);
    let model = match fields.get(Field::Model) {
        // On an unknown path `model` may mean something else, so its type is not checked.
        Some(value) if format.any_body => value.string(),
        Some(value) => Some(value.string().ok_or(ParseError::WrongType { field: "model", expected: "a string" })?),
        None => None,
    };
    Ok(RequestHead {
        path,
        model,
        stream,
        max_tokens: max_tokens(&fields),
        user: user(&fields),
        exact_tokens,
        adapter: name(&fields, Field::LoraPath).or_else(|| name(&fields, Field::Lora)),
        cache_salt: name(&fields, Field::CacheSalt),
        usage_splice: if stream && format.usage_option { usage_splice(body, &fields) } else { None },
        fields,
        format,
    })
}

impl RequestHead<'_> {
    /// Feeds the canonical prompt to `sink`: first tools and everything else in the system part, then messages or
    /// prompt, then other inputs of the chat template. Members that only control sampling (`response_format`, logit
    /// bias, limits) are left out, because the engine's cache does not depend on them.
    ///
    /// # Errors
    /// [`ParseError::TooDeep`]; `sink` has then received a part of the prompt.
    pub fn canonical(&self, sink: &mut dyn CanonicalSink) -> Result<(), ParseError> {
        let mut writer = CanonicalWriter::new(sink);
        (self.format.write)(&self.fields, &mut writer);
        if writer.too_deep() { Err(ParseError::TooDeep) } else { Ok(()) }
    }
}

impl fmt::Debug for RequestHead<'_> {
    /// Formats without the prompt, the user and the salt.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead")
            .field("path", &self.path)
            .field("model", &self.model)
            .field("stream", &self.stream)
            .field("max_tokens", &self.max_tokens)
            .field("exact_tokens", &self.exact_tokens)
            .finish_non_exhaustive()
    }
}

/// Limit of the answer under any of its names, the newest name first.
fn max_tokens(fields: &BodyFields<'_>) -> Option<u32> {
    [Field::MaxCompletionTokens, Field::MaxOutputTokens, Field::MaxTokens]
        .into_iter()
        .find_map(|field| fields.get(field).and_then(RawJson::as_u32))
        .or_else(|| fields.get(Field::SamplingParams)?.member("max_new_tokens")?.as_u32())
}

fn user<'a>(fields: &BodyFields<'a>) -> Option<Cow<'a, str>> {
    let named = fields.get(Field::User).and_then(RawJson::string);
    named.or_else(|| fields.get(Field::Metadata)?.member("user_id")?.string())
}

/// Name that separates cache entries: a string, otherwise its JSON text, so that two different names never look alike.
fn name<'a>(fields: &BodyFields<'a>, field: Field) -> Option<Cow<'a, str>> {
    let value = fields.get(field)?;
    match value.kind() {
        JsonKind::Text if value.text() == Some(b"") => None,
        // Half a surrogate pair cannot be unescaped; its JSON text still distinguishes it from other names.
        JsonKind::Text => value.string().or_else(|| Some(String::from_utf8_lossy(value.bytes()))),
        _ => Some(String::from_utf8_lossy(value.bytes())),
    }
}
