//! What goes into the engine, what comes out, and what the engine knows of a request in between.

use super::PAGE_TOKENS;
use gorgo_routing::model::At;

/// A request to the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Name of the request; unique among those the engine has.
    pub id: u64,
    /// Chained hashes of the prompt's full pages of [`PAGE_TOKENS`] tokens, first page first: a hash stands for its
    /// page and all before it. What the list lacks is computed and never shared; what it has too much is cut off.
    pub pages: Vec<u64>,
    /// Prompt length, tokens; 0 counts as 1.
    pub prompt_tokens: u32,
    /// Tokens to generate; 0: prefill only, as for embeddings. Cut to what the KV cache can hold beside the prompt.
    pub max_tokens: u32,
}

/// What the engine did. All times are exact virtual times, not those of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// The prompt has been computed; once per job, before its first token.
    Prefilled {
        /// Which job.
        id: u64,
        /// When.
        at: At,
        /// Prompt tokens that were found in the cache.
        cached_tokens: u32,
    },
    /// A token has been generated.
    Token {
        /// Of which job.
        id: u64,
        /// When.
        at: At,
        /// 0 for the first.
        index: u32,
    },
    /// The job is over; nothing follows.
    Finished {
        /// Which job.
        id: u64,
        /// When.
        at: At,
        /// Why.
        reason: FinishReason,
    },
}

impl Output {
    /// Of which job.
    #[must_use]
    pub const fn id(&self) -> u64 {
        match *self {
            Self::Prefilled { id, .. } | Self::Token { id, .. } | Self::Finished { id, .. } => id,
        }
    }

    /// When.
    #[must_use]
    pub const fn at(&self) -> At {
        match *self {
            Self::Prefilled { at, .. } | Self::Token { at, .. } | Self::Finished { at, .. } => at,
        }
    }
}

/// Why a job is over. A cancelled job says nothing more at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// It generated as many tokens as it may.
    Length,
    /// There was nothing to generate (`max_tokens` of 0).
    Stop,
    /// Refused: the prompt is longer than the KV cache (a 400 in HTTP).
    TooLong,
}

/// A job inside the engine.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: u64,
    /// Chained hashes of the prompt's full pages.
    pub(super) chain: Vec<u64>,
    pub(super) prompt_tokens: u32,
    pub(super) max_tokens: u32,
    /// Tokens whose KV is there. At first the cached ones.
    pub(super) computed: u32,
    /// Tokens to compute before the next one can be generated: the prompt, after a retraction also what was generated.
    pub(super) target: u32,
    /// Leading pages of `chain` that this request has pinned in the shared cache.
    pub(super) shared_pages: u32,
    /// Pages that only this request knows.
    pub(super) own_pages: u32,
    pub(super) generated: u32,
    /// Cached tokens found at first admission; `None` before.
    pub(super) cached_tokens: Option<u32>,
    /// Whether its prompt is in the totals.
    pub(super) admission_counted: bool,
    /// Whether the prompt has been reported as computed.
    pub(super) prefilled: bool,
    /// To be dropped at the end of the running step.
    pub(super) cancelled: bool,
    pub(super) submitted: At,
}

impl Request {
    /// The request of a job, its lists and limits brought into range. `longest`: tokens the KV cache holds.
    pub(super) fn new(job: Job, submitted: At, longest: u32) -> Self {
        let prompt_tokens = job.prompt_tokens.max(1);
        let mut chain = job.pages;
        let full_pages = usize::try_from(prompt_tokens / PAGE_TOKENS).unwrap_or(usize::MAX);
        chain.truncate(full_pages);
        Self {
            id: job.id,
            chain,
            prompt_tokens,
            max_tokens: job.max_tokens.min(longest.saturating_sub(prompt_tokens)),
            computed: 0,
            target: prompt_tokens,
            shared_pages: 0,
            own_pages: 0,
            generated: 0,
            cached_tokens: None,
            admission_counted: false,
            prefilled: false,
            cancelled: false,
            submitted,
        }
    }

    /// Whether its next token comes from a decode step.
    pub(super) const fn decodes(&self) -> bool {
        self.computed >= self.target
    }

    /// Tokens it holds or is about to write: the prompt and all that was generated.
    pub(super) const fn length(&self) -> u32 {
        self.prompt_tokens.saturating_add(self.generated)
    }

    /// Pages it holds, shared and own.
    pub(super) const fn held_pages(&self) -> u32 {
        self.shared_pages + self.own_pages
    }

    /// The part of its chain that it has pinned.
    pub(super) fn pinned(&self) -> &[u64] {
        let shared = usize::try_from(self.shared_pages).unwrap_or(usize::MAX).min(self.chain.len());
        &self.chain[..shared]
    }
}
