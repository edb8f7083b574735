//! The usage option: the change to a streamed request that makes the engine report usage at the end of the stream.
//!
//! Every other byte of the body stays the same. If an option is given twice the last one counts, as for the engines'
//! JSON parsers.

use super::fields::{BodyFields, Field};
use super::json::{JsonKind, RawJson, equals_word};
use crate::model::BodySplice;

/// Change to make in `body`; `None` if the client itself requested usage, or its option has a form that no engine
/// reads.
pub(super) fn usage_splice(body: &[u8], fields: &BodyFields<'_>) -> Option<BodySplice> {
    let Some(options) = fields.raw(Field::StreamOptions) else {
        // Directly after the opening brace, so that the comma is right: a streaming body always has a member, `stream`.
        let root = body.iter().position(|&byte| byte == b'{')?;
        return Some(insert(root + 1, br#""stream_options":{"include_usage":true},"#));
    };
    match options.kind() {
        JsonKind::Null => replace(body, options, br#"{"include_usage":true}"#),
        JsonKind::Table => {
            // Other options of the client are kept; only the missing or false one is changed.
            let asked = options.members().filter(|(key, _)| equals_word(key, "include_usage")).last();
            match asked {
                Some((_, value)) if value.is_true() => None,
                Some((_, value)) => replace(body, value, b"true"),
                None if options.members().next().is_none() => {
                    Some(insert(offset(body, options)? + 1, br#""include_usage":true"#))
                }
                None => Some(insert(offset(body, options)? + 1, br#""include_usage":true,"#)),
            }
        }
        JsonKind::Bool | JsonKind::Number | JsonKind::Text | JsonKind::List => None,
    }
}

fn insert(at: usize, text: &[u8]) -> BodySplice {
    BodySplice { offset: at, removed_bytes: 0, text: text.to_vec() }
}

fn replace(body: &[u8], value: RawJson<'_>, text: &[u8]) -> Option<BodySplice> {
    Some(BodySplice { offset: offset(body, value)?, removed_bytes: value.bytes().len(), text: text.to_vec() })
}

/// Position in `body` of a value that was borrowed from it.
fn offset(body: &[u8], value: RawJson<'_>) -> Option<usize> {
    let at = value.bytes().as_ptr().addr().checked_sub(body.as_ptr().addr())?;
    (at + value.bytes().len() <= body.len()).then_some(at)
}
