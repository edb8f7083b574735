//! The table and the JSON on a fixed set of results.

use gorgo_lab::trace::{RequestSample, RunSummary, ShapeCounts};
use gorgo_routing::model::{ErrorClass, TokenUsage};

use super::*;

/// Ten requests, a third of them probes, two replicas, two failures.
fn samples() -> Vec<RequestSample> {
    let sample = |row: u32| {
        let probe = row.is_multiple_of(3);
        let (cached, input) = if probe { (0, 8) } else { (3000, 8000) };
        RequestSample {
            row: row as usize,
            id: Some(row.to_string().into()),
            input_tokens: input,
            scheduled_ms: f64::from(row) * 400.0,
            sent_ms: f64::from(row) * 400.0 + 0.25,
            ttft_ms: Some(if probe { 110.5 } else { 600.0 + f64::from(row) * 100.0 }),
            e2e_ms: 2400.0 + f64::from(row),
            itl_ms: Some(12.5),
            content_events: 64,
            usage: TokenUsage {
                prompt_tokens: Some(input + 10),
                cached_tokens: Some(cached),
                completion_tokens: Some(64),
            },
            replica: Some(if row < 7 { "us-ashburn" } else { "eu-frankfurt" }.into()),
            status: Some(200),
            ..RequestSample::default()
        }
    };
    let mut samples: Vec<RequestSample> = (0..10).map(sample).collect();
    samples[4].error = Some(ErrorClass::UpstreamErrorEvent);
    samples[4].detail = Some("the engine went away".into());
    samples[5] = RequestSample {
        status: Some(503),
        error: Some(ErrorClass::UpstreamStatus),
        detail: Some("no replica is available".into()),
        e2e_ms: 4.0,
        ttft_ms: None,
        itl_ms: None,
        usage: TokenUsage::default(),
        replica: None,
        ..sample(5)
    };
    samples
}

fn report(samples: &[RequestSample]) -> ReplayReport {
    ReplayReport {
        label: "gorgo".into(),
        trace: "trace.jsonl.gz".into(),
        to: "http://127.0.0.1:8080".into(),
        model: "sim".into(),
        seed: 3,
        time_scale: 0.1,
        max_in_flight: Some(64),
        block_tokens: 256,
        rows_without_blocks: 0,
        rows_refitted: 0,
        counts: ShapeCounts { rows: 1500, dropped_over_input: 1200, beyond_limit: 290, outputs_capped: 2, spread: 0 },
        max_input_tokens: Some(24_000),
        max_output_tokens: Some(128),
        record: RunProvenance {
            trace_sha256: "0f".repeat(32),
            command: "gorgo replay trace.jsonl.gz".into(),
            started_at: gorgo_routing::model::UnixMicros(1_796_008_325_000_000),
            models: json!([{ "id": "sim", "max_model_len": null }]),
            engine: Value::Null,
        },
        router: None,
        max_fallback_share: 0.05,
        traffic: ReplayTraffic::of(samples),
        intervals: RunIntervals::from_samples(samples, 3),
        unsent: 0,
        unfinished: 0,
        summary: RunSummary::from_samples(samples),
    }
}

#[test]
fn the_table_reads_like_this() {
    insta::assert_snapshot!(report(&samples()).text());
}

#[test]
fn a_replay_that_was_late_and_stopped_says_so() {
    let mut late = samples();
    late.truncate(4);
    for sample in &mut late {
        sample.sent_ms += 120.0;
        sample.slot_wait_ms = 119.0;
        sample.replica = None;
        sample.usage.cached_tokens = None;
    }
    let stopped = ReplayReport { unsent: 7, unfinished: 1, max_in_flight: None, ..report(&late) };
    insta::assert_snapshot!(stopped.text());
}

#[test]
fn the_json_reads_like_this() {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r#""(os|arch|gorgo)": "[^"]*""#, r#""$1": "THIS""#);
    settings.add_filter(r#""cores": \d+"#, r#""cores": "THIS""#);
    settings.bind(|| insta::assert_snapshot!(serde_json::to_string_pretty(&report(&samples()).json()).unwrap()));
}

#[test]
fn intervals_and_fallbacks_are_told_and_many_of_them_warned_of() {
    let many: Vec<RequestSample> = (0..8).flat_map(|_| samples()).filter(|sample| sample.error.is_none()).collect();
    let run = gorgo_store::StoredRun {
        run: 3,
        version: "0.1.0".into(),
        policy: Some("gorgo".into()),
        policy_sha256: None,
        config_sha256: None,
        seed: 1,
        generation: Some(0),
    };
    let fallbacks = FallbackCounts { decisions: 64, refused: 1, relaxed: 4, tried_again: 0 };
    let router = RouterHistory { run: Some(run), fallbacks, named: 64 };
    let text = ReplayReport { router: Some(router.clone()), ..report(&many) }.text();
    let lines: Vec<&str> =
        text.lines().filter(|line| line.contains("intervals") || line.contains("ell back")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with("95 % intervals, ms: TTFT p50 ") && lines[0].contains("E2E p95 2,40"), "{text}");
    assert!(lines[1].starts_with("NOT GOOD: 7.8 % of the decisions fell back, above 5.0 %"), "{text}");
    assert!(
        text.contains("history: run 3, policy gorgo; of 64 decisions 1 refused, 4 relaxed, 0 tried again"),
        "{text}"
    );
    let lenient = ReplayReport { router: Some(router), max_fallback_share: 0.1, ..report(&many) };
    assert!(!lenient.text().contains("NOT GOOD"), "{}", lenient.text());
    assert_eq!(serde_json::to_value(lenient.json()).unwrap()["run"]["router"]["fallback_share"], json!(0.078_125));
}

#[test]
fn nothing_measured_prints_dashes() {
    let text = report(&[]).text();
    assert!(text.contains("0 requests in 0.0 s") && text.contains("TTFT, all"), "{text}");
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}

#[test]
fn the_page_has_latencies_and_replicas_and_fetches_nothing() {
    let page = report(&samples()).html("gorgo replay trace.jsonl.gz");
    assert_eq!((page.matches("<svg").count(), page.matches("<table").count()), (3, 2));
    assert!(page.contains("<h1>gorgo replay: gorgo, trace.jsonl.gz</h1>"), "{page}");
    assert!(page.contains("us-ashburn") && page.contains("2 of 10"), "{page}");
    assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("NaN"), "{page}");
}
