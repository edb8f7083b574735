//! `/v1/completions`: `prompt` is a string, several strings, token ids, or several lists of them.

use super::canonical::CanonicalWriter;
use super::fields::{BodyFields, Field};
use super::json::{JsonKind, RawJson};
use super::plain::{count_tokens, write_prompt};
use super::{ParseError, RequestFormat};
use crate::model::ApiPath;

pub(super) const FORMAT: RequestFormat = RequestFormat {
    path: ApiPath::Completions,
    summary: "prompt: text, texts, token ids, lists of token ids",
    usage_option: true,
    messages: false,
    any_body: false,
    check,
    write,
};

fn check(fields: &BodyFields<'_>) -> Result<Option<u32>, ParseError> {
    match fields.get(Field::Prompt) {
        Some(prompt) => text_or_list(Field::Prompt, prompt).and_then(|()| count_tokens("prompt", prompt)),
        // A prompt of embeddings alone is valid, with an unknown number of tokens.
        None if fields.get(Field::PromptEmbeds).is_some() => Ok(None),
        None => Err(ParseError::Missing { field: "prompt" }),
    }
}

/// Checks that a prompt has a type that is allowed for one.
pub(super) fn text_or_list(field: Field, prompt: RawJson<'_>) -> Result<(), ParseError> {
    match prompt.kind() {
        JsonKind::Text | JsonKind::List => Ok(()),
        _ => Err(ParseError::WrongType { field: field.name(), expected: "a string or an array" }),
    }
}

fn write(fields: &BodyFields<'_>, out: &mut CanonicalWriter<'_>) {
    // Embeddings of a prompt precede its text, in the order in which engines join them.
    if let Some(embeds) = fields.get(Field::PromptEmbeds) {
        out.media(b"prompt_embeds", embeds, 0);
    }
    if let Some(prompt) = fields.get(Field::Prompt) {
        write_prompt(prompt, out);
    }
}
