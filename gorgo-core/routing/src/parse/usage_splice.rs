//! The usage option: what to put into a streamed request so that the engine reports usage at the stream's end.
//!
//! Everything else of the body stays byte for byte. Where an option stands twice the last one counts, as it does for
//! the engines' JSON readers.

use super::fields::{Field, Fields};
use super::json::{Json, Kind, spells};
use crate::model::Splice;

/// What to change in `body`; `None` where the client asked for usage itself, or its option is none that an engine reads.
pub(super) fn usage_splice(body: &[u8], fields: &Fields<'_>) -> Option<Splice> {
    let Some(options) = fields.raw(Field::StreamOptions) else {
        let root = body.iter().position(|&byte| byte == b'{')?;
        return Some(insert(root + 1, br#""stream_options":{"include_usage":true},"#));
    };
    match options.kind() {
        Kind::Null => replace(body, options, br#"{"include_usage":true}"#),
        Kind::Table => {
            let asked = options.members().filter(|(key, _)| spells(key, "include_usage")).last();
            match asked {
                Some((_, value)) if value.is_true() => None,
                Some((_, value)) => replace(body, value, b"true"),
                None if options.members().next().is_none() => {
                    Some(insert(offset(body, options)? + 1, br#""include_usage":true"#))
                }
                None => Some(insert(offset(body, options)? + 1, br#""include_usage":true,"#)),
            }
        }
        Kind::Bool | Kind::Number | Kind::Text | Kind::List => None,
    }
}

fn insert(at: usize, text: &[u8]) -> Splice {
    Splice { at, remove: 0, text: text.to_vec() }
}

fn replace(body: &[u8], value: Json<'_>, text: &[u8]) -> Option<Splice> {
    Some(Splice { at: offset(body, value)?, remove: value.bytes().len(), text: text.to_vec() })
}

/// Where in `body` a value lies that was borrowed from it.
fn offset(body: &[u8], value: Json<'_>) -> Option<usize> {
    let at = value.bytes().as_ptr().addr().checked_sub(body.as_ptr().addr())?;
    (at + value.bytes().len() <= body.len()).then_some(at)
}
