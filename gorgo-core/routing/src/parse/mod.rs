//! Request bytes → what routing needs of them: one borrowed read of a request's head, and its canonical prompt.
//!
//! ```text
//! body → fields (serde_json, once; raw members, no copy of text) → Head → canonical bytes → a sink that hashes them
//! ```
//!
//! A body is refused only where no engine could take it: not JSON, not an object, no prompt. Unknown members are fine,
//! odd values of optional members are left for the engine to judge. No message quotes a prompt.

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

pub use request_head::{Head, read};

use crate::model::ApiPath;
use canonical::Writer;
use fields::Fields;

/// How one API's requests are read.
pub struct Format {
    /// The API.
    pub path: ApiPath,
    /// Where its prompt is, for people.
    pub summary: &'static str,
    /// Whether a stream reports usage only where `stream_options.include_usage` asks for it.
    usage_option: bool,
    /// Whether `messages` means something here.
    messages: bool,
    /// Whether a body that is no JSON object is fine.
    any_body: bool,
    /// What must be there, and the exact prompt tokens where the prompt is token ids.
    check: fn(&Fields<'_>) -> Result<Option<u32>, ParseError>,
    /// The canonical prompt.
    write: fn(&Fields<'_>, &mut Writer<'_>),
}

/// All formats, one per [`ApiPath`].
pub const FORMATS: &[&Format] = &[
    &chat::FORMAT,
    &completions::FORMAT,
    &embeddings::FORMAT,
    &responses::FORMAT,
    &messages::FORMAT,
    &generate::FORMAT,
    &other::FORMAT,
];

/// Why a body cannot be read: the client's fault, 400. The texts name a place, never a prompt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Some bytes are no UTF-8.
    #[error("the body is not UTF-8: byte {at} is where it breaks")]
    NotUtf8 {
        /// Offset of the first bad byte.
        at: usize,
    },
    /// No JSON.
    #[error("the body is not JSON: {what}")]
    NotJson {
        /// What serde_json says, with line and column.
        what: String,
    },
    /// JSON, but no object.
    #[error("the body is not a JSON object")]
    NotAnObject,
    /// A member that the API needs is not there, or is null.
    #[error("`{field}` is missing")]
    Missing {
        /// The member.
        field: &'static str,
    },
    /// A member is of another type than the API says.
    #[error("`{field}` is not {expected}")]
    WrongType {
        /// The member.
        field: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// A list that begins as token ids does not go on as such.
    #[error("`{field}` is not a list of token ids: each must be a whole number from 0 to 4294967295")]
    NotTokenIds {
        /// The member.
        field: &'static str,
    },
    /// There are more messages than any engine's context holds.
    #[error("`messages` has more than {limit} members in all its messages together")]
    TooMany {
        /// Most members.
        limit: usize,
    },
    /// The prompt's JSON is nested too deep.
    #[error("the prompt is nested deeper than {} levels", canonical::MAX_DEPTH)]
    TooDeep,
}
