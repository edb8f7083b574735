//! SGLang's `/generate`: each event repeats the whole text so far and contains the token counts.

use serde_json::{Value, json};

use super::{DONE, ResponseFormat, ResponseMetadata, TokenCounts, event};

pub(super) struct GenerateFormat {
    subject: ResponseMetadata,
    text: String,
}

impl GenerateFormat {
    pub(super) fn new(subject: ResponseMetadata) -> Self {
        Self { subject, text: String::new() }
    }

    fn body(&self, text: &str, counts: TokenCounts, done: bool) -> Value {
        let reason = match (done, self.subject.reason) {
            (false, _) => Value::Null,
            (true, "length") => json!({ "type": "length", "length": counts.completion }),
            (true, other) => json!({ "type": other }),
        };
        json!({
            "text": text,
            "meta_info": {
                "id": self.subject.id, "finish_reason": reason, "prompt_tokens": counts.prompt,
                "completion_tokens": counts.completion, "cached_tokens": counts.cached,
            },
        })
    }
}

impl ResponseFormat for GenerateFormat {
    fn open(&mut self, _: TokenCounts, _: &mut String) {}

    fn token(&mut self, text: &str, counts: TokenCounts, out: &mut String) {
        self.text.push_str(text);
        event(&self.body(&self.text, counts, false), out);
    }

    fn close(&mut self, counts: TokenCounts, out: &mut String) {
        event(&self.body(&self.text, counts, true), out);
        out.push_str(DONE);
    }

    fn whole(&self, text: &str, counts: TokenCounts) -> Value {
        self.body(text, counts, true)
    }
}
