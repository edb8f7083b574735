//! Facts of a request that a policy may read.

/// API that a request came in by. The closed list that the database's `decisions.path` holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApiPath {
    /// `POST /v1/chat/completions`
    ChatCompletions,
    /// `POST /v1/completions`
    Completions,
    /// `POST /v1/embeddings`
    Embeddings,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/messages`
    Messages,
    /// `POST /generate` (SGLang)
    Generate,
    /// Any other path: passed through, and still counted as load.
    Other,
}

impl ApiPath {
    /// All paths, in documentation order.
    pub const ALL: [Self; 7] = [
        Self::ChatCompletions,
        Self::Completions,
        Self::Embeddings,
        Self::Responses,
        Self::Messages,
        Self::Generate,
        Self::Other,
    ];

    /// The text stored in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Embeddings => "/v1/embeddings",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
            Self::Generate => "/generate",
            Self::Other => "other",
        }
    }

    /// The API of a request path (without its query).
    #[must_use]
    pub fn from_path(path: &str) -> Self {
        Self::ALL.into_iter().find(|api| api.name() == path).unwrap_or(Self::Other)
    }
}

/// A request as terms and constraints see it. Plain numbers; no text of the prompt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RequestView {
    /// Prompt tokens, estimated from bytes × the model's learned tokens per byte (or counted, for token-id prompts).
    pub prompt_tokens: u32,
    /// The answer limit the client asked for, tokens.
    pub max_tokens: Option<u32>,
    /// Request body, bytes.
    pub body_bytes: u64,
    /// Hash of the session key: header, else the body's `user`, else the API key, else the prompt's head.
    pub session_hash: u64,
    /// Hash of the prompt's first 256 tokens (`simple-session-affinity`).
    pub head_hash: u64,
    /// The TTFT that the client asked for with the header `x-slo-ttft-ms`, ms.
    pub slo_ttft_ms: Option<f64>,
    /// Number of decisions that this policy made before this one (`turn`, i.e. round-robin).
    pub decision_number: u64,
}
