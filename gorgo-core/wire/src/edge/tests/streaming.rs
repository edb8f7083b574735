//! Streams: relayed byte for byte, measured, and ended so that a client can distinguish a complete response from a
//! broken one.

use std::time::Duration;

use gorgo_routing::model::{ErrorClass, EventKind, ReplicaId, StoreRecord, UnixMicros};

use super::fixture::*;

/// Body that requests usage itself, so that nothing is added and nothing removed.
const ASKING: &str = r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#;

#[tokio::test]
async fn a_stream_crosses_byte_for_byte_as_it_comes() {
    let gate = TestLatch::new();
    let last = gate.clone();
    let engine = ScriptedEngine::start(move |_| {
        vec![
            sse_head(),
            chunk(&event(r#"{"role":"assistant","content":""}"#)),
            chunk(&event(r#"{"content":"a"}"#)),
            ScriptStep::Await(last.clone()),
            chunk(": a comment\r\n\r\n"),
            chunk(FINISH),
            chunk(USAGE),
            chunk(DONE),
            last_chunk(),
        ]
    })
    .await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    let mut client = bench.client().await;
    client.post(CHAT, ASKING).await;
    // The first token arrives while the engine still waits for the test.
    client.until("\"a\"").await;
    gate.open();
    let answer = client.answer().await;
    let expected = [
        &event(r#"{"role":"assistant","content":""}"#),
        &event(r#"{"content":"a"}"#),
        ": a comment\r\n\r\n",
        FINISH,
        USAGE,
        DONE,
    ];
    assert_eq!(answer.body, expected.concat());
    assert!(answer.complete);
    assert_eq!(answer.header("x-gorgo-replica"), Some("e1"));
    let outcome = bench.rows.outcome().await;
    assert_eq!(outcome.decision, answer.decision());
    assert_eq!((outcome.status, outcome.error), (Some(200), None));
    assert_eq!((outcome.prompt_tokens, outcome.completion_tokens), (Some(9), Some(2)));
    assert!(outcome.ttft_us.unwrap() >= outcome.first_byte_us.unwrap());
    assert!(outcome.e2e_us >= outcome.ttft_us.unwrap());
    assert_eq!((outcome.predicted_ttft_us, outcome.predicted_cached_tokens), (Some(12_500), Some(3)));
    assert!(bench.fake.endings.lock()[0].completed);
    assert_eq!(bench.load(), 0);
    assert_eq!(engine.asked()[0].header("accept-encoding"), Some("identity"));
}

#[tokio::test]
async fn what_came_together_goes_on_together_and_what_came_alone_at_once() {
    let tokens: Vec<String> = (0..20).map(|token| event(&format!("{{\"content\":\"t{token}\"}}"))).collect();
    let together = tokens.iter().map(|token| format!("{:x}\r\n{token}\r\n", token.len())).collect::<String>();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let rest = format!("{:x}\r\n{FINISH}\r\n{:x}\r\n{DONE}\r\n0\r\n\r\n", FINISH.len(), DONE.len());
    let gate = TestLatch::new();
    let opened = gate.clone();
    let engine = ScriptedEngine::start(move |_| {
        vec![send(format!("{head}{together}")), ScriptStep::Await(opened.clone()), send(rest.clone())]
    })
    .await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    let mut client = bench.client().await;
    client.post(CHAT, ASKING).await;
    client.until("\"t19\"").await;
    gate.open();
    let answer = client.answer().await;
    assert_eq!(answer.body, format!("{}{FINISH}{DONE}", tokens.concat()));
    assert_eq!(answer.pieces, 2);
    let outcome = bench.rows.outcome().await;
    assert_eq!((outcome.error, outcome.completion_tokens), (None, None));
    assert!(outcome.itl_p99_us.is_some(), "each token was seen for itself");
    let gaps: u32 = outcome.itl_counts.unwrap().iter().sum();
    assert!(gaps > 0, "and counted");
}

#[tokio::test]
async fn an_answer_of_any_size_crosses_whole() {
    for length in [1, 8_191, 16_384, 65_536, 1 << 20] {
        let content = "y".repeat(length);
        let event = event(&format!("{{\"content\":\"{content}\"}}"));
        let expected = format!("{}{event}{DONE}", event.repeat(2));
        let steps = vec![sse_head(), chunk(&event), chunk(&event), chunk(&event), chunk(DONE), last_chunk()];
        let engine = ScriptedEngine::start(move |_| steps.clone()).await;
        let bench = DataPlaneFixture::start(&[engine.address]).await;
        let answer = bench.ask(CHAT, ASKING).await;
        assert!(answer.body == expected && answer.complete, "{length}");
        assert_eq!(bench.rows.outcome().await.error, None);
    }
}

#[tokio::test]
async fn a_plain_answer_has_no_first_token_and_all_the_rest() {
    let answer = r#"{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":3}}}"#;
    let engine = ScriptedEngine::start(move |_| whole(200, answer)).await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    assert_eq!(bench.ask(CHAT, PLAIN).await.body, answer);
    let outcome = bench.rows.outcome().await;
    assert_eq!((outcome.ttft_us, outcome.itl_mean_us, outcome.itl_counts), (None, None, None));
    assert!(outcome.first_byte_us.is_some_and(|first| first <= outcome.e2e_us) && outcome.e2e_us > 0, "{outcome:?}");
    assert_eq!((outcome.prompt_tokens, outcome.cached_tokens, outcome.completion_tokens), (Some(9), Some(3), Some(4)));
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed_at_once_before_and_after_the_head() {
    for steps in [
        vec![ScriptStep::Hang],
        vec![sse_head(), ScriptStep::Hang],
        vec![sse_head(), chunk(&event("{}")), ScriptStep::Hang],
    ] {
        let engine = ScriptedEngine::start(move |_| steps.clone()).await;
        let bench = DataPlaneFixture::start(&[engine.address]).await;
        let mut clients = Vec::new();
        for _ in 0..10 {
            let mut client = bench.client().await;
            client.post(CHAT, STREAM).await;
            clients.push(client);
        }
        engine.wait_for_requests(10).await;
        assert_eq!(bench.load(), 10);
        drop(clients);
        engine.wait_for_disconnects(10).await;
        for outcome in bench.rows.outcomes_are(10).await {
            assert_eq!((outcome.error, outcome.ttft_us), (Some(ErrorClass::ClientGone), None));
        }
        assert_eq!(bench.rows.attempts().len(), 10);
        assert!(bench.rows.attempts().iter().all(|row| row.error == Some(ErrorClass::ClientGone)));
        assert!(bench.fake.endings.lock().iter().all(|ending| !ending.completed && ending.ttft_ms.is_none()));
        assert_eq!(bench.load(), 0);
    }
}

#[tokio::test]
async fn every_split_of_the_last_event_reads_the_same() {
    let forms = [
        format!("{USAGE}{DONE}"),
        USAGE.replace("data: ", "data:").replace('\n', "\r\n"),
        format!(": comment\nid: 3\nevent: message\n{USAGE}"),
    ];
    for form in forms {
        for split in 1..form.len() {
            let (head, tail) = (form[..split].to_owned(), form[split..].to_owned());
            let engine = ScriptedEngine::start(move |_| {
                let mut steps = vec![sse_head(), chunk(&event(r#"{"content":"a"}"#)), chunk(FINISH)];
                steps.extend([chunk(&head), chunk(&tail), last_chunk()]);
                steps
            })
            .await;
            let bench = DataPlaneFixture::start(&[engine.address]).await;
            let answer = bench.ask(CHAT, ASKING).await;
            assert_eq!(answer.body, format!("{}{FINISH}{form}", event(r#"{"content":"a"}"#)));
            let outcome = bench.rows.outcome().await;
            // A finish reason without [DONE] is a success.
            assert_eq!((outcome.error, outcome.prompt_tokens), (None, Some(9)), "split at {split}");
            assert!(outcome.ttft_us.is_some());
        }
    }
}

#[tokio::test]
async fn an_engine_that_dies_in_mid_stream_never_looks_finished() {
    let three = || vec![sse_head(), chunk(&event(r#"{"content":"a"}"#)), chunk(&event(r#"{"content":"b"}"#))];
    let ways: [Vec<ScriptStep>; 4] = [
        vec![ScriptStep::Reset],
        vec![ScriptStep::Close],
        // HTTP ends properly, the stream does not.
        vec![last_chunk()],
        // In the middle of an event.
        vec![chunk("data: {\"choi"), ScriptStep::Close],
    ];
    for way in ways {
        let with_event_cut = way.len() == 2;
        let steps = [three(), way].concat();
        let engine = ScriptedEngine::start(move |_| steps.clone()).await;
        let bench = DataPlaneFixture::start(&[engine.address, engine.address]).await;
        let mut client = bench.client().await;
        client.post(CHAT, ASKING).await;
        let answer = client.answer().await;
        let good = format!("{}{}", event(r#"{"content":"a"}"#), event(r#"{"content":"b"}"#));
        let tail = answer.body.strip_prefix(&good).expect("the good part crosses");
        let tail =
            if with_event_cut { tail.strip_prefix("data: {\"choi\n\n").expect("a line of its own") } else { tail };
        assert!(tail.starts_with("data: {\"error\":{"), "{tail}");
        assert!(tail.ends_with("}\n\n") && !answer.body.contains("[DONE]"));
        assert!(client.is_closed().await);
        let outcome = bench.rows.outcome().await;
        assert_eq!(outcome.error, Some(ErrorClass::UpstreamAborted));
        assert_eq!(engine.asked().len(), 1, "not replayed");
        assert_eq!(bench.load(), 0);
        assert!(!bench.fake.endings.lock()[0].completed);
    }
}

#[tokio::test]
async fn a_plain_answer_that_breaks_is_aborted() {
    let engine = ScriptedEngine::start(|_| {
        vec![
            send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"choices\""),
            ScriptStep::Close,
        ]
    })
    .await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    let answer = bench.ask(CHAT, PLAIN).await;
    assert_eq!((answer.status, answer.complete), (200, false));
    let outcome = bench.rows.outcome().await;
    assert_eq!((outcome.error, outcome.ttft_us), (Some(ErrorClass::UpstreamAborted), None));
    assert_eq!(bench.load(), 0);
}

#[tokio::test]
async fn there_is_an_idle_limit_and_a_first_byte_limit_but_no_total_one() {
    let stalls =
        ScriptedEngine::start(|_| vec![sse_head(), chunk(&event(r#"{"content":"a"}"#)), ScriptStep::Hang]).await;
    let bench = DataPlaneFixture::start_with(&[stalls.address], |settings| settings.server.idle_timeout_ms = 100).await;
    let answer = bench.ask(CHAT, ASKING).await;
    assert!(answer.body.contains("upstream_idle_timeout"));
    assert_eq!(bench.rows.outcome().await.error, Some(ErrorClass::IdleTimeout));
    stalls.wait_for_disconnects(1).await;

    for steps in [vec![ScriptStep::Hang], vec![sse_head(), ScriptStep::Hang]] {
        let silent = ScriptedEngine::start(move |_| steps.clone()).await;
        let bench =
            DataPlaneFixture::start_with(&[silent.address], |settings| settings.server.first_byte_timeout_ms = 100)
                .await;
        let answer = bench.ask(CHAT, ASKING).await;
        assert_eq!(answer.status, 504);
        assert!(answer.body.contains("upstream_timeout"));
        let outcome = bench.rows.outcome().await;
        assert_eq!((outcome.status, outcome.error), (Some(504), Some(ErrorClass::FirstByteTimeout)));
        silent.wait_for_disconnects(1).await;
        assert_eq!(bench.load(), 0);
    }

    // Six pieces, each well within the idle limit, together beyond it: the test itself is the engine's clock.
    let gates: Vec<TestLatch> = (0..6).map(|_| TestLatch::new()).collect();
    let waits = gates.clone();
    let slow = ScriptedEngine::start(move |_| {
        let mut steps = vec![sse_head()];
        for (index, gate) in waits.iter().enumerate() {
            steps.extend([ScriptStep::Await(gate.clone()), chunk(&event(&format!("{{\"content\":\"t{index}\"}}")))]);
        }
        steps.extend([chunk(FINISH), last_chunk()]);
        steps
    })
    .await;
    let bench = DataPlaneFixture::start_with(&[slow.address], |settings| settings.server.idle_timeout_ms = 1_000).await;
    let mut client = bench.client().await;
    client.post(CHAT, ASKING).await;
    for (index, gate) in gates.iter().enumerate() {
        tokio::time::timeout(Duration::from_millis(200), std::future::pending::<()>()).await.unwrap_err();
        gate.open();
        client.until(&format!("t{index}")).await;
    }
    assert!(client.answer().await.body.ends_with(FINISH));
    let outcome = bench.rows.outcome().await;
    assert_eq!(outcome.error, None);
    assert!(outcome.e2e_us > 1_000_000);
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_the_engine_and_is_dropped_at_the_limit() {
    let engine = ScriptedEngine::start(|_| vec![sse_head(), ScriptStep::Flood]).await;
    let bench = DataPlaneFixture::start_with(&[engine.address], |settings| settings.server.idle_timeout_ms = 500).await;
    let mut client = bench.client().await;
    socket2::SockRef::from(&client.stream).set_recv_buffer_size(32 << 10).unwrap();
    client.post(CHAT, ASKING).await;
    engine.wait_for_disconnects(1).await;
    let flooded = engine.flooded.load(std::sync::atomic::Ordering::Relaxed);
    // As much as the kernel's buffers take; a router that reads on would have taken gigabytes in half a second.
    assert!(flooded < 64 << 20, "{flooded}");
    let outcome = bench.rows.outcome().await;
    assert_eq!(outcome.error, Some(ErrorClass::ClientGone));
    assert_eq!(bench.load(), 0);
    drop(client);
}

#[tokio::test]
async fn usage_is_asked_for_and_its_chunk_kept_from_a_client_that_did_not() {
    let engine = ScriptedEngine::start(good_stream).await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    let silent = bench.ask(CHAT, STREAM).await;
    assert!(engine.asked()[0].text().starts_with(r#"{"stream_options":{"include_usage":true},"model""#));
    assert!(!silent.body.contains("\"choices\":[]") && silent.body.ends_with(DONE) && silent.complete);
    let asking = bench.ask(CHAT, ASKING).await;
    assert_eq!(asking.body.matches("\"choices\":[]").count(), 1);
    let plain = bench.ask(CHAT, PLAIN).await;
    assert_eq!(engine.asked()[2].text(), PLAIN);
    assert!(plain.complete);
    let outcomes = bench.rows.outcomes_are(3).await;
    assert_eq!(outcomes[0].completion_tokens, Some(2));
    assert_eq!(outcomes[1].completion_tokens, Some(2));
}

#[tokio::test]
async fn an_engine_that_refuses_the_option_is_asked_without_it_from_then_on() {
    let engine = ScriptedEngine::start(|asked| {
        if asked.text().contains("stream_options") { whole(400, "{\"error\":{}}") } else { good_stream(asked) }
    })
    .await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    assert!(bench.ask(CHAT, STREAM).await.body.ends_with(DONE));
    assert!(bench.ask(CHAT, STREAM).await.body.ends_with(DONE));
    let sent: Vec<bool> = engine.asked().iter().map(|asked| asked.text().contains("stream_options")).collect();
    assert_eq!(sent, [true, false, false]);
    let outcomes = bench.rows.outcomes_are(2).await;
    assert!(outcomes.iter().all(|outcome| outcome.error.is_none()));
    let attempts: Vec<_> = bench.rows.attempts().iter().map(|row| (row.attempt, row.status)).collect();
    assert_eq!(attempts, [(1, Some(400)), (2, Some(200)), (1, Some(200))]);
    assert_eq!(bench.load(), 0);
}

#[tokio::test]
async fn a_bad_request_stays_one_and_is_not_sent_twice_to_an_engine_that_is_known() {
    let engine = ScriptedEngine::start(|asked| {
        if asked.text().contains("bad") { whole(400, "{\"error\":{\"message\":\"bad\"}}") } else { good_stream(asked) }
    })
    .await;
    let bench = DataPlaneFixture::start(&[engine.address, engine.address]).await;
    bench.ask(CHAT, STREAM).await;
    let answer = bench.ask(CHAT, r#"{"model":"bad","stream":true}"#).await;
    assert_eq!((answer.status, answer.body.as_str()), (400, "{\"error\":{\"message\":\"bad\"}}"));
    assert_eq!(engine.asked().len(), 2);
    assert_eq!(bench.rows.outcomes_are(2).await[1].error, Some(ErrorClass::ClientError));
}

#[tokio::test]
async fn first_content_of_any_kind_counts_and_none_is_none() {
    for (delta, counts) in [
        (r#"{"reasoning_content":"hm"}"#, true),
        (r#"{"reasoning":"hm"}"#, true),
        (r#"{"tool_calls":[{"index":0,"function":{"name":"f"}}]}"#, true),
        (r#"{"role":"assistant","content":""}"#, false),
    ] {
        let engine = ScriptedEngine::start(move |_| {
            vec![sse_head(), chunk(&event(delta)), chunk(FINISH), chunk(DONE), last_chunk()]
        })
        .await;
        let bench = DataPlaneFixture::start(&[engine.address]).await;
        bench.ask(CHAT, ASKING).await;
        let outcome = bench.rows.outcome().await;
        assert_eq!((outcome.error, outcome.ttft_us.is_some()), (None, counts), "{delta}");
        assert_eq!(bench.fake.endings.lock()[0].ttft_ms.is_some(), counts);
    }
}

#[tokio::test]
async fn an_error_event_after_content_is_passed_on_and_is_no_success() {
    let engine = ScriptedEngine::start(|_| {
        let error = "data: {\"error\":{\"code\":500,\"message\":\"boom\"}}\n\n";
        vec![sse_head(), chunk(&event(r#"{"content":"a"}"#)), chunk(error), last_chunk()]
    })
    .await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    let answer = bench.ask(CHAT, ASKING).await;
    assert!(answer.body.ends_with("\"boom\"}}\n\n") && answer.complete);
    assert_eq!(bench.rows.outcome().await.error, Some(ErrorClass::UpstreamErrorEvent));
}

#[tokio::test]
async fn the_anthropic_dialect_gets_an_error_event_it_knows() {
    let engine = ScriptedEngine::start(|_| {
        let delta =
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}}\n\n";
        vec![sse_head(), chunk(delta), ScriptStep::Reset]
    })
    .await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    let answer = bench.ask("/v1/messages", r#"{"model":"m","stream":true}"#).await;
    assert!(answer.body.contains("event: error\ndata: {\"error\":{"), "{}", answer.body);
    assert!(answer.body.ends_with("\"type\":\"error\"}\n\n"));
}

#[tokio::test]
async fn times_are_in_order() {
    let engine = ScriptedEngine::start(good_stream).await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    bench.ask(CHAT, STREAM).await;
    let outcome = bench.rows.outcome().await;
    let attempt = bench.rows.attempts().remove(0);
    let decision = bench.rows.decisions().remove(0);
    assert!(decision.received > UnixMicros(1_700_000_000_000_000));
    assert_eq!(decision.decision.0 >> 20, i64::try_from(decision.received.0 / 1_000).unwrap());
    assert!(decision.seed < 1 << 53 && decision.seed != 0);
    assert!(attempt.sent_us.unwrap() <= attempt.first_byte_us.unwrap());
    assert!(attempt.first_byte_us.unwrap() <= outcome.first_byte_us.unwrap());
    assert!(attempt.connect_us.unwrap() > 0);
    assert!(attempt.ended_us <= outcome.e2e_us);
    assert_eq!(outcome.itl_mean_us.map(|gap| gap >= 0), Some(true));
}

#[tokio::test]
async fn an_engine_without_the_flag_for_cached_tokens_is_named_once_with_it() {
    let engine = ScriptedEngine::start(good_stream).await;
    let bench = DataPlaneFixture::start(&[engine.address]).await;
    for _ in 0..3 {
        bench.ask(CHAT, STREAM).await;
    }
    bench.rows.outcomes_are(3).await;
    let rows = bench.rows.all();
    let texts = rows.iter().filter_map(|row| match row {
        StoreRecord::Event(event) if event.kind == EventKind::MissingSignal => {
            Some((event.replica, event.text.as_str()))
        }
        _ => None,
    });
    let flag = "replica e1 reports no cached tokens: start vllm with --enable-prompt-tokens-details";
    assert_eq!(texts.collect::<Vec<_>>(), [(Some(ReplicaId(0)), flag)]);
}
