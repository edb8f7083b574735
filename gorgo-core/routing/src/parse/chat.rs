//! `/v1/chat/completions`: `messages`, with `tools` before them, as in chat templates.
//!
//! Order: tools (or `functions`), `tool_choice` if it changes which tools a template shows, `documents`, a template in
//! the request itself; then the messages; then `chat_template_kwargs` and `reasoning_effort`. These two come last
//! because most templates use them at the end of the prompt, and a conversation must not lose its prefix when they
//! change.

use super::canonical::{CanonicalWriter, TAIL, TOOLS};
use super::content::write_messages;
use super::fields::{BodyFields, Field};
use super::json::{JsonKind, equals_word};
use super::{ParseError, RequestFormat};
use crate::model::ApiPath;

pub(super) const FORMAT: RequestFormat = RequestFormat {
    path: ApiPath::ChatCompletions,
    summary: "messages, tools",
    usage_option: true,
    messages: true,
    any_body: false,
    check: needs_messages,
    write,
};

/// Checks that messages are present. They carry no token ids.
pub(super) const fn needs_messages(fields: &BodyFields<'_>) -> Result<Option<u32>, ParseError> {
    match fields.messages() {
        Some(_) => Ok(None),
        None => Err(ParseError::Missing { field: "messages" }),
    }
}

/// Writes the inputs of a template's system part, which precede all messages.
pub(super) fn write_tools(fields: &BodyFields<'_>, out: &mut CanonicalWriter<'_>) {
    let tools = fields.get(Field::Tools).or_else(|| fields.get(Field::Functions));
    // An empty list renders like no tools at all.
    if let Some(tools) = tools.filter(|tools| tools.elements().next().is_some()) {
        out.mark(TOOLS);
        out.value(tools);
        // "auto" and "required" leave the template as it is; "none" and a named tool make engines show fewer tools.
        let choice = fields.get(Field::ToolChoice);
        if let Some(choice) = choice.filter(|choice| {
            choice.kind() == JsonKind::Table || choice.text().is_some_and(|word| equals_word(word, "none"))
        }) {
            out.member(Field::ToolChoice.name().as_bytes(), choice);
        }
    }
    for field in [Field::Documents, Field::ChatTemplate] {
        if let Some(value) = fields.get(field) {
            out.mark(TOOLS);
            out.member(field.name().as_bytes(), value);
        }
    }
}

/// Writes the inputs of a template other than the messages.
pub(super) fn write_tail(fields: &BodyFields<'_>, out: &mut CanonicalWriter<'_>) {
    for field in [Field::ChatTemplateKwargs, Field::ReasoningEffort, Field::Reasoning] {
        if let Some(value) = fields.get(field) {
            out.mark(TAIL);
            out.member(field.name().as_bytes(), value);
        }
    }
}

fn write(fields: &BodyFields<'_>, out: &mut CanonicalWriter<'_>) {
    write_tools(fields, out);
    if let Some(messages) = fields.messages() {
        write_messages(messages, out);
    }
    write_tail(fields, out);
}
