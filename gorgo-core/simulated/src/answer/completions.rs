//! `/v1/completions`: one JSON body, or chunks with text.

use serde_json::{Value, json};

use super::{Counts, DONE, PLACE, Subject, Template, Wording, event};

pub(super) struct Completions {
    subject: Subject,
    token: Template,
}

impl Completions {
    pub(super) fn new(subject: Subject) -> Self {
        let mut text = String::new();
        event(&chunk(&subject, &json!([choice(PLACE, None)])), &mut text);
        Self { subject, token: Template::new(&text) }
    }
}

fn choice(text: &str, reason: Option<&str>) -> Value {
    json!({ "index": 0, "text": text, "logprobs": null, "finish_reason": reason })
}

fn chunk(subject: &Subject, choices: &Value) -> Value {
    let mut chunk = json!({
        "id": format!("cmpl-{}", subject.id), "object": "text_completion", "created": subject.created_secs,
        "model": subject.model, "choices": choices,
    });
    if subject.include_usage {
        chunk["usage"] = Value::Null;
    }
    chunk
}

impl Wording for Completions {
    fn open(&mut self, _: Counts, _: &mut String) {}

    fn token(&mut self, text: &str, _: Counts, out: &mut String) {
        self.token.write(text, out);
    }

    fn close(&mut self, counts: Counts, out: &mut String) {
        event(&chunk(&self.subject, &json!([choice("", Some(self.subject.reason))])), out);
        if self.subject.include_usage {
            let mut last = chunk(&self.subject, &json!([]));
            last["usage"] = counts.usage();
            event(&last, out);
        }
        out.push_str(DONE);
    }

    fn whole(&self, text: &str, counts: Counts) -> Value {
        json!({
            "id": format!("cmpl-{}", self.subject.id), "object": "text_completion",
            "created": self.subject.created_secs, "model": self.subject.model,
            "choices": [choice(text, Some(self.subject.reason))], "usage": counts.usage(),
        })
    }
}
