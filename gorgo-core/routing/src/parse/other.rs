//! Any other path: nothing is required and nothing is malformed. If the body is a JSON object, members that look like a
//! prompt are read as one, so that a rerank or tokenize call counts as the load it is.

use super::RequestFormat;
use super::canonical::{CanonicalWriter, PART};
use super::content::write_messages;
use super::fields::{BodyFields, Field};
use super::plain::write_prompt;
use crate::model::ApiPath;

pub(super) const FORMAT: RequestFormat = RequestFormat {
    path: ApiPath::Other,
    summary: "any body; messages, prompt, input, text, query and documents are read if present",
    usage_option: false,
    messages: true,
    any_body: true,
    check: |_| Ok(None),
    write,
};

fn write(fields: &BodyFields<'_>, out: &mut CanonicalWriter<'_>) {
    if let Some(messages) = fields.messages() {
        write_messages(messages, out);
        return;
    }
    // Several of them may be present: a rerank has a query and documents.
    let prompts = [Field::Prompt, Field::Input, Field::Text, Field::Query, Field::Documents];
    for (index, prompt) in prompts.into_iter().filter_map(|field| fields.get(field)).enumerate() {
        if index > 0 {
            out.mark(PART);
        }
        write_prompt(prompt, out);
    }
}
