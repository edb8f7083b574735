//! Request bodies as the simulated engine reads them.

use serde_json::Value;

use super::pages::PromptPages;
use gorgo_routing::model::ApiPath;

/// Answer length if the request has no limit, tokens; such an answer ends with `stop`, not `length`.
pub(super) const DEFAULT_TOKENS: u32 = 64;

/// Request of a client.
#[derive(Debug)]
pub(super) struct InferenceRequest {
    /// Model that the request names.
    pub(super) model: Option<String>,
    /// Prompts: one, except for embeddings, where each input is one.
    pub(super) prompts: Vec<PromptPages>,
    /// Tokens to generate; 0 for embeddings.
    pub(super) max_tokens: u32,
    /// The request itself set that limit.
    pub(super) limited: bool,
    pub(super) stream: bool,
    /// A stream ends with its token counts.
    pub(super) include_usage: bool,
}

/// Keys of the answer limit in the various APIs; the first one present wins.
const LIMITS: [&str; 3] = ["max_completion_tokens", "max_tokens", "max_output_tokens"];

impl InferenceRequest {
    /// Reads the body of a request to `api`. `model` is used if the body names none.
    ///
    /// # Errors
    /// Description of the fault in the body, for a 400.
    pub(super) fn read(api: ApiPath, body: &[u8], model: &str) -> Result<Self, String> {
        let body: Value = serde_json::from_slice(body).map_err(|cause| format!("the body is not JSON: {cause}"))?;
        if !body.is_object() {
            return Err("the body must be a JSON object".to_owned());
        }
        let named = match &body["model"] {
            Value::Null => None,
            Value::String(name) => Some(name.clone()),
            _ => return Err("model: must be a string".to_owned()),
        };
        // The cache is per model: the prompt's hashes begin with its name.
        let new = || PromptPages::new(named.as_deref().unwrap_or(model));
        let prompts = match api {
            ApiPath::ChatCompletions | ApiPath::Messages => vec![conversation(&body, new())?],
            ApiPath::Completions => vec![one_prompt(&body, "prompt", new())?],
            ApiPath::Responses => vec![response_prompt(&body, new())?],
            ApiPath::Generate => {
                let key = if body["text"].is_null() { "input_ids" } else { "text" };
                vec![one_prompt(&body, key, new())?]
            }
            ApiPath::Embeddings => inputs(&body, new)?,
            ApiPath::Other => return Err("this API is not supported".to_owned()),
        };
        // 0 is a valid limit only where an API allows prefill without an answer.
        let limit = match api {
            ApiPath::Embeddings => Some(0),
            ApiPath::Generate => whole_number(&body["sampling_params"]["max_new_tokens"], "max_new_tokens", 0)?,
            _ => {
                let key = LIMITS.into_iter().find(|key| !body[key].is_null());
                key.map_or(Ok(None), |key| whole_number(&body[key], key, 1))?
            }
        };
        Ok(Self {
            prompts,
            max_tokens: limit.unwrap_or(DEFAULT_TOKENS),
            limited: limit.is_some(),
            stream: flag(&body["stream"], "stream")?,
            include_usage: flag(&body["stream_options"]["include_usage"], "stream_options.include_usage")?,
            model: named,
        })
    }
}

fn flag(value: &Value, key: &str) -> Result<bool, String> {
    match value {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(*flag),
        _ => Err(format!("{key}: must be true or false")),
    }
}

fn whole_number(value: &Value, key: &str, least: u64) -> Result<Option<u32>, String> {
    if value.is_null() {
        return Ok(None);
    }
    match value.as_u64() {
        Some(number) if number >= least => Ok(Some(u32::try_from(number).unwrap_or(u32::MAX))),
        _ => Err(format!("{key}: must be a whole number of at least {least}")),
    }
}

/// Reads chat completions and Anthropic's messages: tools, system text, messages.
fn conversation(body: &Value, mut prompt: PromptPages) -> Result<PromptPages, String> {
    tools(body, &mut prompt);
    if !body["system"].is_null() {
        prompt.mark(b"system");
        content(&body["system"], &mut prompt);
    }
    let messages = body["messages"].as_array().ok_or("messages: must be a list")?;
    if messages.is_empty() {
        return Err("messages: must not be empty".to_owned());
    }
    messages.iter().try_for_each(|message| turn(message, &mut prompt))?;
    Ok(prompt)
}

/// Reads a request of the Responses API: instructions and input, which is a string or a list of turns.
fn response_prompt(body: &Value, mut prompt: PromptPages) -> Result<PromptPages, String> {
    tools(body, &mut prompt);
    prompt.mark(b"system");
    content(&body["instructions"], &mut prompt);
    match &body["input"] {
        Value::String(text) => {
            prompt.mark(b"user");
            prompt.text(text.as_bytes());
        }
        Value::Array(items) => items.iter().try_for_each(|item| turn(item, &mut prompt))?,
        _ => return Err("input: must be a string or a list".to_owned()),
    }
    Ok(prompt)
}

fn tools(body: &Value, prompt: &mut PromptPages) {
    if let Some(tools) = body["tools"].as_array().filter(|tools| !tools.is_empty()) {
        // Tools come before everything else, as in chat templates: a change of tools changes the whole prefix.
        prompt.mark(b"tools");
        tools.iter().for_each(|tool| prompt.text(tool.to_string().as_bytes()));
    }
}

/// Reads one message: its role, its content, and its tool calls.
fn turn(message: &Value, prompt: &mut PromptPages) -> Result<(), String> {
    if !message.is_object() {
        return Err("messages: each must be an object".to_owned());
    }
    // Marks keep apart prompts with the same text in other roles, without counting as tokens.
    prompt.mark(message["role"].as_str().unwrap_or("none").as_bytes());
    content(&message["content"], prompt);
    // Everything that a chat template writes into the prompt counts; other keys of a message are not part of it.
    for key in ["reasoning_content", "tool_calls", "tool_call_id", "name", "arguments", "output"] {
        match &message[key] {
            Value::Null => {}
            other => {
                prompt.mark(key.as_bytes());
                content(other, prompt);
            }
        }
    }
    Ok(())
}

/// Adds content: text unchanged, parts one by one, pictures as pictures, anything else as its JSON.
fn content(value: &Value, prompt: &mut PromptPages) {
    match value {
        Value::Null => {}
        Value::String(text) => prompt.text(text.as_bytes()),
        Value::Array(parts) => parts.iter().for_each(|part| content(part, prompt)),
        Value::Object(part) => {
            let picture = ["image_url", "source", "image"].into_iter().find_map(|key| part.get(key));
            match (part.get("text").and_then(Value::as_str), picture) {
                (Some(text), _) => prompt.text(text.as_bytes()),
                (None, Some(picture)) => prompt.picture(picture.to_string().as_bytes()),
                (None, None) => prompt.text(value.to_string().as_bytes()),
            }
        }
        other => prompt.text(other.to_string().as_bytes()),
    }
}

/// Reads a string, a list of strings, token ids, or a list of lists of token ids, all as one prompt.
fn one_prompt(body: &Value, key: &str, mut prompt: PromptPages) -> Result<PromptPages, String> {
    plain(&body[key], key, &mut prompt)?;
    Ok(prompt)
}

fn plain(value: &Value, key: &str, prompt: &mut PromptPages) -> Result<(), String> {
    match value {
        Value::String(text) => prompt.text(text.as_bytes()),
        Value::Number(id) => {
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
            prompt.token(id.ok_or_else(|| format!("{key}: token ids must be whole numbers below 2^32"))?);
        }
        Value::Array(list) => list.iter().try_for_each(|item| plain(item, key, prompt))?,
        _ => return Err(format!("{key}: must be a string, a list of strings or token ids")),
    }
    Ok(())
}

/// Reads the inputs of an embeddings request, each as a separate prompt.
fn inputs(body: &Value, new: impl Fn() -> PromptPages) -> Result<Vec<PromptPages>, String> {
    let each = |value: &Value| {
        let mut prompt = new();
        plain(value, "input", &mut prompt)?;
        Ok(prompt)
    };
    match &body["input"] {
        Value::Array(list) if list.is_empty() => Err("input: must not be empty".to_owned()),
        // A list of numbers is one prompt as token ids; any other list has one prompt per item.
        Value::Array(list) if !list[0].is_number() => list.iter().map(each).collect(),
        other => Ok(vec![each(other)?]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    fn tokens(api: ApiPath, body: &str) -> Result<Vec<u32>, String> {
        let question = InferenceRequest::read(api, body.as_bytes(), "sim")?;
        Ok(question.prompts.iter().map(PromptPages::tokens).collect())
    }

    #[test]
    fn each_api_s_prompt_is_counted() {
        use ApiPath::{ChatCompletions, Completions, Embeddings, Generate, Messages, Responses};
        let cases = [
            (ChatCompletions, r#"{"messages":[{"role":"user","content":"abcdefgh"}]}"#, vec![2]),
            (
                ChatCompletions,
                r#"{"messages":[{"role":"user","content":[{"type":"text","text":"abcd"},{"type":"image_url","image_url":{"url":"data:x"}}]}]}"#,
                vec![257],
            ),
            (Completions, r#"{"prompt":"abcde"}"#, vec![2]),
            (Completions, r#"{"prompt":[7,8,9]}"#, vec![3]),
            (Completions, r#"{"prompt":["abcd","efgh"]}"#, vec![2]),
            (Responses, r#"{"instructions":"abcd","input":"efgh"}"#, vec![2]),
            (Responses, r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"abcd"}]}]}"#, vec![1]),
            (Messages, r#"{"system":"abcd","messages":[{"role":"user","content":"abcd"}]}"#, vec![2]),
            (Generate, r#"{"text":"abcd"}"#, vec![1]),
            (Generate, r#"{"input_ids":[[1,2],[3]]}"#, vec![3]),
            (Embeddings, r#"{"input":["abcd","abcdefgh"]}"#, vec![1, 2]),
            (Embeddings, r#"{"input":[1,2,3]}"#, vec![3]),
        ];
        for (api, body, expected) in cases {
            assert_eq!(tokens(api, body), Ok(expected), "{body}");
        }
    }

    #[test]
    fn each_api_s_limit_is_honoured() {
        for (api, body, expected) in [
            (ApiPath::Completions, r#"{"prompt":"a"}"#, (DEFAULT_TOKENS, false)),
            (ApiPath::Completions, r#"{"prompt":"a","max_tokens":3}"#, (3, true)),
            (ApiPath::Completions, r#"{"prompt":"a","max_tokens":3,"max_completion_tokens":4}"#, (4, true)),
            (ApiPath::Responses, r#"{"input":"a","max_output_tokens":5}"#, (5, true)),
            (ApiPath::Generate, r#"{"text":"a","sampling_params":{"max_new_tokens":0}}"#, (0, true)),
            (ApiPath::Embeddings, r#"{"input":"a"}"#, (0, true)),
        ] {
            let question = InferenceRequest::read(api, body.as_bytes(), "sim").unwrap();
            assert_eq!((question.max_tokens, question.limited), expected, "{body}");
        }
    }

    #[test]
    fn bad_bodies_are_named() {
        for (api, body, part) in [
            (ApiPath::ChatCompletions, "{", "not JSON"),
            (ApiPath::ChatCompletions, "[]", "must be a JSON object"),
            (ApiPath::ChatCompletions, r#"{"messages":"hi"}"#, "messages"),
            (ApiPath::ChatCompletions, r#"{"messages":[1]}"#, "messages"),
            (ApiPath::Completions, r#"{"prompt":[-1]}"#, "prompt"),
            (ApiPath::Completions, r#"{"prompt":"a","max_tokens":0}"#, "max_tokens"),
            (ApiPath::Completions, r#"{"prompt":"a","stream":"yes"}"#, "stream"),
            (ApiPath::Completions, r#"{"prompt":"a","model":7}"#, "model"),
            (ApiPath::Embeddings, r#"{"input":[]}"#, "input"),
        ] {
            let fault = InferenceRequest::read(api, body.as_bytes(), "sim").unwrap_err();
            assert!(fault.contains(part), "{body}: {fault}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 300, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn no_body_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), api in 0..ApiPath::ALL.len()) {
            let _ = InferenceRequest::read(ApiPath::ALL[api], &bytes, "sim");
        }
    }
}
