//! A parsed request: the values that routing needs, and where to splice. Owns no text of the prompt.

use std::sync::Arc;

use super::ApiPath;

/// A request that was parsed once. Made by `parse` and `feature::prefix`, consumed by decisions and by `edge`.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedRequest {
    /// API that the request came in by.
    pub path: ApiPath,
    /// Model that the request names; `None` if it names none.
    pub model: Option<Arc<str>>,
    /// True if the client asked for a stream.
    pub stream: bool,
    /// Chained hashes of the prompt's full blocks, first block first; equal prefixes have equal heads.
    pub chain: Vec<u64>,
    /// Canonical prompt, bytes (pictures are counted apart, see `picture_bytes`).
    pub prompt_bytes: u64,
    /// Bytes of base64 pictures, which are not text and not in `prompt_bytes`.
    pub media_bytes: u64,
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
    /// True if an adapter or a salt separates its cache entries from those of the same text without one.
    pub has_extra_keys: bool,
    /// TTFT that the client asked for, ms: from a header, filled in by the caller that has the headers.
    pub slo_ttft_ms: Option<f64>,
    /// Insertion into the body that makes the engine report usage at a stream's end; `None` where nothing has to be added.
    pub usage_splice: Option<BodySplice>,
}

/// Bytes to put into the body before byte `at`; all other bytes stay as they came. The extra usage chunk that the
/// engine then sends is withheld from the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodySplice {
    /// Offset in the body.
    pub offset: usize,
    /// Number of bytes at `at` that the text replaces: 0 to insert.
    pub removed_bytes: usize,
    /// Text to insert.
    pub text: Vec<u8>,
}

/// Token counts that an engine reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenUsage {
    /// Prompt tokens.
    pub prompt_tokens: Option<u32>,
    /// Cached tokens among them; `None` if the engine does not report them.
    pub cached_tokens: Option<u32>,
    /// Tokens generated.
    pub completion_tokens: Option<u32>,
}
