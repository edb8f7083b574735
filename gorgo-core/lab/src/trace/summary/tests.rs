//! Quantiles, shares, failures and slip on samples small enough to compute by hand.

use super::*;
use gorgo_routing::model::TokenUsage;

fn sample(row: u32, replica: &str) -> RequestSample {
    RequestSample {
        row: row as usize,
        input_tokens: 1000,
        scheduled_ms: f64::from(row) * 10.0,
        sent_ms: f64::from(row) * 10.0,
        ttft_ms: Some(f64::from(row) + 1.0),
        e2e_ms: 100.0,
        itl_ms: Some(5.0),
        usage: TokenUsage { prompt_tokens: Some(1000), cached_tokens: Some(250), completion_tokens: Some(10) },
        replica: Some(replica.into()),
        status: Some(200),
        ..RequestSample::default()
    }
}

#[test]
fn quantile_is_the_nearest_rank() {
    let five = [15.0, 20.0, 35.0, 40.0, 50.0];
    let expected = [(0.0, 15.0), (0.05, 15.0), (0.30, 20.0), (0.40, 20.0), (0.50, 35.0), (0.95, 50.0), (1.0, 50.0)];
    for (p, value) in expected {
        assert_eq!(quantile(&five, p), Some(value), "{p}");
    }
    let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
    assert_eq!([0.50, 0.95, 0.99].map(|p| quantile(&hundred, p)), [Some(50.0), Some(95.0), Some(99.0)]);
    assert_eq!(quantile(&[7.0], 0.01), Some(7.0));
    assert_eq!(quantile(&[], 0.5), None);
}

#[test]
fn nothing_measured_is_none_never_zero() {
    let summary = RunSummary::from_samples(&[]);
    assert_eq!((summary.requests, summary.duration_ms), (0, 0.0));
    assert_eq!((summary.all.ttft.p95, summary.hit_rate, summary.hhi, summary.busiest_share), (None, None, None, None));
    assert!(summary.slip.is_within_limit());
}

#[test]
fn shares_hit_rate_and_concentration() {
    let mut samples: Vec<RequestSample> = (0..4).map(|row| sample(row, if row == 0 { "b" } else { "a" })).collect();
    samples[3].usage.cached_tokens = None; // an engine that does not report it is left out of the rate
    samples.push(RequestSample { replica: None, usage: TokenUsage::default(), ..sample(4, "") });
    let summary = RunSummary::from_samples(&samples);
    assert_eq!(summary.hit_rate, Some(0.25));
    assert_eq!((summary.prompt_tokens, summary.completion_tokens), (4000, 40));
    let shares: Vec<(&str, usize, f64)> =
        summary.replicas.iter().map(|replica| (&*replica.name, replica.requests, replica.share)).collect();
    assert_eq!(shares, [("a", 3, 0.75), ("b", 1, 0.25)]);
    assert_eq!((summary.busiest_share, summary.hhi), (Some(0.75), Some(0.625)));
    assert_eq!(summary.replicas[0].ttft.p50, Some(3.0));
    assert!((summary.duration_ms - 140.0).abs() < 1e-9);
}

#[test]
fn failures_have_no_latency_and_are_counted_by_class_and_status() {
    let failed = |row, status, class| RequestSample {
        status,
        error: Some(class),
        detail: Some(format!("row {row}").into()),
        ..sample(row, "a")
    };
    let samples = [
        failed(0, None, ErrorClass::Connect),
        failed(1, Some(503), ErrorClass::UpstreamStatus),
        sample(2, "a"),
        failed(3, Some(503), ErrorClass::UpstreamStatus),
        failed(4, Some(500), ErrorClass::UpstreamStatus),
        RequestSample { ttft_ms: None, itl_ms: None, ..sample(5, "a") },
    ];
    let summary = RunSummary::from_samples(&samples);
    assert_eq!((summary.requests, summary.errors, summary.without_content), (6, 4, 1));
    let failures: Vec<(ErrorClass, Option<u16>, usize, Option<&str>)> = summary
        .failures
        .iter()
        .map(|count| (count.class, count.status, count.requests, count.example.as_deref()))
        .collect();
    let expected = [
        (ErrorClass::UpstreamStatus, Some(503), 2, Some("row 1")),
        (ErrorClass::Connect, None, 1, Some("row 0")),
        (ErrorClass::UpstreamStatus, Some(500), 1, Some("row 4")),
    ];
    assert_eq!(failures, expected);
    assert_eq!((summary.all.requests, summary.all.ttft.count, summary.all.e2e.count), (6, 1, 2));
    assert_eq!(summary.all.ttft.p99, Some(3.0));
}

#[test]
fn short_prompts_are_left_out_of_the_second_row() {
    let short = RequestSample { input_tokens: SHORT_INPUT_TOKENS - 1, ttft_ms: Some(1000.0), ..sample(0, "a") };
    let exact = RequestSample { input_tokens: SHORT_INPUT_TOKENS, ..sample(1, "a") };
    let summary = RunSummary::from_samples(&[short, exact]);
    assert_eq!((summary.all.ttft.max, summary.long.ttft.max), (Some(1000.0), Some(2.0)));
    assert_eq!((summary.all.requests, summary.long.requests), (2, 1));
}

#[test]
fn slip_is_good_while_99_of_100_left_in_time() {
    let late = |count: u32| -> Vec<RequestSample> {
        let row = |row| sample(row, "a");
        (0..100)
            .map(|at| RequestSample { sent_ms: row(at).scheduled_ms + if at < count { 51.0 } else { 0.0 }, ..row(at) })
            .collect()
    };
    assert!(RunSummary::from_samples(&late(1)).slip.is_within_limit());
    let two = RunSummary::from_samples(&late(2)).slip;
    assert!(!two.is_within_limit());
    assert_eq!((two.late.p50, two.late.p99, two.waited_for_slot), (Some(0.0), Some(51.0), 0));
    let waited = RequestSample { slot_wait_ms: 30.0, sent_ms: 30.0, ..sample(0, "a") };
    assert_eq!(RunSummary::from_samples(&[waited]).slip.waited_for_slot, 1);
}
