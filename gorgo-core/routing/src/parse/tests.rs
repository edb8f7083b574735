//! Reading requests: formats, the canonical prompt, the usage option, and arbitrary bytes.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};

use super::*;
use crate::model::CanonicalSink;

fn config(cases: u32, seed: u64) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..ProptestConfig::default() }
}

/// Keeps what it is given.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
struct CollectedPrompt {
    bytes: Vec<u8>,
    pictures: Vec<(u64, u64)>,
}

impl CanonicalSink for CollectedPrompt {
    fn bytes(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    fn media(&mut self, digest: u64, bytes: u64) {
        self.bytes.push(0xf8);
        self.pictures.push((digest, bytes));
    }
}

fn kept(path: ApiPath, body: &[u8]) -> CollectedPrompt {
    let mut kept = CollectedPrompt::default();
    read_head(path, body).unwrap().canonical(&mut kept).unwrap();
    kept
}

fn chat(body: &Value) -> CollectedPrompt {
    kept(ApiPath::ChatCompletions, body.to_string().as_bytes())
}

fn messages(list: &Value) -> CollectedPrompt {
    chat(&json!({"model": "m", "messages": list}))
}

fn refused(path: ApiPath, body: &str) -> String {
    read_head(path, body.as_bytes()).unwrap_err().to_string()
}

#[test]
fn every_path_has_one_format() {
    for path in ApiPath::ALL {
        assert_eq!(FORMATS.iter().filter(|format| format.path == path).count(), 1, "{}", path.name());
    }
    assert_eq!(FORMATS.len(), ApiPath::ALL.len());
}

// The head.

#[test]
fn the_head_of_a_chat() {
    let body = br#" {"model":"q\u00e9","stream":true,"max_tokens":5,"max_completion_tokens":7,"n":2,"user":"u",
        "lora_path":"ad","cache_salt":"s","previous_response_id":"r","unknown":{"deep":[1e400,-0,null]},
        "messages":[]}"#;
    let head = read_head(ApiPath::ChatCompletions, body).unwrap();
    assert_eq!(head.model.as_deref(), Some("qé"));
    assert!(head.stream);
    assert_eq!((head.max_tokens, head.exact_tokens), (Some(7), None));
    assert_eq!(head.user.as_deref(), Some("u"));
    assert_eq!((head.adapter.as_deref(), head.cache_salt.as_deref()), (Some("ad"), Some("s")));
    assert!(
        matches!(head.model, Some(std::borrow::Cow::Owned(_)))
            && matches!(head.user, Some(std::borrow::Cow::Borrowed(_)))
    );
}

#[test]
fn limits_have_many_names() {
    let limit = |path, body: &str| read_head(path, body.as_bytes()).unwrap().max_tokens;
    assert_eq!(limit(ApiPath::Responses, r#"{"input":"a","max_output_tokens":9}"#), Some(9));
    assert_eq!(limit(ApiPath::Generate, r#"{"text":"a","sampling_params":{"max_new_tokens":8}}"#), Some(8));
    assert_eq!(limit(ApiPath::Messages, r#"{"messages":[],"max_tokens":16.0}"#), Some(16));
    assert_eq!(limit(ApiPath::Completions, r#"{"prompt":"a","max_tokens":99999999999}"#), Some(u32::MAX));
    for odd in ["null", "-1", "1.5", "\"7\"", "[]", "{}"] {
        let body = format!(r#"{{"prompt":"a","max_tokens":{odd}}}"#);
        assert_eq!(limit(ApiPath::Completions, &body), None, "{odd}");
    }
}

#[test]
fn a_stream_is_what_an_engine_takes_for_one() {
    for (value, stream) in [
        ("true", true),
        ("1", true),
        (r#""True""#, true),
        ("false", false),
        ("null", false),
        ("0", false),
        ("[]", false),
    ] {
        let body = format!(r#"{{"prompt":"a","stream":{value}}}"#);
        assert_eq!(read_head(ApiPath::Completions, body.as_bytes()).unwrap().stream, stream, "{value}");
    }
    let twice = br#"{"stream":true,"prompt":"a","stream":false}"#;
    assert!(!read_head(ApiPath::Completions, twice).unwrap().stream);
}

#[test]
fn the_user_may_stand_in_metadata() {
    let body = br#"{"messages":[],"metadata":{"user_id":"claude-7"}}"#;
    assert_eq!(read_head(ApiPath::Messages, body).unwrap().user.as_deref(), Some("claude-7"));
}

#[test]
fn token_ids_are_counted_exactly() {
    let count = |path, body: &str| read_head(path, body.as_bytes()).unwrap().exact_tokens;
    assert_eq!(count(ApiPath::Completions, r#"{"prompt":[1, 2,3],"n":4}"#), Some(3));
    assert_eq!(count(ApiPath::Completions, r#"{"prompt":[[1,2],[3],[]]}"#), Some(3));
    assert_eq!(count(ApiPath::Completions, r#"{"prompt":["a","b"]}"#), None);
    assert_eq!(count(ApiPath::Completions, r#"{"prompt":[]}"#), None);
    assert_eq!(count(ApiPath::Embeddings, r#"{"input":[7,4294967295]}"#), Some(2));
    assert_eq!(count(ApiPath::Generate, r#"{"input_ids":[[1],[2]]}"#), Some(2));
}

#[test]
fn what_no_engine_could_take_is_refused_by_name() {
    use ApiPath::{ChatCompletions as Chat, Completions, Embeddings, Generate, Messages, Responses};
    let refusals: Vec<String> = [
        (Chat, ""),
        (Chat, "nonsense"),
        (Chat, r#""my secret prompt""#),
        (Chat, r#"[{"messages":[]}]"#),
        (Chat, r#"{"messages":[]} trailing"#),
        (Chat, r#"{"messages":[{"content":"my secret"#),
        (Chat, r#"{"model":"m"}"#),
        (Chat, r#"{"messages":null}"#),
        (Chat, r#"{"messages":"my secret prompt"}"#),
        (Chat, r#"{"messages":["my secret prompt"]}"#),
        (Chat, r#"{"messages":{"my secret prompt":1}}"#),
        (Chat, r#"{"messages":[],"model":5}"#),
        (Messages, r#"{"system":"s"}"#),
        (Completions, r#"{"model":"m"}"#),
        (Completions, r#"{"prompt":5}"#),
        (Completions, r#"{"prompt":[1,"my secret prompt"]}"#),
        (Completions, r#"{"prompt":[1,-1]}"#),
        (Completions, r#"{"prompt":[1.5]}"#),
        (Completions, r#"{"prompt":[[1],[4294967296]]}"#),
        (Embeddings, "{}"),
        (Responses, "{}"),
        (Responses, r#"{"input":{}}"#),
        (Generate, "{}"),
    ]
    .into_iter()
    .map(|(path, body)| refused(path, body))
    .collect();
    assert!(refusals.iter().all(|text| !text.contains("secret")), "{refusals:?}");
    insta::assert_snapshot!(refusals.join("\n"));
    let broken = read_head(ApiPath::ChatCompletions, b"{\"messages\":[],\"a\":\"\xff\"}").unwrap_err();
    assert_eq!(broken, ParseError::NotUtf8 { at: 20 });
}

#[test]
fn other_paths_take_anything() {
    for body in [&b""[..], b"\xff\xfe\x00", b"5", b"[1]", b"{\"model\":5,\"messages\":7}", b"{\"a\""] {
        let head = read_head(ApiPath::Other, body).unwrap();
        assert_eq!(head.model, None);
        let mut sink = CollectedPrompt::default();
        head.canonical(&mut sink).unwrap();
        assert_eq!(sink, CollectedPrompt::default());
    }
    let rerank = kept(ApiPath::Other, br#"{"model":"m","query":"q","documents":["a","b"]}"#);
    assert!(rerank.bytes.len() > 3);
}

#[test]
fn members_that_mean_nothing_on_a_path_are_not_judged() {
    assert!(read_head(ApiPath::Completions, br#"{"prompt":"a","messages":7}"#).is_ok());
    assert!(read_head(ApiPath::ChatCompletions, br#"{"messages":[],"prompt":7,"input":{}}"#).is_ok());
    assert!(read_head(ApiPath::ChatCompletions, br#"{"messages":[],"\ud800":"\udfff"}"#).is_ok());
}

#[test]
fn depth_is_refused_and_does_not_overflow_the_stack() {
    let bomb = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let deep = format!(r#"{{"messages":[{{"role":"user","content":"a","x":{}}}]}}"#, bomb(1_000_000));
    let head = read_head(ApiPath::ChatCompletions, deep.as_bytes()).unwrap();
    assert_eq!(head.canonical(&mut CollectedPrompt::default()), Err(ParseError::TooDeep));
    for place in [r#"{"messages":[],"tools":X}"#, r#"{"messages":[{"content":[{"type":"x","y":X}]}]}"#] {
        let deep = place.replace('X', &bomb(100_000));
        let head = read_head(ApiPath::ChatCompletions, deep.as_bytes()).unwrap();
        assert_eq!(head.canonical(&mut CollectedPrompt::default()), Err(ParseError::TooDeep), "{place}");
    }
    let prompt = format!(r#"{{"prompt":{}}}"#, bomb(100_000));
    let refusal = read_head(ApiPath::Completions, prompt.as_bytes()).map(|_| ());
    assert_eq!(refusal, Err(ParseError::NotTokenIds { field: "prompt" }));
    // Where it is no part of the prompt, it is the engine's to judge.
    let unknown = format!(r#"{{"messages":[],"x":{}}}"#, bomb(100_000));
    assert_eq!(kept(ApiPath::ChatCompletions, unknown.as_bytes()), CollectedPrompt::default());
}

#[test]
fn a_head_shows_no_prompt() {
    let body = br#"{"messages":[{"role":"user","content":"my secret prompt"}],"user":"anna","cache_salt":"salz"}"#;
    let shown = format!("{:?}", read_head(ApiPath::ChatCompletions, body).unwrap());
    for hidden in ["secret", "anna", "salz"] {
        assert!(!shown.contains(hidden), "{shown}");
    }
}

// The canonical prompt.

#[test]
fn the_canonical_form_of_a_chat() {
    let body = br#"{"messages": [{"content": "a\"\n\u00e9\/", "role": "user", "name": "x", "tool_calls": null}],
        "tools": [ {"type" : "function"} ], "chat_template_kwargs": {"enable_thinking": false}, "temperature": 1}"#;
    let kept = kept(ApiPath::ChatCompletions, body);
    let mut expected = vec![canonical::TOOLS];
    expected.extend(br#"[{"type":"function"}]"#);
    expected.extend([&[canonical::MESSAGE][..], b"user", &[canonical::CONTENT], "a\\\"\\né/".as_bytes()].concat());
    expected.extend([&[canonical::MEMBER][..], b"name", &[canonical::VALUE], br#""x""#].concat());
    expected.extend([&[canonical::TAIL, canonical::MEMBER][..], b"chat_template_kwargs", &[canonical::VALUE]].concat());
    expected.extend(br#"{"enable_thinking":false}"#);
    assert_eq!(String::from_utf8_lossy(&kept.bytes), String::from_utf8_lossy(&expected));
    assert_eq!(kept.bytes, expected);
}

#[test]
fn equal_prompts_are_equal_however_written() {
    let plain = messages(&json!([{"role": "user", "content": "hello"}]));
    for same in [
        json!([{"content": "hello", "role": "user"}]),
        json!([{"role": "user", "content": [{"type": "text", "text": "hello"}]}]),
        json!([{"role": "user", "content": ["hello"]}]),
        json!([{"role": "user", "content": [{"text": "hello", "type": "text", "cache_control": {"type": "ephemeral"}}]}]),
        json!([{"role": "user", "content": "hello", "name": null, "tool_calls": null}]),
    ] {
        assert_eq!(messages(&same), plain, "{same}");
    }
    assert_eq!(kept(ApiPath::Responses, br#"{"input":"hello"}"#), plain);
    assert_eq!(kept(ApiPath::Responses, br#"{"input":[{"type":"message","role":"user","id":"msg_1","content":[{"type":"input_text","text":"hello"}]}]}"#), plain);
    assert_eq!(kept(ApiPath::Messages, br#"{"messages":[{"role":"user","content":"hello"}]}"#), plain);
    let with_system = messages(&json!([{"role": "system", "content": "s"}, {"role": "user", "content": "hello"}]));
    assert_eq!(
        kept(ApiPath::Messages, br#"{"messages":[{"role":"user","content":"hello"}],"system":"s"}"#),
        with_system
    );
    assert_eq!(kept(ApiPath::Responses, br#"{"input":"hello","instructions":"s"}"#), with_system);
    assert_eq!(kept(ApiPath::Completions, br#"{"prompt":"x"}"#), kept(ApiPath::Generate, br#"{"text":"\u0078"}"#));
    assert_eq!(
        kept(ApiPath::Completions, br#"{"prompt":[1,2]}"#),
        kept(ApiPath::Generate, br#"{"input_ids":[ 1, 2 ]}"#)
    );
}

#[test]
fn different_prompts_are_different() {
    let list = json!([{"role": "user", "content": "hello"}]);
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let different = [
        chat(&json!({"messages": list})),
        chat(&json!({"messages": list, "tools": tools})),
        chat(&json!({"messages": list, "tools": tools, "tool_choice": "none"})),
        chat(&json!({"messages": list, "documents": ["d"]})),
        chat(&json!({"messages": list, "chat_template_kwargs": {"a": 1}})),
        chat(&json!({"messages": list, "reasoning_effort": "low"})),
        messages(&json!([{"role": "system", "content": "hello"}])),
        messages(&json!([{"role": "user", "content": ["he", "llo"]}])),
        messages(&json!([{"role": "user", "content": "hello", "name": "x"}])),
        messages(&json!([{"role": "user", "content": "he"}, {"role": "user", "content": "llo"}])),
        messages(&json!([{"role": "user", "content": "user\u{fffd}hello"}])),
        kept(ApiPath::Completions, br#"{"prompt":"hello"}"#),
        kept(ApiPath::Completions, br#"{"prompt":["he","llo"]}"#),
        kept(ApiPath::Completions, br#"{"prompt":[104,101]}"#),
        kept(ApiPath::Completions, br#"{"prompt":[[104],[101]]}"#),
    ];
    for (index, one) in different.iter().enumerate() {
        for other in &different[index + 1..] {
            assert_ne!(one, other);
        }
    }
    // What only steers sampling does not part cache entries.
    let steered = json!({"messages": list, "temperature": 0.5, "response_format": {"type": "json_object"}, "tool_choice": "auto"});
    assert_eq!(chat(&steered), different[0]);
}

#[test]
fn token_ids_are_four_bytes_each() {
    let ids: Vec<u32> = (0..200).map(|id| id * 700).collect();
    let kept = kept(ApiPath::Completions, json!({"prompt": ids}).to_string().as_bytes());
    let expected: Vec<u8> =
        std::iter::once(canonical::TOKENS).chain(ids.iter().flat_map(|id| id.to_le_bytes())).collect();
    assert_eq!(kept.bytes, expected);
}

#[test]
fn base64_is_digested_and_addresses_are_not() {
    let data = "iVBORw0KGgo/".repeat(2000);
    let picture = |url: &str| {
        messages(&json!([{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "what is it"}]}]))
    };
    let (one, same) =
        (picture(&format!("data:image/png;base64,{data}")), picture(&format!("data:image/png;base64,{data}")));
    assert_eq!(one, same);
    assert_eq!(one.pictures[0].1, 24_022);
    assert!(one.bytes.len() < 100);
    assert_ne!(one, picture(&format!("data:image/png;base64,{data}A")));
    let address = picture("https://example.org/a.png");
    assert!(address.pictures.is_empty());
    assert!(address.bytes.windows(9).any(|window| window == b"/a.png\xfd" || window == b"org/a.png"));
    // A client that escapes slashes sends the same picture.
    let escaped = json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}}]}]});
    let plain = kept(ApiPath::ChatCompletions, escaped.to_string().as_bytes());
    let slashed = kept(ApiPath::ChatCompletions, escaped.to_string().replace('/', "\\/").as_bytes());
    assert_eq!(plain.pictures[0].0, slashed.pictures[0].0);
    // Anthropic's and SGLang's ways, and sound.
    let source = json!({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}]}]});
    assert_eq!(kept(ApiPath::Messages, source.to_string().as_bytes()).pictures[0].1, 24_000);
    let result = json!({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": {"data": data}}]}]}]});
    assert_eq!(kept(ApiPath::Messages, result.to_string().as_bytes()).pictures.len(), 1);
    let beside = json!({"text": "<image>", "image_data": [data, "https://example.org/b.png"]});
    assert_eq!(kept(ApiPath::Generate, beside.to_string().as_bytes()).pictures.len(), 1);
    let sound = messages(
        &json!([{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}]}]),
    );
    assert_eq!(sound.pictures.len(), 1);
    // Text that looks like one is text.
    assert!(messages(&json!([{"role": "user", "content": format!("data:{data}")}])).pictures.is_empty());
}

/// JSON of `value` with escapes and white space chosen by `choices`.
fn write_oddly(value: &Value, choices: &mut impl Iterator<Item = u8>, out: &mut String) {
    let mut choice = || choices.next().unwrap_or(0);
    let gap = |out: &mut String, choice: u8| out.push_str(["", "", " ", "\n", "\t ", "\r\n"][usize::from(choice % 6)]);
    match value {
        Value::String(text) => {
            out.push('"');
            for letter in text.chars() {
                match (choice() % 4, letter) {
                    (0, _) => {
                        letter.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04X}")))
                    }
                    (1, '/') => out.push_str("\\/"),
                    _ => {
                        let quoted = Value::String(letter.to_string()).to_string();
                        out.push_str(&quoted[1..quoted.len() - 1]);
                    }
                }
            }
            out.push('"');
        }
        Value::Array(list) => {
            out.push('[');
            for (index, element) in list.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                gap(out, choices.next().unwrap_or(0));
                write_oddly(element, choices, out);
                gap(out, choices.next().unwrap_or(0));
            }
            out.push(']');
        }
        Value::Object(table) => {
            out.push('{');
            for (index, (key, member)) in table.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                gap(out, choices.next().unwrap_or(0));
                write_oddly(&Value::String(key.clone()), choices, out);
                gap(out, choices.next().unwrap_or(0));
                out.push(':');
                gap(out, choices.next().unwrap_or(0));
                write_oddly(member, choices, out);
                gap(out, choices.next().unwrap_or(0));
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z /\\\\\"u\n\t\u{1}\u{7f}\u{8}é漢😀]{0,40}",
        proptest::collection::vec(any::<char>(), 0..20).prop_map(|letters| letters.into_iter().collect()),
    ]
}

fn message() -> impl Strategy<Value = Value> {
    let role = prop_oneof![Just("user"), Just("assistant"), Just("system"), Just("tool")];
    let content = prop_oneof![
        text().prop_map(Value::String),
        Just(Value::Null),
        proptest::collection::vec(text(), 0..3)
            .prop_map(|parts| parts.into_iter().map(|text| json!({"type": "text", "text": text})).collect()),
        (text(), text()).prop_map(|(text, url)| json!([{"type": "image_url", "image_url": {"url": url}}, text])),
    ];
    (role, content, proptest::option::of(text())).prop_map(|(role, content, name)| match name {
        Some(name) => json!({"role": role, "content": content, "tool_calls": [{"id": name, "x": {}}]}),
        None => json!({"role": role, "content": content}),
    })
}

fn conversation() -> impl Strategy<Value = Vec<Value>> {
    proptest::collection::vec(message(), 0..6)
}

proptest! {
    #![proptest_config(config(400, 21))]

    #[test]
    fn escapes_and_white_space_do_not_matter(
        list in conversation(), tools in proptest::option::of(text()), choices in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        let body = json!({"model": "m", "messages": list, "tools": tools.map(|name| json!([{"name": name, "n": 1.0}]))});
        let mut odd = String::new();
        write_oddly(&body, &mut choices.into_iter().cycle().take(20_000), &mut odd);
        prop_assert_eq!(&serde_json::from_str::<Value>(&odd).unwrap(), &body);
        prop_assert_eq!(kept(ApiPath::ChatCompletions, odd.as_bytes()), chat(&body));
        let items = json!({"input": list}).to_string();
        let mut odd = String::new();
        write_oddly(&json!({"input": list}), &mut std::iter::repeat_n(0, 20_000), &mut odd);
        prop_assert_eq!(kept(ApiPath::Responses, odd.as_bytes()), kept(ApiPath::Responses, items.as_bytes()));
    }

    #[test]
    fn different_texts_give_different_bytes(one in text(), other in text()) {
        let of = |text: &str| messages(&json!([{"role": "user", "content": text}]));
        prop_assert_eq!(of(&one) == of(&other), one == other);
    }

    #[test]
    fn a_conversation_that_goes_on_keeps_its_beginning(list in conversation(), next in conversation()) {
        let longer: Vec<Value> = list.iter().chain(&next).cloned().collect();
        let tools = json!([{"name": "f"}]);
        let (short, long) = (chat(&json!({"messages": list, "tools": tools})), chat(&json!({"messages": longer, "tools": tools})));
        prop_assert!(long.bytes.starts_with(&short.bytes));
        prop_assert!(long.pictures.starts_with(&short.pictures));
    }

    #[test]
    fn items_and_messages_are_the_same(list in conversation()) {
        let items = kept(ApiPath::Responses, json!({"input": list}).to_string().as_bytes());
        prop_assert_eq!(items, messages(&Value::Array(list)));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for path in ApiPath::ALL {
            if let Ok(head) = read_head(path, &bytes) {
                let _ = head.canonical(&mut CollectedPrompt::default());
            }
        }
    }

    #[test]
    fn mutated_json_never_panics(
        list in conversation(), places in proptest::collection::vec((any::<usize>(), any::<u8>(), 0_u8..3), 1..6),
    ) {
        let body = json!({"model": "m", "stream": true, "stream_options": {"x": 1}, "messages": list, "prompt": [[1, 2]],
            "input": list, "input_ids": [1], "system": "s", "tools": [], "sampling_params": {"max_new_tokens": 3}});
        let mut bytes = body.to_string().into_bytes();
        for (place, byte, kind) in places {
            let at = place % bytes.len();
            // Mostly bytes that mean something in JSON, so that many mutants stay valid.
            let byte = if byte < 200 { b"{}[]:,\"\\u0nt19 -"[usize::from(byte) % 16] } else { byte };
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        for path in ApiPath::ALL {
            if let Ok(head) = read_head(path, &bytes) {
                let _ = head.canonical(&mut CollectedPrompt::default());
                let valid = serde_json::from_slice::<Value>(&bytes);
                if let (Some(splice), Ok(mut valid)) = (head.usage_splice, valid) {
                    let spliced: Value = serde_json::from_slice(&apply(&bytes, &splice)).unwrap();
                    ask(&mut valid);
                    prop_assert_eq!(spliced, valid);
                }
            }
        }
    }
}

// The usage option.

fn apply(body: &[u8], splice: &crate::model::BodySplice) -> Vec<u8> {
    [&body[..splice.offset], &splice.text, &body[splice.offset + splice.removed_bytes..]].concat()
}

/// What the splice should do to the value.
fn ask(body: &mut Value) {
    match &mut body["stream_options"] {
        Value::Object(options) => drop(options.insert("include_usage".into(), true.into())),
        options => *options = json!({"include_usage": true}),
    }
}

#[test]
fn the_usage_option_is_added_where_it_is_not_asked_for() {
    let spliced = |body: &str| {
        let splice = read_head(ApiPath::ChatCompletions, body.as_bytes()).unwrap().usage_splice;
        splice.map(|splice| String::from_utf8(apply(body.as_bytes(), &splice)).unwrap())
    };
    let cases = [
        r#"{"messages":[],"stream":true}"#,
        " \n{ \"messages\":[],\"stream\":true}",
        r#"{"messages":[],"stream":true,"stream_options":{}}"#,
        r#"{"messages":[],"stream":true,"stream_options":{ }}"#,
        r#"{"messages":[],"stream":true,"stream_options": {"continuous_usage_stats":true}}"#,
        r#"{"messages":[],"stream":true,"stream_options":{"include_usage" : false}}"#,
        r#"{"messages":[],"stream":true,"stream_options":{"include_usage":null,"x":[1]}}"#,
        r#"{"messages":[],"stream":true,"stream_options":null}"#,
        r#"{"messages":[],"stream_options":{"include_usage":true},"stream":true,"stream_options":{}}"#,
        r#"{"messages":[],"stream":true,"stream_options":{"include_usage":true,"include_usage":false}}"#,
        r#"{"messages":[],"stream":true,"stream_options":{"include\u005fusage":false}}"#,
    ];
    let shown: Vec<String> = cases.iter().map(|body| spliced(body).unwrap()).collect();
    insta::assert_snapshot!(shown.join("\n"));
    for body in [
        r#"{"messages":[]}"#,
        r#"{"messages":[],"stream":false}"#,
        r#"{"messages":[],"stream":null,"stream_options":{}}"#,
        r#"{"messages":[],"stream":true,"stream_options":{"include_usage":true}}"#,
        r#"{"messages":[],"stream":true,"stream_options":{"include_usage":false,"include_usage":true}}"#,
        r#"{"messages":[],"stream":true,"stream_options":"x"}"#,
    ] {
        assert_eq!(spliced(body), None, "{body}");
    }
    for (path, body) in [
        (ApiPath::Generate, r#"{"text":"a","stream":true}"#),
        (ApiPath::Messages, r#"{"messages":[],"stream":true}"#),
        (ApiPath::Responses, r#"{"input":"a","stream":true}"#),
    ] {
        assert_eq!(read_head(path, body.as_bytes()).unwrap().usage_splice, None);
    }
}

fn options() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({})),
        Just(Value::Null),
        Just(json!({"include_usage": false})),
        Just(json!({"include_usage": null})),
        Just(json!({"a": {"include_usage": true}, "z": "}"})),
        Just(json!({"a": 1, "include_usage": false, "z": [1]})),
    ]
}

proptest! {
    #![proptest_config(config(300, 22))]

    #[test]
    fn a_splice_changes_the_usage_option_and_nothing_else(
        list in conversation(), options in proptest::option::of(options()), choices in proptest::collection::vec(any::<u8>(), 1..200),
    ) {
        let mut body = json!({"model": "m", "messages": list, "stream": true});
        if let Some(options) = options {
            body["stream_options"] = options;
        }
        let mut odd = String::new();
        write_oddly(&body, &mut choices.into_iter().cycle().take(20_000), &mut odd);
        let splice = read_head(ApiPath::ChatCompletions, odd.as_bytes()).unwrap().usage_splice.unwrap();
        let spliced: Value = serde_json::from_slice(&apply(odd.as_bytes(), &splice)).unwrap();
        ask(&mut body);
        prop_assert_eq!(spliced, body);
        prop_assert!(splice.removed_bytes <= 30 && splice.text.len() <= 50);
    }
}
