//! Reads the token counts of a response that is not a stream, without delaying it.
//!
//! The last [`TAIL`] bytes are kept (as slices of what passed, not copies) and searched at the end: engines write
//! `usage` last, and a response up to that size is kept whole.

use std::collections::VecDeque;

use bytes::Bytes;
use memchr::memmem;
use serde_json::Value;

use crate::engine::stream::usage::{counts, merge};
use gorgo_routing::model::TokenUsage;

/// Bytes of a response that are kept for the search.
const TAIL: usize = 1 << 20;

/// Incremental reader of one response.
#[derive(Debug, Default)]
pub struct UsageReader {
    kept: VecDeque<Bytes>,
    bytes: usize,
}

impl UsageReader {
    /// Sees the next bytes pass.
    pub fn push(&mut self, chunk: &Bytes) {
        self.bytes += chunk.len();
        self.kept.push_back(chunk.clone());
        // Whole chunks are dropped, so at least `TAIL` bytes always remain.
        while let Some(oldest) = self.kept.front()
            && self.bytes - oldest.len() >= TAIL
        {
            self.bytes -= oldest.len();
            self.kept.pop_front();
        }
    }

    /// Counts, once the response is complete.
    #[must_use]
    pub fn usage(&self) -> TokenUsage {
        let joined: Vec<u8>;
        let text: &[u8] = if self.kept.len() == 1 {
            &self.kept[0]
        } else {
            joined = self.kept.iter().flat_map(|chunk| chunk.iter().copied()).collect();
            &joined
        };
        let mut usage = TokenUsage::default();
        // `usage` last: where both exist its counts take precedence.
        for key in [&b"\"meta_info\""[..], b"\"usage\""] {
            if let Some(object) = last_object(text, key) {
                merge(&mut usage, counts(&object));
            }
        }
        usage
    }
}

/// Object that is the value of the last member of this name.
fn last_object(text: &[u8], key: &[u8]) -> Option<Value> {
    let mut end = text.len();
    loop {
        // Backwards: generated text may contain the key too, and the engine's own comes last.
        let at = memmem::rfind(&text[..end], key)?;
        let value = text[at + key.len()..].trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        if let Some(value) = value.filter(|value| value.starts_with(b"{"))
            && let Some(Ok(object)) = serde_json::Deserializer::from_slice(value).into_iter::<Value>().next()
        {
            return Some(object);
        }
        end = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: &[&[u8]]) -> TokenUsage {
        let mut reader = UsageReader::default();
        for chunk in chunks {
            reader.push(&Bytes::copy_from_slice(chunk));
        }
        reader.usage()
    }

    #[test]
    fn usage_is_found_across_chunks() {
        let usage = read(&[
            br#"{"choices":[{"message":{"content":"say \"usage\":{"}}],"us"#,
            br#"age":{"prompt_tokens":7,"completion_tokens":2}}"#,
        ]);
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (Some(7), Some(2)));
    }

    #[test]
    fn only_the_tail_of_a_long_answer_is_kept() {
        let mut reader = UsageReader::default();
        for _ in 0..100 {
            reader.push(&Bytes::from(vec![b' '; 100_000]));
        }
        reader.push(&Bytes::from_static(br#""usage":{"prompt_tokens":7}}"#));
        assert!(reader.bytes <= TAIL + 100_000);
        assert_eq!(reader.usage().prompt_tokens, Some(7));
    }

    #[test]
    fn rubbish_has_no_usage() {
        assert_eq!(read(&[br#"{"usage":{"prompt_tokens":"#]), TokenUsage::default());
        assert_eq!(read(&[br#"{"usage":null}"#]), TokenUsage::default());
        assert_eq!(read(&[b"\"usage\""]), TokenUsage::default());
        assert_eq!(read(&[]), TokenUsage::default());
    }
}
