//! A request as read: what routing needs of it, and where to splice. Owns no text of the prompt.

use std::sync::Arc;

use super::ApiPath;

/// A request that was read once. Made by `parse` and `feature::prefix`, consumed by decisions and by `edge`.
#[derive(Debug, Clone, PartialEq)]
pub struct Prompt {
    /// The API it came in by.
    pub path: ApiPath,
    /// The model it names; `None` where it names none.
    pub model: Option<Arc<str>>,
    /// Whether the client asked for a stream.
    pub stream: bool,
    /// Chained hashes of the prompt's full blocks, first block first; equal prefixes have equal heads.
    pub chain: Vec<u64>,
    /// Canonical prompt, bytes (pictures are counted apart, see `picture_bytes`).
    pub prompt_bytes: u64,
    /// Bytes of base64 pictures, which are not text and not in `prompt_bytes`.
    pub picture_bytes: u64,
    /// Exact prompt tokens where the request carries token ids.
    pub exact_tokens: Option<u32>,
    /// The answer limit the client asked for, tokens.
    pub max_tokens: Option<u32>,
    /// Request body, bytes.
    pub body_bytes: u64,
    /// Keyed hash of the session key.
    pub session_hash: u64,
    /// Hash of the prompt's first 256 tokens.
    pub head_hash: u64,
    /// Whether an adapter or a salt keeps its cache entries apart from those of the same text without.
    pub apart: bool,
    /// The TTFT that the client asked for, ms: a header, which whoever has the head fills in.
    pub slo_ttft_ms: Option<f64>,
    /// What to add to the body so that the engine reports usage at a stream's end; `None` where nothing is to be added.
    pub usage_splice: Option<Splice>,
}

/// Bytes to put into the body before byte `at`; all other bytes stay as they came. The extra usage chunk that this
/// makes the engine send is withheld from the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splice {
    /// Offset in the body.
    pub at: usize,
    /// How many bytes at `at` the text stands in for: 0 to insert.
    pub remove: usize,
    /// What to insert.
    pub text: Vec<u8>,
}

/// What an engine said it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Prompt tokens.
    pub prompt_tokens: Option<u32>,
    /// Of them cached; `None` where the engine does not say.
    pub cached_tokens: Option<u32>,
    /// Tokens generated.
    pub completion_tokens: Option<u32>,
}
