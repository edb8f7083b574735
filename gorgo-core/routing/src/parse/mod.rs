//! Request bytes → the facts that routing needs: one borrowed read of a request's head, and its canonical prompt.
//!
//! ```text
//! body → fields (serde_json, once; raw members, no copy of text) → Head → canonical bytes → a sink that hashes them
//! ```
//!
//! A body is refused only if no engine could accept it: not JSON, not an object, no prompt. Unknown members are
//! allowed, and odd values of optional members are left for the engine to judge. No message quotes a prompt.

mod canonical;
mod chat;
mod completions;
mod content;
mod embeddings;
mod fields;
mod generate;
mod json;
mod messages;
mod other;
mod plain;
mod request_head;
mod responses;
pub mod sse;
#[cfg(test)]
mod tests;
mod usage_splice;

pub use request_head::{RequestHead, read_head};

use crate::model::ApiPath;
use canonical::CanonicalWriter;
use fields::BodyFields;

/// Reader of one API's requests.
pub struct RequestFormat {
    /// API that it reads.
    pub path: ApiPath,
    /// Location of the prompt, for people.
    pub summary: &'static str,
    /// True if a stream reports usage only with `stream_options.include_usage`.
    usage_option: bool,
    /// True if `messages` has a meaning here.
    messages: bool,
    /// True if a body that is not a JSON object is acceptable.
    any_body: bool,
    /// Check of required members. Returns the exact number of prompt tokens if the prompt consists of token ids.
    check: fn(&BodyFields<'_>) -> Result<Option<u32>, ParseError>,
    /// Writer of the canonical prompt.
    write: fn(&BodyFields<'_>, &mut CanonicalWriter<'_>),
}

/// All formats, one per [`ApiPath`].
pub const FORMATS: &[&RequestFormat] = &[
    &chat::FORMAT,
    &completions::FORMAT,
    &embeddings::FORMAT,
    &responses::FORMAT,
    &messages::FORMAT,
    &generate::FORMAT,
    &other::FORMAT,
];

/// Reason why a body cannot be read: the client's fault, 400. The texts name a position, never a prompt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Some bytes are not UTF-8.
    #[error("the body is not UTF-8: invalid byte at offset {at}")]
    NotUtf8 {
        /// Offset of the first invalid byte.
        at: usize,
    },
    /// The body is not JSON.
    #[error("the body is not JSON: {what}")]
    NotJson {
        /// Message of serde_json, with line and column.
        what: String,
    },
    /// The body is JSON, but not an object.
    #[error("the body is not a JSON object")]
    NotAnObject,
    /// A required member is absent or null.
    #[error("`{field}` is missing")]
    Missing {
        /// Name of the member.
        field: &'static str,
    },
    /// A member has a type that the API does not allow.
    #[error("`{field}` is not {expected}")]
    WrongType {
        /// Name of the member.
        field: &'static str,
        /// Description of the allowed type.
        expected: &'static str,
    },
    /// A list that begins with token ids contains something else.
    #[error("`{field}` is not a list of token ids: each must be a whole number from 0 to 4294967295")]
    NotTokenIds {
        /// Name of the member.
        field: &'static str,
    },
    /// There are more messages than any engine's context holds.
    #[error("`messages` has too many members: at most {limit} in all its messages together")]
    TooMany {
        /// Most members allowed.
        limit: usize,
    },
    /// The prompt's JSON is nested too deeply.
    #[error("the prompt is nested deeper than {} levels", canonical::MAX_DEPTH)]
    TooDeep,
}
