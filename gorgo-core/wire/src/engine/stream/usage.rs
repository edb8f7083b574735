//! Token counts as engines report them: OpenAI, Anthropic, the Responses API and SGLang's `meta_info`.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use gorgo_routing::model::TokenUsage;

/// Members of an event or a response that gorgo reads; everything else is skipped, not built.
#[derive(Debug, Deserialize)]
pub(in crate::engine) struct EventEnvelope<'a> {
    #[serde(default)]
    usage: Option<Value>,
    #[serde(default)]
    meta_info: Option<Value>,
    /// Responses API: the whole response, with its usage inside.
    #[serde(default, borrow)]
    response: Option<&'a RawValue>,
    /// Anthropic: the message of `message_start`.
    #[serde(default, borrow)]
    message: Option<&'a RawValue>,
    #[serde(default)]
    choices: Option<Vec<IgnoredAny>>,
    #[serde(default)]
    pub(in crate::engine) error: Option<Value>,
    #[serde(default)]
    pub(in crate::engine) code: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct NestedUsage {
    #[serde(default)]
    usage: Option<Value>,
    #[serde(default)]
    error: Option<Value>,
}

impl<'a> EventEnvelope<'a> {
    pub(in crate::engine) fn parse(json: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// Counts from whichever members have them.
    pub(in crate::engine) fn usage(&self) -> TokenUsage {
        let mut usage = TokenUsage::default();
        // Outer counts are merged later and so take precedence over nested ones.
        for nested in [self.response, self.message].into_iter().flatten() {
            if let Ok(NestedUsage { usage: Some(value), .. }) = serde_json::from_str(nested.get()) {
                merge(&mut usage, counts(&value));
            }
        }
        for value in [&self.usage, &self.meta_info].into_iter().flatten() {
            merge(&mut usage, counts(value));
        }
        usage
    }

    /// Returns `true` if there is nothing but usage: the extra chunk of `stream_options.include_usage`.
    pub(in crate::engine) fn only_usage(&self) -> bool {
        // A chunk with choices also carries content or a finish reason.
        self.usage.as_ref().is_some_and(Value::is_object) && self.choices.as_ref().is_none_or(Vec::is_empty)
    }

    /// Error of a failed response, if the event has one.
    pub(in crate::engine) fn nested_error(&self) -> Option<Value> {
        let inner: NestedUsage = serde_json::from_str(self.response?.get()).ok()?;
        inner.error
    }
}

/// Takes over the counts of `later`. A later zero does not replace a prompt count: Anthropic's closing event may omit
/// it.
pub(in crate::engine) fn merge(usage: &mut TokenUsage, later: TokenUsage) {
    if later.prompt_tokens.is_some_and(|tokens| tokens > 0 || usage.prompt_tokens.is_none()) {
        usage.prompt_tokens = later.prompt_tokens;
    }
    if later.cached_tokens.is_some() {
        usage.cached_tokens = later.cached_tokens;
    }
    if later.completion_tokens.is_some() {
        usage.completion_tokens = later.completion_tokens;
    }
}

/// Reads one usage object of any API.
pub(in crate::engine) fn counts(usage: &Value) -> TokenUsage {
    let count = |name: &str| usage.get(name).and_then(tokens);
    let detail = |name: &str| usage.get(name).and_then(|details| details.get("cached_tokens")).and_then(tokens);
    let (written, read) = (count("cache_creation_input_tokens"), count("cache_read_input_tokens"));
    // Anthropic counts cached tokens separately from `input_tokens`; all others include them.
    let apart = written.unwrap_or(0).saturating_add(read.unwrap_or(0));
    TokenUsage {
        prompt_tokens: count("prompt_tokens")
            .or_else(|| count("input_tokens").map(|tokens| tokens.saturating_add(apart))),
        // Each API has its own place for the figure; the first that is present counts.
        cached_tokens: detail("prompt_tokens_details")
            .or_else(|| detail("input_tokens_details"))
            .or_else(|| count("cached_tokens"))
            .or(read),
        completion_tokens: count("completion_tokens").or_else(|| count("output_tokens")),
    }
}

fn tokens(value: &Value) -> Option<u32> {
    // More than a u32 holds is nonsense, but must not wrap into a plausible number.
    value.as_u64().map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> (Option<u32>, Option<u32>, Option<u32>) {
        let usage = EventEnvelope::parse(json.as_bytes()).unwrap().usage();
        (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
    }

    #[test]
    fn each_dialect_is_read() {
        let openai =
            r#"{"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}"#;
        assert_eq!(read(openai), (Some(9), Some(4), Some(3)));
        let silent = r#"{"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":null}}"#;
        assert_eq!(read(silent), (Some(9), None, Some(3)));
        let responses =
            r#"{"response":{"usage":{"input_tokens":9,"output_tokens":3,"input_tokens_details":{"cached_tokens":4}}}}"#;
        assert_eq!(read(responses), (Some(9), Some(4), Some(3)));
        let anthropic = r#"{"message":{"usage":{"input_tokens":5,"cache_read_input_tokens":4,"output_tokens":1}}}"#;
        assert_eq!(read(anthropic), (Some(9), Some(4), Some(1)));
        let sglang = r#"{"text":"x","meta_info":{"prompt_tokens":9,"completion_tokens":3,"cached_tokens":4}}"#;
        assert_eq!(read(sglang), (Some(9), Some(4), Some(3)));
        assert_eq!(
            read(r#"{"usage":{"prompt_tokens":-1,"completion_tokens":1.5},"response":"text"}"#),
            (None, None, None)
        );
    }
}
