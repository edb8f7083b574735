//! One request of a trace, independent of the file format it was read from.

use std::sync::Arc;

/// Longest prompt or answer that a trace may have, tokens. Ten times today's longest context; a row beyond it is
/// treated as a mistake (its synthesised prompt would be tens of megabytes).
pub(super) const MAX_TOKENS: u32 = 10_000_000;

/// One recorded request.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TraceRow {
    /// Position among the requests of the file, from 0. Kept when rows are dropped or reordered.
    pub index: usize,
    /// Arrival time, ms. As in the file until [`super::shape()`] makes it relative to the first row.
    pub at_ms: f64,
    /// Prompt length, tokens; at least 1.
    pub input_tokens: u32,
    /// Answer length, tokens.
    pub output_tokens: u32,
    /// One id per block of the prompt, including a partial last one. An id identifies its block and everything before
    /// it: equal ids at the start of two rows mean an equal prefix.
    pub blocks: Vec<u64>,
    /// Name of the row in the file.
    pub id: Option<Arc<str>>,
    /// `id` of the earlier row that this one shares its longest prefix with.
    pub parent: Option<Arc<str>>,
    /// Length of that shared prefix, tokens.
    pub shared_tokens: Option<u32>,
    /// Prompt tokens as the engine counted them (chat template and tools included).
    pub engine_prompt_tokens: Option<u32>,
    /// User who sent the request.
    pub user: Option<Arc<str>>,
    /// Conversation of that user.
    pub conversation: Option<Arc<str>>,
    /// Turn within the conversation, from 1.
    pub turn: Option<u32>,
}

impl TraceRow {
    /// Returns what a client would send as its session: the conversation if the trace has one, else the user.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.conversation.as_deref().or(self.user.as_deref())
    }
}
