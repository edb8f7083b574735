//! `/v1/messages` (Anthropic): `tools`, `system`, `messages`.

use super::RequestFormat;
use super::canonical::CanonicalWriter;
use super::chat::{needs_messages, write_tools};
use super::content::{write_messages, write_single_message};
use super::fields::{BodyFields, Field};
use crate::model::ApiPath;

pub(super) const FORMAT: RequestFormat = RequestFormat {
    path: ApiPath::Messages,
    summary: "system, messages, tools",
    usage_option: false,
    messages: true,
    any_body: false,
    check: needs_messages,
    write,
};

fn write(fields: &BodyFields<'_>, out: &mut CanonicalWriter<'_>) {
    write_tools(fields, out);
    if let Some(system) = fields.get(Field::System) {
        write_single_message(b"system", system, out);
    }
    if let Some(messages) = fields.messages() {
        write_messages(messages, out);
    }
}
