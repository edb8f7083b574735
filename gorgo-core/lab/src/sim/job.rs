//! Input and output of the engine, and its state of a request in between.

use super::PAGE_TOKENS;
use gorgo_routing::model::UnixMicros;

/// Request to the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulatedRequest {
    /// Id of the request; unique among those in the engine.
    pub id: u64,
    /// Chained hashes of the prompt's full pages of [`PAGE_TOKENS`] tokens, first page first: a hash identifies its
    /// page and all pages before it. Pages that the list lacks are computed and never shared; excess hashes are cut.
    pub pages: Vec<u64>,
    /// Prompt length, tokens; 0 counts as 1.
    pub prompt_tokens: u32,
    /// Tokens to generate; 0: prefill only, as for embeddings. Limited to what the KV cache can hold beside the prompt.
    pub max_tokens: u32,
}

/// Result that the engine reports. All times are exact virtual times, not those of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineOutput {
    /// The prompt has been computed; reported once per job, before its first token.
    Prefilled {
        /// Id of the job.
        id: u64,
        /// Time of the event.
        at: UnixMicros,
        /// Prompt tokens that were found in the cache.
        cached_tokens: u32,
    },
    /// A token has been generated.
    Token {
        /// Id of the job.
        id: u64,
        /// Time of the event.
        at: UnixMicros,
        /// Position of the token in the answer, from 0.
        index: u32,
    },
    /// The job has ended; nothing follows.
    Finished {
        /// Id of the job.
        id: u64,
        /// Time of the event.
        at: UnixMicros,
        /// Reason why it ended.
        reason: FinishReason,
    },
}

impl EngineOutput {
    /// Id of the job.
    #[must_use]
    pub const fn id(&self) -> u64 {
        match *self {
            Self::Prefilled { id, .. } | Self::Token { id, .. } | Self::Finished { id, .. } => id,
        }
    }

    /// Time of the event.
    #[must_use]
    pub const fn at(&self) -> UnixMicros {
        match *self {
            Self::Prefilled { at, .. } | Self::Token { at, .. } | Self::Finished { at, .. } => at,
        }
    }
}

/// Reason why a job ended. A cancelled job has no further output at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The job has generated as many tokens as allowed.
    Length,
    /// There was nothing to generate (`max_tokens` of 0).
    Stop,
    /// Refused: the prompt is longer than the KV cache (a 400 in HTTP).
    TooLong,
}

/// State of a job inside the engine.
#[derive(Debug)]
pub(super) struct ScheduledRequest {
    pub(super) id: u64,
    /// Chained hashes of the prompt's full pages.
    pub(super) chain: Vec<u64>,
    pub(super) prompt_tokens: u32,
    pub(super) max_tokens: u32,
    /// Tokens whose KV is in the cache; at admission, those that were found there.
    pub(super) computed: u32,
    /// Tokens to compute before the next one can be generated: the prompt, and after a retraction also what had been
    /// generated.
    pub(super) target: u32,
    /// Number of leading pages of `chain` that this request has pinned in the shared cache.
    pub(super) shared_pages: u32,
    /// Number of pages that belong to this request alone.
    pub(super) private_pages: u32,
    pub(super) generated: u32,
    /// Cached tokens found at the first admission; `None` before it.
    pub(super) cached_tokens: Option<u32>,
    /// The prompt has been added to the totals.
    pub(super) admission_counted: bool,
    /// The prompt has been reported as computed.
    pub(super) prefilled: bool,
    /// The request will be dropped at the end of the running step.
    pub(super) cancelled: bool,
    pub(super) submitted: UnixMicros,
}

impl ScheduledRequest {
    /// Creates the state of a new job, with lists and limits brought into range. `longest`: KV cache size, tokens.
    pub(super) fn new(job: SimulatedRequest, submitted: UnixMicros, longest: u32) -> Self {
        // An empty prompt is computed as one token, that which opens every text.
        let prompt_tokens = job.prompt_tokens.max(1);
        let mut chain = job.pages;
        let full_pages = usize::try_from(prompt_tokens / PAGE_TOKENS).unwrap_or(usize::MAX);
        // Only full pages can be shared, so hashes beyond them are dropped.
        chain.truncate(full_pages);
        Self {
            id: job.id,
            chain,
            prompt_tokens,
            // An answer that cannot fit into the cache beside its prompt could never be finished.
            max_tokens: job.max_tokens.min(longest.saturating_sub(prompt_tokens)),
            computed: 0,
            target: prompt_tokens,
            shared_pages: 0,
            private_pages: 0,
            generated: 0,
            cached_tokens: None,
            admission_counted: false,
            prefilled: false,
            cancelled: false,
            submitted,
        }
    }

    /// Reports whether the next token comes from a decode step.
    pub(super) const fn decodes(&self) -> bool {
        self.computed >= self.target
    }

    /// Returns the tokens that it holds or is about to write: the prompt and everything generated.
    pub(super) const fn length(&self) -> u32 {
        self.prompt_tokens.saturating_add(self.generated)
    }

    /// Returns the number of pages it holds, shared and private.
    pub(super) const fn held_pages(&self) -> u32 {
        self.shared_pages + self.private_pages
    }

    /// Returns the part of its chain that it has pinned.
    pub(super) fn pinned(&self) -> &[u64] {
        let shared = usize::try_from(self.shared_pages).unwrap_or(usize::MAX).min(self.chain.len());
        &self.chain[..shared]
    }
}
