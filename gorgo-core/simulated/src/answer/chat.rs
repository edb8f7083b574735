//! `/v1/chat/completions`: one JSON body, or chunks with deltas.

use serde_json::{Value, json};

use super::{Counts, DONE, PLACE, Subject, Template, Wording, event};

pub(super) struct Chat {
    subject: Subject,
    token: Template,
}

impl Chat {
    pub(super) fn new(subject: Subject) -> Self {
        let mut text = String::new();
        event(&chunk(&subject, &json!([choice(&json!({ "content": PLACE }), None)])), &mut text);
        Self { subject, token: Template::new(&text) }
    }
}

fn choice(delta: &Value, reason: Option<&str>) -> Value {
    json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason })
}

fn chunk(subject: &Subject, choices: &Value) -> Value {
    let mut chunk = json!({
        "id": format!("chatcmpl-{}", subject.id), "object": "chat.completion.chunk", "created": subject.created_secs,
        "model": subject.model, "choices": choices,
    });
    if subject.include_usage {
        chunk["usage"] = Value::Null;
    }
    chunk
}

impl Wording for Chat {
    fn open(&mut self, _: Counts, out: &mut String) {
        event(&chunk(&self.subject, &json!([choice(&json!({ "role": "assistant", "content": "" }), None)])), out);
    }

    fn token(&mut self, text: &str, _: Counts, out: &mut String) {
        self.token.write(text, out);
    }

    fn close(&mut self, counts: Counts, out: &mut String) {
        event(&chunk(&self.subject, &json!([choice(&json!({}), Some(self.subject.reason))])), out);
        if self.subject.include_usage {
            let mut last = chunk(&self.subject, &json!([]));
            last["usage"] = counts.usage();
            event(&last, out);
        }
        out.push_str(DONE);
    }

    fn whole(&self, text: &str, counts: Counts) -> Value {
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
