//! `/v1/embeddings`: `input` like a completion's prompt, or `messages`, as vLLM accepts them for multimodal models.

use super::canonical::CanonicalWriter;
use super::completions::text_or_list;
use super::content::write_messages;
use super::fields::{BodyFields, Field};
use super::plain::{count_tokens, write_prompt};
use super::{ParseError, RequestFormat};
use crate::model::ApiPath;

pub(super) const FORMAT: RequestFormat = RequestFormat {
    path: ApiPath::Embeddings,
    summary: "input: text, texts, token ids, lists of token ids; or messages",
    usage_option: false,
    messages: true,
    any_body: false,
    check,
    write,
};

fn check(fields: &BodyFields<'_>) -> Result<Option<u32>, ParseError> {
    match fields.get(Field::Input) {
        // Lists of objects are multimodal inputs; they carry no token ids.
        Some(input) => text_or_list(Field::Input, input).and_then(|()| count_tokens("input", input)),
        None if fields.messages().is_some() => Ok(None),
        None => Err(ParseError::Missing { field: "input" }),
    }
}

fn write(fields: &BodyFields<'_>, out: &mut CanonicalWriter<'_>) {
    if let Some(input) = fields.get(Field::Input) {
        write_prompt(input, out);
    } else if let Some(messages) = fields.messages() {
        write_messages(messages, out);
    }
}
