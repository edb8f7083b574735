//! `/v1/completions`: one JSON body, or chunks with text.

use serde_json::{Value, json};

use super::{DONE, EventTemplate, PLACE, ResponseFormat, ResponseMetadata, TokenCounts, event};

pub(super) struct CompletionsFormat {
    subject: ResponseMetadata,
    token: EventTemplate,
}

impl CompletionsFormat {
    pub(super) fn new(subject: ResponseMetadata) -> Self {
        let mut text = String::new();
        event(&chunk(&subject, &json!([choice(PLACE, None)])), &mut text);
        Self { subject, token: EventTemplate::new(&text) }
    }
}

fn choice(text: &str, reason: Option<&str>) -> Value {
    json!({ "index": 0, "text": text, "logprobs": null, "finish_reason": reason })
}

fn chunk(subject: &ResponseMetadata, choices: &Value) -> Value {
    let mut chunk = json!({
        "id": format!("cmpl-{}", subject.id), "object": "text_completion", "created": subject.created_secs,
        "model": subject.model, "choices": choices,
    });
    // OpenAI: with `include_usage`, every chunk has the field; it is null in all but the last.
    if subject.include_usage {
        chunk["usage"] = Value::Null;
    }
    chunk
}

impl ResponseFormat for CompletionsFormat {
    fn open(&mut self, _: TokenCounts, _: &mut String) {}

    fn token(&mut self, text: &str, _: TokenCounts, out: &mut String) {
        self.token.write(text, out);
    }

    fn close(&mut self, counts: TokenCounts, out: &mut String) {
        event(&chunk(&self.subject, &json!([choice("", Some(self.subject.reason))])), out);
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
            "id": format!("cmpl-{}", self.subject.id), "object": "text_completion",
            "created": self.subject.created_secs, "model": self.subject.model,
            "choices": [choice(text, Some(self.subject.reason))], "usage": counts.usage(),
        })
    }
}
