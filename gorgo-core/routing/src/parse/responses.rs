//! `/v1/responses`: `instructions` as the system message, `input` a string or a list of items.
//!
//! Only the engine knows the conversation behind a `previous_response_id`. The canonical prompt does not contain it, so
//! the prompt of such a request is underestimated until the engine reports usage.

use super::canonical::CanonicalWriter;
use super::chat::{write_tail, write_tools};
use super::completions::text_or_list;
use super::content::{write_items, write_single_message};
use super::fields::{BodyFields, Field};
use super::{ParseError, RequestFormat};
use crate::model::ApiPath;

pub(super) const FORMAT: RequestFormat = RequestFormat {
    path: ApiPath::Responses,
    summary: "instructions, input: text or items, tools",
    usage_option: false,
    messages: false,
    any_body: false,
    check,
    write,
};

fn check(fields: &BodyFields<'_>) -> Result<Option<u32>, ParseError> {
    match fields.get(Field::Input) {
        Some(input) => text_or_list(Field::Input, input).map(|()| None),
        None if fields.get(Field::PreviousResponseId).is_some() || fields.get(Field::Prompt).is_some() => Ok(None),
        None => Err(ParseError::Missing { field: "input" }),
    }
}

fn write(fields: &BodyFields<'_>, out: &mut CanonicalWriter<'_>) {
    write_tools(fields, out);
    if let Some(instructions) = fields.get(Field::Instructions) {
        write_single_message(b"system", instructions, out);
    }
    if let Some(input) = fields.get(Field::Input) {
        write_items(input, out);
    }
    write_tail(fields, out);
}
