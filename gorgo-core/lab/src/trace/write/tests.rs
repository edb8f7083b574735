//! Written traces are read back unchanged.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

use super::super::{TraceRow, read};
use super::*;

fn written(rows: &[TraceRow], packing: TraceCompression) -> Vec<u8> {
    let mut out = Vec::new();
    write(rows, packing, &mut out).unwrap();
    out
}

#[test]
fn a_line_reads_like_this() {
    let rows = [
        TraceRow { at_ms: 12.0, input_tokens: 20, output_tokens: 3, blocks: vec![7, 8], ..TraceRow::default() },
        TraceRow {
            index: 1,
            at_ms: 13.062_5,
            input_tokens: 16,
            output_tokens: 0,
            blocks: vec![7],
            id: Some("4".into()),
            parent: Some("07".into()),
            shared_tokens: Some(16),
            engine_prompt_tokens: Some(30),
            user: Some("u\"1".into()),
            conversation: Some("-1".into()),
            turn: Some(2),
        },
    ];
    insta::assert_snapshot!(String::from_utf8(written(&rows, TraceCompression::Plain)).unwrap(), @r#"
    {"timestamp":12,"input_length":20,"output_length":3,"hash_ids":[7,8]}
    {"timestamp":13.063,"input_length":16,"output_length":0,"hash_ids":[7],"id":4,"parent":"07","shared_tokens":16,"engine_prompt_tokens":30,"user":"u\"1","conversation":"-1","turn":2}
    "#);
}

#[test]
fn equal_rows_give_equal_bytes_also_when_packed() {
    let rows = [TraceRow { input_tokens: 1, blocks: vec![0], ..TraceRow::default() }];
    assert_eq!(written(&rows, TraceCompression::Gzip), written(&rows, TraceCompression::Gzip));
    assert_eq!(
        (TraceCompression::from_file_name("a.jsonl.gz"), TraceCompression::from_file_name("a.jsonl")),
        (TraceCompression::Gzip, TraceCompression::Plain)
    );
}

const BLOCK: u32 = 16;

fn label() -> impl Strategy<Value = Option<Arc<str>>> {
    proptest::option::of(prop_oneof!["[0-9]{1,21}", "[a-z\"\\\\ é]{0,6}"].prop_map(Arc::from))
}

fn row() -> impl Strategy<Value = TraceRow> {
    let numbers = (0_u64..4_000_000_000_000, 1_u32..400, 0_u32..500, any::<u64>());
    let options = (proptest::option::of(0_u32..400), proptest::option::of(1_u32..900), proptest::option::of(1_u32..9));
    (numbers, options, label(), label(), label(), label()).prop_map(
        |((us, input, output, first), (shared, engine, turn), id, parent, user, conversation)| TraceRow {
            at_ms: us as f64 / 1e3,
            input_tokens: input,
            output_tokens: output,
            blocks: (0..u64::from(input.div_ceil(BLOCK))).map(|block| first.wrapping_add(block)).collect(),
            shared_tokens: shared,
            engine_prompt_tokens: engine,
            turn,
            id,
            parent,
            user,
            conversation,
            ..TraceRow::default()
        },
    )
}

proptest! {
    #![proptest_config(Config { rng_seed: RngSeed::Fixed(11), failure_persistence: None, cases: 128, ..Config::default() })]

    #[test]
    fn reading_gives_back_what_was_written(mut rows in proptest::collection::vec(row(), 1..20), packed in any::<bool>()) {
        rows.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
        for (index, row) in rows.iter_mut().enumerate() {
            row.index = index;
        }
        let packing = if packed { TraceCompression::Gzip } else { TraceCompression::Plain };
        let trace = read(&written(&rows, packing), Some(BLOCK)).unwrap();
        prop_assert_eq!(trace.rows_refitted, 0);
        prop_assert_eq!(trace.rows, rows);
    }
}
