//! `/v1/chat/completions`: one JSON body, or chunks with deltas.

use serde_json::{Value, json};

use super::{DONE, EventTemplate, PLACE, ResponseFormat, ResponseMetadata, TokenCounts, event};

pub(super) struct ChatFormat {
    subject: ResponseMetadata,
    token: EventTemplate,
}

impl ChatFormat {
    pub(super) fn new(subject: ResponseMetadata) -> Self {
        let mut text = String::new();
        event(&chunk(&subject, &json!([choice(&json!({ "content": PLACE }), None)])), &mut text);
        Self { subject, token: EventTemplate::new(&text) }
    }
}

fn choice(delta: &Value, reason: Option<&str>) -> Value {
    json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason })
}

fn chunk(subject: &ResponseMetadata, choices: &Value) -> Value {
    let mut chunk = json!({
        "id": format!("chatcmpl-{}", subject.id), "object": "chat.completion.chunk", "created": subject.created_secs,
        "model": subject.model, "choices": choices,
    });
    // OpenAI: with `include_usage`, every chunk has the field; it is null in all but the last.
    if subject.include_usage {
        chunk["usage"] = Value::Null;
    }
    chunk
}

impl ResponseFormat for ChatFormat {
    fn open(&mut self, _: TokenCounts, out: &mut String) {
        // The first chunk has the role and no text.
        event(&chunk(&self.subject, &json!([choice(&json!({ "role": "assistant", "content": "" }), None)])), out);
    }

    fn token(&mut self, text: &str, _: TokenCounts, out: &mut String) {
        self.token.write(text, out);
    }

    fn close(&mut self, counts: TokenCounts, out: &mut String) {
        event(&chunk(&self.subject, &json!([choice(&json!({}), Some(self.subject.reason))])), out);
        if self.subject.include_usage {
            // The chunk with the token counts has no choices.
            let mut last = chunk(&self.subject, &json!([]));
            last["usage"] = counts.usage();
            event(&last, out);
        }
        out.push_str(DONE);
    }

    fn whole(&self, text: &str, counts: TokenCounts) -> Value {
        json!({
            "id": format!("chatcmpl-{}", self.subject.id), "object": "chat.completion",
            "created": self.subject.created_secs, "model": self.subject.model,
            "choices": [{
                "index": 0, "message": { "role": "assistant", "content": text, "tool_calls": null },
                "logprobs": null, "finish_reason": self.subject.reason,
            }],
            "usage": counts.usage(),
        })
    }
}
