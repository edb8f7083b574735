//! The reader of streams: every split of a stream gives the same observations and bytes.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

use super::*;

fn config(seed: u64) -> Config {
    Config { rng_seed: RngSeed::Fixed(seed), failure_persistence: None, cases: 256, ..Config::default() }
}

/// Feeds the pieces, one millisecond apart from `start`; `step` 0 gives all of them the same time.
fn feed(reader: &mut StreamReader, pieces: &[&[u8]], step: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        reader.push(&Bytes::copy_from_slice(piece), UnixMicros(1_000 + step * u64::try_from(index).unwrap()), &mut out);
    }
    reader.finish(UnixMicros(1_000), &mut out);
    out.concat()
}

fn read(dialect: StreamDialect, text: &str) -> StreamObservation {
    let mut reader = StreamReader::new(Some(dialect), false);
    let out = feed(&mut reader, &[text.as_bytes()], 0);
    assert_eq!(out, text.as_bytes());
    reader.observed().clone()
}

const CHAT: &str = concat!(
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}],\"usage\":null}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"say \\\"usage\\\":{\"},\"finish_reason\":null}],\"usage\":null}\n\n",
    ": comment\n\n",
    "id: 7\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" b\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n",
    "data: [DONE]\n\n",
);

fn without_usage(text: &str) -> String {
    let from = text.find("data: {\"choices\":[],\"usage\"").unwrap();
    let to = text.find("data: [DONE]").unwrap();
    format!("{}{}", &text[..from], &text[to..])
}

/// Results that must not depend on the chunking.
fn essence(observed: &StreamObservation) -> (Option<UnixMicros>, u64, TokenUsage, bool, bool, Option<StreamError>) {
    (observed.first_content, observed.content_events, observed.usage, observed.done, observed.finished, observed.error)
}

#[test]
fn a_chat_stream_is_read() {
    let observed = read(StreamDialect::Chat, CHAT);
    assert_eq!(observed.content_events, 2);
    assert!(observed.done && observed.finished && observed.error.is_none());
    assert_eq!(
        observed.usage,
        TokenUsage { prompt_tokens: Some(9), cached_tokens: Some(4), completion_tokens: Some(2) }
    );
}

#[test]
fn content_of_any_kind_counts_and_a_role_does_not() {
    let delta = |delta: &str| {
        read(StreamDialect::Chat, &format!("data: {{\"choices\":[{{\"delta\":{delta},\"finish_reason\":null}}]}}\n\n"))
            .first_content
            .is_some()
    };
    for content in [
        r#"{"content":"a"}"#,
        r#"{"content" : "a"}"#,
        r#"{"role":"assistant","content":null,"reasoning_content":"hm"}"#,
        r#"{"reasoning":"hm"}"#,
        r#"{"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]}"#,
        r#"{"refusal":"no"}"#,
        r#"{"audio":{"data":"aa"}}"#,
    ] {
        assert!(delta(content), "{content}");
    }
    for nothing in [
        "{}",
        r#"{"role":"assistant","content":""}"#,
        r#"{"role":"assistant","content":null,"tool_calls":[ ],"reasoning":null}"#,
        r#"{"role":"content"}"#,
    ] {
        assert!(!delta(nothing), "{nothing}");
    }
}

#[test]
fn other_dialects_are_read() {
    let completions = read(
        StreamDialect::Completions,
        "data: {\"choices\":[{\"text\":\"\"}]}\n\ndata: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"length\"}]}\n\n",
    );
    assert_eq!((completions.content_events, completions.finished, completions.done), (1, true, false));

    let messages = read(
        StreamDialect::Messages,
        concat!(
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":4,\"output_tokens\":1}}}\n\n",
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
            "event: ping\ndata: {\"type\": \"ping\"}\n\n",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n",
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":12}}\n\n",
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ),
    );
    assert_eq!((messages.content_events, messages.done), (1, true));
    assert_eq!(
        messages.usage,
        TokenUsage { prompt_tokens: Some(9), cached_tokens: Some(4), completion_tokens: Some(12) }
    );

    let responses = read(
        StreamDialect::Responses,
        concat!(
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"error\":null,\"reasoning\":{\"effort\":null},\"text\":{\"format\":{}}}}\n\n",
            "data: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\n\n",
            "event: response.function_call_arguments.delta\ndata: {\"delta\":\"{\"}\n\n",
            "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"error\":null,\"usage\":{\"input_tokens\":9,\"output_tokens\":2}}}\n\n",
        ),
    );
    assert_eq!((responses.content_events, responses.done, responses.error), (2, true, None));
    assert_eq!(responses.usage.prompt_tokens, Some(9));

    let generate = read(
        StreamDialect::Generate,
        concat!(
            "data: {\"text\":\"\",\"output_ids\":[],\"meta_info\":{\"finish_reason\":null,\"prompt_tokens\":9,\"completion_tokens\":0}}\n\n",
            "data: {\"text\":\"a\",\"meta_info\":{\"finish_reason\":{\"type\":\"length\"},\"prompt_tokens\":9,\"completion_tokens\":3,\"cached_tokens\":8}}\n\n",
            "data: [DONE]\n\n",
        ),
    );
    assert_eq!((generate.content_events, generate.finished), (1, true));
    assert_eq!(
        generate.usage,
        TokenUsage { prompt_tokens: Some(9), cached_tokens: Some(8), completion_tokens: Some(3) }
    );
}

#[test]
fn error_events_are_seen() {
    let queue_full =
        read(StreamDialect::Chat, "data: {\"error\": {\"message\": \"full\", \"code\": 503}}\n\ndata: [DONE]\n\n");
    assert_eq!(queue_full.error, Some(StreamError { code: Some(503) }));
    let old = read(StreamDialect::Chat, "data: {\"object\":\"error\",\"message\":\"no\",\"code\":400}\n\n");
    assert_eq!(old.error, Some(StreamError { code: Some(400) }));
    let named = read(
        StreamDialect::Messages,
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
    );
    assert_eq!(named.error, Some(StreamError { code: None }));
    let failed = read(
        StreamDialect::Responses,
        "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_error\"}}}\n\n",
    );
    assert_eq!(failed.error, Some(StreamError { code: None }));
    let none = read(
        StreamDialect::Chat,
        "data: {\"choices\":[{\"delta\":{\"content\":\"{\\\"error\\\":{}}\"}}],\"error\":null}\n\n",
    );
    assert_eq!(none.error, None);
}

#[test]
fn the_extra_usage_chunk_is_taken_out_at_every_split() {
    let wanted = without_usage(CHAT);
    for line_end in ["\n", "\r\n", "\r"] {
        let text = CHAT.replace('\n', line_end);
        let wanted = wanted.replace('\n', line_end);
        for split in 0..=text.len() {
            let mut reader = StreamReader::new(Some(StreamDialect::Chat), true);
            let (head, tail) = text.as_bytes().split_at(split);
            let out = feed(&mut reader, &[head, tail], 0);
            assert_eq!(String::from_utf8_lossy(&out), wanted, "split at {split}");
            assert_eq!(reader.observed().usage.completion_tokens, Some(2));
        }
    }
}

#[test]
fn usage_beside_content_stays() {
    let text = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":1}}\n\n";
    let mut reader = StreamReader::new(Some(StreamDialect::Chat), true);
    assert_eq!(feed(&mut reader, &[text.as_bytes()], 0), text.as_bytes());
}

#[test]
fn content_is_not_held_back_beyond_its_line() {
    let mut reader = StreamReader::new(Some(StreamDialect::Chat), true);
    let mut out = Vec::new();
    reader.push(&Bytes::from_static(b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}"), UnixMicros(1), &mut out);
    assert_eq!(out.concat(), b"");
    reader.push(&Bytes::from_static(b"\n"), UnixMicros(2), &mut out);
    assert!(out.concat().ends_with(b"]}\n"));
    reader.push(&Bytes::from_static(b"\n: still here"), UnixMicros(2), &mut out);
    assert!(out.concat().ends_with(b"\n\n: still here"));
}

#[test]
fn json_over_several_data_lines_is_one_event() {
    let text = "data: {\"choices\":[],\ndata:\"usage\":{\"prompt_tokens\":3}}\n\ndata: [DONE]\n\n";
    for split in 0..=text.len() {
        let mut reader = StreamReader::new(Some(StreamDialect::Chat), true);
        let (head, tail) = text.as_bytes().split_at(split);
        assert_eq!(feed(&mut reader, &[head, tail], 0), b"data: [DONE]\n\n");
        assert_eq!(reader.observed().usage.prompt_tokens, Some(3));
    }
}

#[test]
fn an_endless_event_is_passed_on_but_not_kept() {
    let mut reader = StreamReader::new(Some(StreamDialect::Chat), true);
    let mut out = Vec::new();
    let piece = Bytes::from(vec![b'a'; 1 << 20]);
    reader.push(&Bytes::from_static(b"data: {"), UnixMicros(1), &mut out);
    for _ in 0..20 {
        reader.push(&piece, UnixMicros(1), &mut out);
    }
    assert!(reader.observed().overlong);
    assert_eq!(out.iter().map(Bytes::len).sum::<usize>(), 7 + (20 << 20));
    assert!(reader.view.held.is_empty() && reader.events.kept_bytes() == 0);
}

#[test]
fn gaps_are_between_content_events() {
    let event = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n".as_bytes();
    let mut reader = StreamReader::new(Some(StreamDialect::Chat), false);
    feed(&mut reader, &[event, b": wait\n\n", event, event], 5_000);
    assert_eq!(reader.observed().gaps.quantile(500), Some(5_000));
    assert_eq!(reader.observed().gaps.quantile(990), Some(10_000));
    assert_eq!(reader.observed().mean_gap(), None);
}

/// One line of a stream, in legal and less legal forms.
fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just(": comment".to_owned()),
        Just("event: message".to_owned()),
        Just("id:3".to_owned()),
        Just("data:{\"choices\":[{\"delta\":{\"content\":\"x\"}}]}".to_owned()),
        Just("data: {\"choices\":[{\"delta\":{\"reasoning\":\"x\"}}],\"usage\":null}".to_owned()),
        Just("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5}}".to_owned()),
        Just("data: {\"choices\":[],".to_owned()),
        Just("data: \"usage\":{\"prompt_tokens\":6}}".to_owned()),
        Just("data: {\"error\":{\"code\":500}}".to_owned()),
        Just("data: [DONE]".to_owned()),
        Just("data".to_owned()),
        "[a-z:\u{e9}\" ]{0,12}",
    ]
}

fn cut(bytes: &[u8], at: &[usize]) -> Vec<Vec<u8>> {
    let mut places: Vec<usize> = at.iter().map(|place| place % (bytes.len() + 1)).collect();
    places.sort_unstable();
    let mut pieces = Vec::new();
    let mut from = 0;
    for place in places {
        pieces.push(bytes[from..place].to_vec());
        from = place;
    }
    pieces.push(bytes[from..].to_vec());
    pieces
}

proptest! {
    #![proptest_config(config(41))]

    #[test]
    fn chunking_changes_nothing(
        lines in prop::collection::vec((line(), prop_oneof![Just("\n"), Just("\r\n"), Just("\r")]), 0..24),
        at in prop::collection::vec(0_usize..4096, 0..24),
        withhold in any::<bool>(),
    ) {
        let text: String = lines.iter().map(|(line, end)| format!("{line}{end}")).collect();
        let mut whole = StreamReader::new(Some(StreamDialect::Chat), withhold);
        let expected = feed(&mut whole, &[text.as_bytes()], 0);
        let pieces = cut(text.as_bytes(), &at);
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let mut split = StreamReader::new(Some(StreamDialect::Chat), withhold);
        let out = feed(&mut split, &pieces, 0);
        prop_assert_eq!(&out, &expected);
        prop_assert_eq!(essence(split.observed()), essence(whole.observed()));
        if !withhold {
            prop_assert_eq!(out, text.as_bytes());
        }
    }

    #[test]
    fn any_bytes_are_survived_and_passed_on(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..16),
        dialect in prop::sample::select(vec![
            None, Some(StreamDialect::Chat), Some(StreamDialect::Messages), Some(StreamDialect::Responses), Some(StreamDialect::Generate),
        ]),
    ) {
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let mut reader = StreamReader::new(dialect, true);
        prop_assert_eq!(feed(&mut reader, &pieces, 1), pieces.concat());
    }
}
