//! `/generate` (SGLang): `text` or `input_ids`, one or several, with pictures beside them.
//!
//! Pictures are written before the text: everything cached after a picture depends on it, and only the model's template
//! knows its place in the text. It is better to see too little cached than too much.

use super::canonical::CanonicalWriter;
use super::completions::text_or_list;
use super::fields::{BodyFields, Field};
use super::plain::{count_tokens, write_prompt};
use super::{ParseError, RequestFormat};
use crate::model::ApiPath;

pub(super) const FORMAT: RequestFormat = RequestFormat {
    path: ApiPath::Generate,
    summary: "text or input_ids, one or several; image_data, audio_data, video_data",
    usage_option: false,
    messages: false,
    any_body: false,
    check,
    write,
};

fn check(fields: &BodyFields<'_>) -> Result<Option<u32>, ParseError> {
    if let Some(ids) = fields.get(Field::InputIds) {
        return text_or_list(Field::InputIds, ids).and_then(|()| count_tokens("input_ids", ids));
    }
    match fields.get(Field::Text) {
        Some(text) => text_or_list(Field::Text, text).map(|()| None),
        None if fields.get(Field::InputEmbeds).is_some() => Ok(None),
        None => Err(ParseError::Missing { field: "text" }),
    }
}

fn write(fields: &BodyFields<'_>, out: &mut CanonicalWriter<'_>) {
    for field in [Field::ImageData, Field::AudioData, Field::VideoData] {
        if let Some(data) = fields.get(field) {
            out.media(field.name().as_bytes(), data, 0);
        }
    }
    // Token ids take precedence over text, as in `check`.
    if let Some(prompt) = fields.get(Field::InputIds).or_else(|| fields.get(Field::Text)) {
        write_prompt(prompt, out);
    }
}
