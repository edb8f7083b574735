//! `/v1/responses`. Nothing is stored, so `previous_response_id` is ignored.

use serde_json::{Value, json};

use super::{EventTemplate, PLACE, ResponseFormat, ResponseMetadata, TokenCounts, named_event};

pub(super) struct ResponsesFormat {
    subject: ResponseMetadata,
    token: EventTemplate,
    text: String,
}

impl ResponsesFormat {
    pub(super) fn new(subject: ResponseMetadata) -> Self {
        let mut text = String::new();
        let delta = json!({
            "type": "response.output_text.delta", "item_id": format!("msg_{}", subject.id), "output_index": 0,
            "content_index": 0, "delta": PLACE,
        });
        named_event(&delta, &mut text);
        Self { subject, token: EventTemplate::new(&text), text: String::new() }
    }

    fn response(&self, status: &str, output: &Value, usage: &Value) -> Value {
        json!({
            "id": format!("resp_{}", self.subject.id), "object": "response", "created_at": self.subject.created_secs,
            "model": self.subject.model, "status": status, "output": output, "usage": usage,
        })
    }

    fn item(&self, text: &str) -> Value {
        json!({
            "id": format!("msg_{}", self.subject.id), "type": "message", "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "text": text, "annotations": [] }],
        })
    }

    fn finished(&self, text: &str, counts: TokenCounts) -> Value {
        let usage = json!({
            "input_tokens": counts.prompt, "input_tokens_details": { "cached_tokens": counts.cached },
            "output_tokens": counts.completion, "output_tokens_details": { "reasoning_tokens": 0 },
            "total_tokens": counts.prompt.saturating_add(counts.completion),
        });
        let status = if self.subject.reason == "length" { "incomplete" } else { "completed" };
        let mut response = self.response(status, &json!([self.item(text)]), &usage);
        // This API has no finish reason: a cut answer is an incomplete response with a reason.
        if status == "incomplete" {
            response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        }
        response
    }
}

impl ResponseFormat for ResponsesFormat {
    fn open(&mut self, _: TokenCounts, out: &mut String) {
        let response = self.response("in_progress", &json!([]), &Value::Null);
        named_event(&json!({ "type": "response.created", "response": response }), out);
        let item = json!({
            "id": format!("msg_{}", self.subject.id), "type": "message", "role": "assistant",
            "status": "in_progress", "content": [],
        });
        named_event(&json!({ "type": "response.output_item.added", "output_index": 0, "item": item }), out);
    }

    fn token(&mut self, text: &str, _: TokenCounts, out: &mut String) {
        // The closing events repeat the whole text.
        self.text.push_str(text);
        self.token.write(text, out);
    }

    fn close(&mut self, counts: TokenCounts, out: &mut String) {
        let item = self.item(&self.text);
        named_event(&json!({ "type": "response.output_item.done", "output_index": 0, "item": item }), out);
        let response = self.finished(&self.text, counts);
        let name = if response["status"] == "incomplete" { "response.incomplete" } else { "response.completed" };
        named_event(&json!({ "type": name, "response": response }), out);
    }

    fn whole(&self, text: &str, counts: TokenCounts) -> Value {
        self.finished(text, counts)
    }
}
