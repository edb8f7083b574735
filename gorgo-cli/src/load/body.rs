//! Request bodies from trace rows, each written once around the row's text.

use bytes::Bytes;
use gorgo_lab::trace::{PromptText, TraceRow};

use super::client::RequestOptions;
use super::target::ReplayApi;

/// Writes request bodies.
#[derive(Debug)]
pub(crate) struct BodyWriter {
    text: PromptText,
    before: Vec<u8>,
    after: &'static str,
    ignore_eos: bool,
    stream: bool,
}

impl BodyWriter {
    /// A writer for one API and model. `ignore_eos` asks engines (SGLang, vLLM) to generate as many tokens as the trace
    /// did, which they otherwise would not do after a meaningless text.
    pub(crate) fn new(text: PromptText, asked: &RequestOptions, model: &str, ignore_eos: bool) -> Self {
        // The prompt text needs no escaping, so the JSON around it is prepared once per run instead of serializing a
        // document per request.
        let model = serde_json::Value::from(model).to_string();
        let (before, after) = match asked.api {
            ReplayApi::Chat => (format!(r#"{{"model":{model},"messages":[{{"role":"user","content":""#), r#""}]"#),
            ReplayApi::Completions => (format!(r#"{{"model":{model},"prompt":""#), "\""),
        };
        Self { text, before: before.into_bytes(), after, ignore_eos, stream: asked.stream }
    }

    /// The body of a row. A recorded answer of 0 tokens asks for 1, because no API accepts 0.
    pub(crate) fn write(&self, row: &TraceRow) -> Bytes {
        let end = format!(
            r#"{},"max_tokens":{},"temperature":0{}{}}}"#,
            self.after,
            row.output_tokens.max(1),
            if self.ignore_eos { r#","ignore_eos":true"# } else { "" },
            if self.stream { r#","stream":true,"stream_options":{"include_usage":true}"# } else { "" },
        );
        // One allocation of the right size: prompts can be 100 KB and more, and are written while others are due.
        let mut body = Vec::with_capacity(self.before.len() + PromptText::byte_len(row) + end.len());
        body.extend_from_slice(&self.before);
        self.text.append(row, &mut body);
        body.extend_from_slice(end.as_bytes());
        Bytes::from(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> TraceRow {
        TraceRow { input_tokens: 5, output_tokens: 0, blocks: vec![3], ..TraceRow::default() }
    }

    fn asked(api: ReplayApi, stream: bool) -> RequestOptions {
        RequestOptions { api, stream, limit: std::time::Duration::from_secs(1), retries: 0 }
    }

    #[test]
    fn whole_answers_are_asked_for_without_a_word_on_streams() {
        let writer = BodyWriter::new(PromptText::new(16, 0), &asked(ReplayApi::Chat, false), "sim", false);
        let body: serde_json::Value = serde_json::from_slice(&writer.write(&row())).unwrap();
        assert_eq!((body.get("stream"), body.get("stream_options")), (None, None));
        assert_eq!(body["max_tokens"], 1);
    }

    #[test]
    fn a_chat_body_reads_like_this() {
        let writer = BodyWriter::new(PromptText::new(16, 0), &asked(ReplayApi::Chat, true), "a \"quoted\" model", true);
        let body = writer.write(&row());
        insta::assert_snapshot!(std::str::from_utf8(&body).unwrap());
        assert!(serde_json::from_slice::<serde_json::Value>(&body).is_ok());
    }

    #[test]
    fn a_completion_body_reads_like_this() {
        let writer = BodyWriter::new(PromptText::new(16, 0), &asked(ReplayApi::Completions, true), "sim", false);
        let body = writer.write(&row());
        insta::assert_snapshot!(std::str::from_utf8(&body).unwrap());
        assert!(serde_json::from_slice::<serde_json::Value>(&body).is_ok());
    }
}
