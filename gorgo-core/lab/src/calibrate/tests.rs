//! Calibration: known constants are recovered, and results on the shared measurements.

use std::path::PathBuf;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::load::loads;
use super::*;

fn row(replica: usize, sent_ms: f64, ttft_ms: f64, e2e_ms: f64, uncached: f64) -> MeasuredRequest {
    MeasuredRequest {
        run: 0,
        replica: Some(replica),
        sent_ms,
        ttft_ms,
        e2e_ms,
        prompt_tokens: uncached + 50.0,
        uncached_tokens: Some(uncached),
        output_tokens: 11.0,
        rtt_ms: None,
    }
}

fn measurements(observations: Vec<MeasuredRequest>) -> Measurements {
    let mut found = Measurements {
        runs: vec!["first".into(), "second".into()],
        replicas: vec!["near".into(), "far".into()],
        shared_by: 1.0,
        observations,
        left_out: 0,
    };
    found.sort();
    found
}

#[test]
fn the_load_is_what_the_same_replica_was_doing() {
    let rows = vec![
        row(0, 0.0, 100.0, 300.0, 1000.0),
        row(1, 10.0, 500.0, 900.0, 7000.0),
        row(0, 50.0, 200.0, 450.0, 300.0),
        row(0, 120.0, 30.0, 230.0, 40.0),
    ];
    let loads = loads(&measurements(rows));
    // The second on replica 0 was sent while the first, of 1,000 tokens, had no first token; the third after that.
    assert_eq!((loads[2].requests_ahead, loads[2].tokens_ahead), (1.0, 1000.0));
    assert_eq!((loads[3].requests_ahead, loads[3].tokens_ahead), (1.0, 300.0));
    assert_eq!((loads[1].requests_ahead, loads[1].batch), (0.0, 1.0));
    // The first decodes from 100 to 300 ms: beside it the second from 250 and the third from 150 on.
    assert!((loads[0].batch - (1.0 + 50.0 / 200.0 + 150.0 / 200.0)).abs() < 1e-9, "{:?}", loads[0]);
    assert_eq!((loads[0].prefills, loads[0].prefilled_tokens), (2.0, 340.0));
}

/// Requests whose times are computed from known constants, with noise, and with one outlier in twenty.
fn made() -> Measurements {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut rows = Vec::new();
    for number in 0..4000_u32 {
        let replica = usize::from(number % 2 == 1);
        let uncached = if number % 3 == 0 { 10.0 } else { random.random_range(100.0..12_000.0) };
        let noise = random.random_range(0.9..1.1);
        let mut ttft = ([100.0, 180.0][replica] + 0.07 * uncached) * noise;
        if random.random::<f64>() < 0.05 {
            ttft *= 8.0;
        }
        let sent = f64::from(number) * 20_000.0 + random.random_range(0.0..5000.0);
        let mut one = row(replica, sent, ttft, ttft + 10.0 * 9.0 * random.random_range(0.95..1.05), uncached);
        one.run = usize::from(number >= 3000);
        one.prompt_tokens = uncached + random.random_range(0.0..6000.0);
        rows.push(one);
    }
    measurements(rows)
}

#[test]
fn constants_put_in_come_out_in_spite_of_outliers() {
    let found = calibrate(&made(), &HoldOut::Last, 7);
    let first = found.first_token.as_ref().unwrap();
    for (name, expected) in [("offset near", 100.0), ("offset far", 180.0), ("prefill", 0.07)] {
        let constant = first.constant(name).unwrap();
        assert!((constant.value / expected - 1.0).abs() < 0.02, "{constant:?}");
        assert!(constant.low < constant.value && constant.value < constant.high, "{constant:?}");
        assert!(constant.low < expected * 1.01 && constant.high > expected * 0.99, "{constant:?}");
        assert!(constant.high - constant.low < 0.05 * expected, "{constant:?}");
    }
    assert!(first.constant("prompt").unwrap().value.abs() < 0.001, "{first:?}");
    let step = found.between_tokens.as_ref().unwrap().constant("step").unwrap().value;
    let batch = found.between_tokens.as_ref().unwrap().constant("batch").unwrap().value;
    // Every request is alone in its batch, so only their sum can be determined.
    assert!((step + batch - 9.0).abs() < 0.1, "{step} {batch}");
    assert!(first.held_out.median_log_error.unwrap() < 0.07, "{first:?}");
    assert_eq!((first.fitted.rows + first.other_rows.rows, first.held_out.rows), (3000, 1000));
    assert!((1350..1650).contains(&first.fitted.rows), "{}", first.fitted.rows);
    assert_eq!(found.held_out, "second");
    assert!(found.theil_sen.iter().all(|one| (one.prefill_ms_per_token.unwrap() / 0.07 - 1.0).abs() < 0.03));
}

#[test]
fn errors_are_told_run_by_run_and_in_milliseconds() {
    let found = calibrate(&made(), &HoldOut::LastThirdOfEach, 7);
    assert_eq!(found.held_out, "the last third of each run");
    let first = found.first_token.unwrap();
    let rows: Vec<(&str, usize)> = first.runs.iter().map(|run| (run.run.as_str(), run.held_out.rows)).collect();
    assert_eq!(rows, [("first", 1000), ("second", 333)]);
    assert_eq!(first.runs.iter().map(|run| run.fitted.rows).sum::<usize>(), first.fitted.rows);
    // Noise is uniform within ± 10 %, and one row in twenty is eight times the prediction.
    for quality in first.runs.iter().flat_map(|run| [&run.fitted, &run.held_out]) {
        let share = quality.median_error_share.unwrap();
        assert!((0.03..0.08).contains(&share), "{quality:?}");
        assert!(quality.median_error_ms.unwrap() > 0.02 * quality.measured_p50_ms.unwrap(), "{quality:?}");
        let (measured, predicted) = (quality.measured_p95_ms.unwrap(), quality.predicted_p95_ms.unwrap());
        assert!(measured > 1.05 * predicted && predicted > quality.predicted_p50_ms.unwrap(), "{quality:?}");
    }
    // A run that was held out entirely has no fitted rows, and reports no errors on them.
    let whole = calibrate(&made(), &HoldOut::Last, 7).first_token.unwrap();
    assert_eq!((whole.runs[1].fitted, whole.runs[0].held_out), (FitQuality::default(), FitQuality::default()));
    assert_eq!(whole.runs[1].held_out, whole.held_out);
}

#[test]
fn equal_seeds_give_equal_intervals() {
    assert_eq!(calibrate(&made(), &HoldOut::Last, 7), calibrate(&made(), &HoldOut::Last, 7));
}

#[test]
fn too_little_is_not_fitted() {
    let found = calibrate(&measurements(vec![row(0, 0.0, 1.0, 2.0, 3.0)]), &HoldOut::Last, 0);
    assert_eq!((found.first_token, found.between_tokens), (None, None));
    assert_eq!(calibrate(&Measurements::default(), &HoldOut::Last, 0).first_token, None);
}

#[test]
fn tables_are_read_by_their_columns_and_faults_named() {
    let good = "policy,id,decision_s,target,request_tokens,status,ttft_ms,total_ms,prompt_tokens,completion_tokens,\
                ash_cached_tokens\n\
                random,1,0.5,us-ashburn,100,200,90.5,700,180,64,25\nrandom,2,0.6,us-ashburn,100,400,,9,0,0,0\n";
    let found = decisions(good.as_bytes()).unwrap();
    assert_eq!((found.left_out, found.runs.as_slice(), found.observations.len()), (1, &["random".to_owned()][..], 1));
    let row = found.observations[0];
    assert_eq!((row.sent_ms, row.uncached_tokens, row.prompt_tokens), (500.0, Some(135.0), 180.0));

    let wrong = good.replace(",0.5,", ",soon,");
    let said = decisions(wrong.as_bytes()).unwrap_err().to_string();
    assert_eq!(said, "line 2: field 3 is \"soon\"; must be a number, 0 or more");
    let said = measured(b"run,policy\n", 3).unwrap_err().to_string();
    assert_eq!(said, "line 1: the header has no column \"sent_ms\"");
}

fn shared(name: &str) -> Option<Vec<u8>> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");
    let folder = std::env::var_os("GORGO_SHARED").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let read = std::fs::read(folder.join("traces/gorgo").join(name)).ok();
    if read.is_none() {
        println!("not run: {name} is not in the shared data folder");
    }
    read
}

#[test]
fn the_decisions_of_april_1_give_the_published_floors() {
    let Some(bytes) = shared("artchat_apr1_0030_decisions.csv.gz") else { return };
    let found = calibrate(&decisions(&bytes).unwrap(), &HoldOut::Last, 1);
    let first = found.first_token.unwrap();
    // Medians of the probe's time to first token: 108, 189, 285 ms.
    for (name, floor) in [("offset us-ashburn", 108.0), ("offset eu-frankfurt", 189.0), ("offset ap-seoul", 285.0)] {
        let offset = first.constant(name).unwrap().value;
        assert!((offset / floor - 1.0).abs() < 0.10, "{name} {offset}");
    }
    // Two ways to the same number: the cost of a request's own tokens, and the delay that others' tokens cause.
    let between = found.between_tokens.unwrap();
    let (own, others) = (first.constant("prefill").unwrap(), between.constant("prefilled-tokens").unwrap());
    assert!((own.value / others.value - 1.0).abs() < 0.10, "{own:?} {others:?}");
    assert!(
        (0.050..0.065).contains(&own.value) && (60.0..100.0).contains(&between.constant("prefills").unwrap().value)
    );
    assert!(first.held_out.median_log_error.unwrap() < 0.25 && between.held_out.median_log_error.unwrap() < 0.10);
}

#[test]
fn the_measurements_of_april_5_are_fitted() {
    let Some(bytes) = shared("artchat_apr5_1615_measured.csv.gz") else { return };
    let found = calibrate(&measured(&bytes, 3).unwrap(), &HoldOut::Named(vec!["2d_v8".into()]), 1);
    let between = found.between_tokens.unwrap();
    assert!(between.held_out.rows > 30_000 && between.constant("step").unwrap().value > 0.0);
    assert!(between.held_out.median_error_share.unwrap() < 0.25, "{:?}", between.held_out);
    // Without replica and cache the first token is predicted badly, and the errors must show that.
    let first = found.first_token.unwrap();
    assert_eq!(first.runs.iter().filter(|run| run.held_out.rows > 7000).count(), 5);
    assert!((0.3..0.5).contains(&first.held_out.median_error_share.unwrap()), "{:?}", first.held_out);
}
