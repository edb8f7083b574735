//! Statistics: small traces computed by hand, and the table of the shared data folder.

use std::path::PathBuf;

use super::super::read;
use super::*;

fn trace(text: &str) -> RecordedTrace {
    read(text.as_bytes(), Some(10)).unwrap()
}

fn near(found: Option<f64>, expected: f64, tolerance: f64) -> bool {
    found.is_some_and(|found| (found - expected).abs() <= tolerance)
}

#[test]
fn reuse_counts_the_tokens_of_blocks_and_knows_whose_they_were() {
    let text = r#"{"timestamp":0,"input_length":25,"output_length":1,"hash_ids":[1,2,3],"user":"a"}
{"timestamp":1,"input_length":12,"output_length":1,"hash_ids":[1,4],"user":"b"}
{"timestamp":2,"input_length":25,"output_length":1,"hash_ids":[1,2,3],"user":"b"}"#;
    let stats = TraceStats::from_trace(&trace(text));
    let reuse = stats.reuse.unwrap();
    // Seen before: the second row's first block, all of the third; of the same user only the third's first.
    assert!((reuse.tokens - 35.0 / 62.0).abs() < 1e-12, "{reuse:?}");
    assert!((reuse.blocks - 4.0 / 8.0).abs() < 1e-12, "{reuse:?}");
    assert!(near(reuse.same_user_tokens, 10.0 / 62.0, 1e-12), "{reuse:?}");
    assert_eq!((stats.users, stats.sessions.unwrap().source), (Some(2), SessionSource::Named));
    assert!(near(stats.largest_user, 2.0 / 3.0, 1e-12));
}

#[test]
fn a_clock_is_even_and_a_burst_is_not() {
    let rows = |times: &[u32]| {
        let line = |at: &u32| format!("{{\"timestamp\":{at},\"input_length\":1,\"output_length\":1}}\n");
        TraceStats::from_trace(&trace(&times.iter().map(line).collect::<String>()))
    };
    let clock = rows(&(0..100).map(|tick| tick * 500).collect::<Vec<_>>());
    assert!(near(clock.gap_cv, 0.0, 1e-12) && near(clock.fano[0], 0.0, 1e-12) && near(clock.rate, 100.0 / 49.5, 1e-9));
    assert_eq!((clock.fano[2], clock.reuse, clock.sessions), (None, None, None));
    // Ten at once, then one after 9.5 s: ten bins of 10, 0 … 0, 1.
    let burst = rows(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9500]);
    let (middle, squares) = (1.1, 8.9_f64.powi(2) + 8.0 * 1.1_f64.powi(2) + 0.1_f64.powi(2));
    assert!(near(burst.fano[0], squares / 10.0 / middle, 1e-9), "{:?}", burst.fano);
}

#[test]
fn sessions_are_found_by_the_deepest_block_below_what_all_share() {
    let text = r#"{"timestamp":0,"input_length":30,"output_length":1,"hash_ids":[0,1,2]}
{"timestamp":1,"input_length":30,"output_length":1,"hash_ids":[0,5,6]}
{"timestamp":2,"input_length":40,"output_length":1,"hash_ids":[0,1,2,3]}
{"timestamp":3,"input_length":10,"output_length":1,"hash_ids":[0]}"#;
    let sessions = TraceStats::from_trace(&trace(text)).sessions.unwrap();
    assert_eq!((sessions.source, sessions.count, sessions.turns.max), (SessionSource::Inferred, 3, Some(2.0)));
}

/// Numbers of a file in the README of the shared data folder.
struct Published {
    file: &'static str,
    rows: usize,
    duration_secs: f64,
    rate: f64,
    gap_cv: f64,
    fano: [f64; 3],
    input: [f64; 3],
    output: Option<[f64; 3]>,
    reuse: Option<[f64; 2]>,
}

const PUBLISHED: &[Published] = &[
    Published {
        file: "mooncake/conversation_trace.jsonl.gz",
        rows: 12_031,
        duration_secs: 3537.0,
        rate: 3.40,
        gap_cv: 3.03,
        fano: [7.9, 2.1, 2.9],
        input: [12_035.0, 6909.0, 39_550.0],
        output: Some([343.0, 350.0, 698.0]),
        reuse: Some([0.374, 0.366]),
    },
    Published {
        file: "azure/AzureLLMInferenceTrace_conv.csv.gz",
        rows: 19_366,
        duration_secs: 3502.0,
        rate: 5.53,
        gap_cv: 1.09,
        fano: [1.4, 4.0, 21.0],
        input: [1155.0, 1020.0, 4083.0],
        output: Some([211.0, 129.0, 451.0]),
        reuse: None,
    },
    Published {
        file: "azure/AzureLLMInferenceTrace_code.csv.gz",
        rows: 8819,
        duration_secs: 3436.0,
        rate: 2.57,
        gap_cv: 13.2,
        fano: [13.0, 71.0, 161.0],
        input: [2048.0, 1469.0, 7303.0],
        output: Some([28.0, 13.0, 90.0]),
        reuse: None,
    },
    Published {
        file: "gorgo/artchat_apr5_1615_arrivals.jsonl.gz",
        rows: 7195,
        duration_secs: 1800.0,
        rate: 4.00,
        gap_cv: 1.06,
        fano: [1.26, 1.95, 4.5],
        input: [6758.0, 5607.0, 19_480.0],
        output: None,
        reuse: None,
    },
    Published {
        file: "gorgo/artchat_apr1_0030_15min_trace.jsonl.gz",
        rows: 2342,
        duration_secs: 898.0,
        rate: 2.61,
        gap_cv: 1.26,
        fano: [1.6, 1.9, 2.2],
        input: [2486.0, 8.0, 13_013.0],
        output: Some([169.0, 64.0, 232.0]),
        reuse: Some([0.797, 0.805]),
    },
    Published {
        file: "synthetic/artchat_apr5_like.jsonl.gz",
        rows: 7241,
        duration_secs: 1800.0,
        rate: 4.02,
        gap_cv: 1.08,
        fano: [1.3, 2.1, 5.4],
        input: [6881.0, 5557.0, 20_033.0],
        output: None,
        reuse: Some([0.784, 0.782]),
    },
];

/// Tolerances are half of the last digit printed there; 3 % on Fano, whose last bin can be cut in more than one way,
/// and 15 tokens on the 95th percentile, which is interpolated there and a nearest rank here.
#[test]
fn the_table_of_the_shared_folder_comes_out() {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");
    let folder = std::env::var_os("GORGO_SHARED").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    for published in PUBLISHED {
        let Ok(bytes) = std::fs::read(folder.join("traces").join(published.file)) else {
            println!("not run: {} is not in the shared data folder", published.file);
            continue;
        };
        let stats = TraceStats::from_trace(&read(&bytes, None).unwrap());
        let told = format!("{}: {stats:?}", published.file);
        assert_eq!(stats.rows, published.rows, "{told}");
        assert!((stats.duration_secs - published.duration_secs).abs() <= 0.7, "{told}");
        assert!(near(stats.rate, published.rate, 0.01), "{told}");
        assert!(near(stats.gap_cv, published.gap_cv, 0.006 * published.gap_cv.max(1.0)), "{told}");
        for (found, expected) in stats.fano.iter().zip(published.fano) {
            assert!(near(*found, expected, (0.03 * expected).max(0.05)), "{told}");
        }
        let lengths = |spread: &DistributionStats, expected: [f64; 3]| {
            near(spread.mean, expected[0], 0.6)
                && near(spread.p50, expected[1], 0.6)
                && near(spread.p95, expected[2], 15.0)
        };
        assert!(lengths(&stats.input, published.input), "{told}");
        if let Some(output) = published.output {
            assert!(lengths(&stats.output, output), "{told}");
        }
        match (stats.reuse, published.reuse) {
            (None, None) => {}
            (Some(found), Some([tokens, blocks])) => {
                assert!((found.tokens - tokens).abs() < 6e-4 && (found.blocks - blocks).abs() < 6e-4, "{told}");
            }
            _ => panic!("{told}"),
        }
    }
}

#[test]
fn sessions_of_the_mooncake_conversations_are_those_published() {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");
    let folder = std::env::var_os("GORGO_SHARED").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let Ok(bytes) = std::fs::read(folder.join("traces/mooncake/conversation_trace.jsonl.gz")) else {
        println!("not run: mooncake/conversation_trace.jsonl.gz is not in the shared data folder");
        return;
    };
    let sessions = TraceStats::from_trace(&read(&bytes, None).unwrap()).sessions.unwrap();
    assert_eq!((sessions.count, sessions.turns.p50, sessions.turns.p90), (7373, Some(1.0), Some(3.0)));
    assert_eq!((sessions.turns.p99, sessions.turns.max), (Some(8.0), Some(43.0)));
    assert!(
        near(sessions.turns.mean, 1.63, 0.005) && (sessions.single_request_share - 0.69).abs() < 0.005,
        "{sessions:?}"
    );
}
