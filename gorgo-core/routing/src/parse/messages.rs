//! `/v1/messages` (Anthropic): `tools`, `system`, `messages`.

use super::Format;
use super::canonical::Writer;
use super::chat::{needs_messages, write_tools};
use super::content::{write_messages, write_turn};
use super::fields::{Field, Fields};
use crate::model::ApiPath;

pub(super) const FORMAT: Format = Format {
    path: ApiPath::Messages,
    summary: "system, messages, tools",
    usage_option: false,
    messages: true,
    any_body: false,
    check: needs_messages,
    write,
};

fn write(fields: &Fields<'_>, out: &mut Writer<'_>) {
    write_tools(fields, out);
    if let Some(system) = fields.get(Field::System) {
        write_turn(b"system", system, out);
    }
    if let Some(messages) = fields.messages() {
        write_messages(messages, out);
    }
}
