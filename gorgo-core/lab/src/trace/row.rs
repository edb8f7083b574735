//! One request of a trace, whatever file it came from.

use std::sync::Arc;

/// Longest prompt or answer that a trace may ask for, tokens. Ten times today's longest context; a row beyond it is
/// taken for a mistake (its synthesised prompt would be tens of megabytes).
pub(super) const MAX_TOKENS: u32 = 10_000_000;

/// One recorded request.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TraceRow {
    /// Position among the requests of the file, from 0. Kept when rows are dropped or reordered.
    pub index: usize,
    /// When it arrived, ms. As in the file until [`super::shape()`] makes it relative to the first row.
    pub at_ms: f64,
    /// Prompt, tokens; at least 1.
    pub input_tokens: u32,
    /// Answer, tokens.
    pub output_tokens: u32,
    /// One id per block of the prompt, the last, partial one too. An id stands for its block and everything before
    /// it: equal ids at the head of two rows mean an equal prefix.
    pub blocks: Vec<u64>,
    /// The file's own name for the row.
    pub id: Option<Arc<str>>,
    /// `id` of the earlier row this one shares its longest prefix with.
    pub parent: Option<Arc<str>>,
    /// Length of that shared prefix, tokens.
    pub shared_tokens: Option<u32>,
    /// Prompt tokens the engine counted (chat template and tools included).
    pub engine_prompt_tokens: Option<u32>,
    /// Who asked.
    pub user: Option<Arc<str>>,
    /// Which conversation of theirs.
    pub conversation: Option<Arc<str>>,
    /// Which turn of it, from 1.
    pub turn: Option<u32>,
}

impl TraceRow {
    /// What a client would send as its session: the conversation where the trace has one, else the user.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.conversation.as_deref().or(self.user.as_deref())
    }
}
