//! Anthropic's `/v1/messages`. `input_tokens` excludes cached tokens, which `cache_read_input_tokens` counts.

use serde_json::{Value, json};

use super::{EventTemplate, PLACE, ResponseFormat, ResponseMetadata, TokenCounts, named_event};

pub(super) struct MessagesFormat {
    subject: ResponseMetadata,
    token: EventTemplate,
}

impl MessagesFormat {
    pub(super) fn new(subject: ResponseMetadata) -> Self {
        let mut text = String::new();
        let delta = json!({ "type": "text_delta", "text": PLACE });
        named_event(&json!({ "type": "content_block_delta", "index": 0, "delta": delta }), &mut text);
        Self { subject, token: EventTemplate::new(&text) }
    }

    fn stop_reason(&self) -> &'static str {
        if self.subject.reason == "length" { "max_tokens" } else { "end_turn" }
    }

    fn message(&self, content: &Value, stop_reason: Option<&str>, counts: TokenCounts) -> Value {
        json!({
            "id": format!("msg_{}", self.subject.id), "type": "message", "role": "assistant",
            "model": self.subject.model, "content": content, "stop_reason": stop_reason, "stop_sequence": null,
            "usage": usage(counts),
        })
    }
}

fn usage(counts: TokenCounts) -> Value {
    json!({
        "input_tokens": counts.prompt.saturating_sub(counts.cached), "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counts.cached, "output_tokens": counts.completion,
    })
}

impl ResponseFormat for MessagesFormat {
    fn open(&mut self, counts: TokenCounts, out: &mut String) {
        named_event(&json!({ "type": "message_start", "message": self.message(&json!([]), None, counts) }), out);
        let block = json!({ "type": "text", "text": "" });
        named_event(&json!({ "type": "content_block_start", "index": 0, "content_block": block }), out);
    }

    fn token(&mut self, text: &str, _: TokenCounts, out: &mut String) {
        self.token.write(text, out);
    }

    fn close(&mut self, counts: TokenCounts, out: &mut String) {
        named_event(&json!({ "type": "content_block_stop", "index": 0 }), out);
        let delta = json!({ "stop_reason": self.stop_reason(), "stop_sequence": null });
        named_event(&json!({ "type": "message_delta", "delta": delta, "usage": usage(counts) }), out);
        named_event(&json!({ "type": "message_stop" }), out);
    }

    fn whole(&self, text: &str, counts: TokenCounts) -> Value {
        self.message(&json!([{ "type": "text", "text": text }]), Some(self.stop_reason()), counts)
    }
}
