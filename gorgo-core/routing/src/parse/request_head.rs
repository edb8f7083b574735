//! The head of a request: the few values that routing reads, borrowed from the body.

use std::borrow::Cow;
use std::fmt;

use super::canonical::Writer;
use super::fields::{Field, Fields};
use super::json::{Json, Kind};
use super::usage_splice::usage_splice;
use super::{FORMATS, Format, ParseError, other};
use crate::model::{ApiPath, CanonicalSink, Splice};

/// A request as read. Owns no text of the prompt.
#[derive(Clone)]
pub struct Head<'a> {
    /// The API it came in by.
    pub path: ApiPath,
    /// The model it names.
    pub model: Option<Cow<'a, str>>,
    /// Whether it asks for a stream.
    pub stream: bool,
    /// The answer limit it asks for, tokens.
    pub max_tokens: Option<u32>,
    /// The end user it names: `user`, or Anthropic's `metadata.user_id`.
    pub user: Option<Cow<'a, str>>,
    /// Exact prompt tokens, where the prompt is token ids.
    pub exact_tokens: Option<u32>,
    /// The adapter it asks for; a list of them as its JSON text.
    pub adapter: Option<Cow<'a, str>>,
    /// The salt that keeps its cache entries apart.
    pub cache_salt: Option<Cow<'a, str>>,
    /// What to add so that the engine reports usage at the stream's end.
    pub usage_splice: Option<Splice>,
    fields: Fields<'a>,
    format: &'static Format,
}

/// Reads a request body once.
///
/// # Errors
/// What makes the body unusable for any engine. Never for [`ApiPath::Other`].
pub fn read(path: ApiPath, body: &[u8]) -> Result<Head<'_>, ParseError> {
    let format = FORMATS.iter().copied().find(|format| format.path == path).unwrap_or(&other::FORMAT);
    let fields = match Fields::read(body, format.messages) {
        Ok(fields) => fields,
        Err(_) if format.any_body => Fields::none(),
        Err(error) => return Err(error),
    };
    let exact_tokens = (format.check)(&fields)?;
    let stream = fields.get(Field::Stream).is_some_and(Json::is_true);
    let model = match fields.get(Field::Model) {
        Some(value) if format.any_body => value.string(),
        Some(value) => Some(value.string().ok_or(ParseError::WrongType { field: "model", expected: "a string" })?),
        None => None,
    };
    Ok(Head {
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

impl Head<'_> {
    /// Feeds the canonical prompt to `sink`: tools and whatever else stands in the system part first, then messages or
    /// prompt, then what a chat template reads beside them. What only steers sampling (`response_format`, logit bias,
    /// limits) is not in it, since the engine's cache does not depend on it.
    ///
    /// # Errors
    /// [`ParseError::TooDeep`]; `sink` then holds a part of the prompt.
    pub fn canonical(&self, sink: &mut dyn CanonicalSink) -> Result<(), ParseError> {
        let mut writer = Writer::new(sink);
        (self.format.write)(&self.fields, &mut writer);
        if writer.too_deep() { Err(ParseError::TooDeep) } else { Ok(()) }
    }
}

impl fmt::Debug for Head<'_> {
    /// Without the prompt, the user and the salt.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head")
            .field("path", &self.path)
            .field("model", &self.model)
            .field("stream", &self.stream)
            .field("max_tokens", &self.max_tokens)
            .field("exact_tokens", &self.exact_tokens)
            .finish_non_exhaustive()
    }
}

/// The answer limit, under any of its names; the newest name first.
fn max_tokens(fields: &Fields<'_>) -> Option<u32> {
    [Field::MaxCompletionTokens, Field::MaxOutputTokens, Field::MaxTokens]
        .into_iter()
        .find_map(|field| fields.get(field).and_then(Json::whole))
        .or_else(|| fields.get(Field::SamplingParams)?.member("max_new_tokens")?.whole())
}

fn user<'a>(fields: &Fields<'a>) -> Option<Cow<'a, str>> {
    let named = fields.get(Field::User).and_then(Json::string);
    named.or_else(|| fields.get(Field::Metadata)?.member("user_id")?.string())
}

/// A name that keeps cache entries apart: a string, else its JSON text, so that two different ones never look alike.
fn name<'a>(fields: &Fields<'a>, field: Field) -> Option<Cow<'a, str>> {
    let value = fields.get(field)?;
    match value.kind() {
        Kind::Text if value.text() == Some(b"") => None,
        Kind::Text => value.string().or_else(|| Some(String::from_utf8_lossy(value.bytes()))),
        _ => Some(String::from_utf8_lossy(value.bytes())),
    }
}
