//! The trace reader: formats, block sizes, faults, shared files, arbitrary bytes.

use std::io::Write;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

/// A file of the shared data folder; prints a note and returns `None` if it is absent.
fn shared(name: &str) -> Option<Vec<u8>> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");
    let folder = std::env::var_os("GORGO_SHARED").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let read = std::fs::read(folder.join("traces").join(name)).ok();
    if read.is_none() {
        println!("not run: {name} is not in the shared data folder");
    }
    read
}

const SMALL: &str = r#"{"timestamp": 20, "input_length": 40, "output_length": 7, "hash_ids": [1, 2, 3], "id": 4, "parent": null, "shared_tokens": 0, "engine_prompt_tokens": 55}

{"timestamp": 10.5, "input_length": 33, "output_length": 8, "hash_ids": [1, 2, 9], "user": 3, "conversation": "c-1", "turn": 2, "parent": 4, "made_up": {"x": []}}
{"timestamp": 30, "input_length": 5, "output_length": 1, "user": "u"}
"#;

#[test]
fn rows_come_out_by_time_with_all_fields() {
    let trace = read(SMALL.as_bytes(), None).unwrap();
    assert_eq!((trace.format, trace.block_tokens), (TraceFormat::Mooncake, 16));
    assert_eq!((trace.rows_without_blocks, trace.rows_refitted), (1, 0));
    let [early, late, bare] = trace.rows.as_slice() else { panic!("{:?}", trace.rows) };
    assert_eq!((early.index, early.at_ms, early.input_tokens, early.output_tokens), (1, 10.5, 33, 8));
    assert_eq!(early.blocks, [1, 2, 9]);
    assert_eq!((early.parent.as_deref(), early.turn), (Some("4"), Some(2)));
    assert_eq!((early.user.as_deref(), early.session()), (Some("3"), Some("c-1")));
    assert_eq!((late.id.as_deref(), late.shared_tokens, late.engine_prompt_tokens), (Some("4"), Some(0), Some(55)));
    assert_eq!((late.parent.as_deref(), late.session()), (None, None));
    // The row without ids got one that no other row has.
    assert_eq!((bare.blocks.as_slice(), bare.session()), ([10].as_slice(), Some("u")));
}

#[test]
fn gzip_is_known_by_its_first_bytes_and_damage_is_named() {
    let packed = gzip(SMALL.as_bytes());
    assert_eq!(read(&packed, None).unwrap(), read(SMALL.as_bytes(), None).unwrap());
    let two_members = [gzip(SMALL.as_bytes()), gzip(SMALL.as_bytes())].concat();
    assert_eq!(read(&two_members, None).unwrap().rows.len(), 6);
    assert!(matches!(read(&packed[..packed.len() - 9], None), Err(TraceError::Gzip(_))));
}

#[test]
fn hash_ids_may_be_hexadecimal_or_negative() {
    let text = r#"{"timestamp":0,"input_length":96,"output_length":1,"hash_ids":["ff","0xFF","0",-1,"00000000000000000000001","123456789abcdef0123456789abcdef0"]}"#;
    let blocks = &read(text.as_bytes(), None).unwrap().rows[0].blocks;
    assert_eq!(blocks[..5], [255, 255, 0, u64::MAX, 1]);
    assert!(blocks[5] > 1, "a long hash is folded into 64 bits: {}", blocks[5]);
}

fn rows_of(pairs: &[(u32, usize)]) -> String {
    let line = |(tokens, ids): &(u32, usize)| {
        let ids: Vec<usize> = (0..*ids).collect();
        format!("{{\"timestamp\":0,\"input_length\":{tokens},\"output_length\":1,\"hash_ids\":{ids:?}}}\n")
    };
    pairs.iter().map(line).collect()
}

#[test]
fn block_size_is_the_smallest_that_fits_every_row_a_power_of_two_where_one_does() {
    let size = |pairs: &[(u32, usize)]| read(rows_of(pairs).as_bytes(), None).unwrap().block_tokens;
    assert_eq!(size(&[(512, 1), (513, 2), (1025, 3)]), 512);
    assert_eq!(size(&[(256, 1), (511, 2), (512, 2)]), 256);
    assert_eq!(size(&[(100, 1), (101, 2)]), 100);
    assert_eq!(size(&[(3, 1)]), 16);
    assert_eq!(size(&[(40, 1)]), 64);
}

#[test]
fn ids_that_fit_no_block_size_are_refused_unless_the_size_is_stated() {
    let text = rows_of(&[(512, 1), (513, 2), (2000, 2)]);
    insta::assert_snapshot!(read(text.as_bytes(), None).unwrap_err());
    let trace = read(text.as_bytes(), Some(512)).unwrap();
    let lengths: Vec<usize> = trace.rows.iter().map(|row| row.blocks.len()).collect();
    assert_eq!((lengths, trace.rows_refitted), (vec![1, 2, 4], 1));
    // Ids that were filled in are fresh: no other row has them.
    assert_eq!(trace.rows[2].blocks, [0, 1, 2, 3]);
    assert!(matches!(read(text.as_bytes(), Some(0)), Err(TraceError::BlockSize(0))));
}

#[test]
fn bad_rows_are_all_counted_and_the_first_named_by_line() {
    let text = [
        r#"{"timestamp":0,"input_length":1,"output_length":1}"#,
        r#"{"timestamp":0,"input_length":1,"output_length":1"#,
        r#"{"timestamp":-1,"input_length":1,"output_length":1}"#,
        r#"{"timestamp":0,"input_length":0,"output_length":1}"#,
        r#"{"timestamp":0,"input_length":1.5,"output_length":1}"#,
        r#"{"timestamp":0,"input_length":99000000000,"output_length":1}"#,
        r#"{"timestamp":0,"input_length":1}"#,
        r#"{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":["block-1"]}"#,
        r#"{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[{}]}"#,
        "[]",
        "nonsense",
    ];
    insta::assert_snapshot!(read(text.join("\n").as_bytes(), None).unwrap_err());
}

#[test]
fn what_is_no_trace_says_so() {
    assert!(matches!(read(b"", None), Err(TraceError::Empty)));
    assert!(matches!(read(b" \n\r\n", None), Err(TraceError::Empty)));
    assert!(matches!(read(b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n", None), Err(TraceError::Empty)));
    assert!(matches!(read(b"a,b\n1,2\n", None), Err(TraceError::Format)));
}

#[test]
fn azure_rows_have_fresh_blocks_and_times_from_the_first() {
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n\
                2023-11-16 18:15:50.9951690,396,109\r\n2023-11-16 18:16:00.0000000+00:00,3,1\r\n";
    let trace = read(text.as_bytes(), None).unwrap();
    assert_eq!((trace.format, trace.rows_without_blocks), (TraceFormat::Azure, 3));
    let rows = &trace.rows;
    assert_eq!((rows[0].at_ms, rows[0].input_tokens, rows[0].output_tokens), (0.0, 374, 44));
    assert!((rows[1].at_ms - 4314.579).abs() < 1e-6, "{}", rows[1].at_ms);
    let mut ids: Vec<u64> = rows.iter().flat_map(|row| row.blocks.clone()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((all, ids.len()), (5, 5));
    let bad = "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n2023-11-16 18:15:46,x,1\n1,2\n";
    insta::assert_snapshot!(read(bad.as_bytes(), None).unwrap_err());
}

/// Rows, block size and reuse in tokens according to the description of the data.
#[test]
fn shared_traces_read_as_described() {
    let files = [
        ("mooncake/conversation_trace.jsonl.gz", 12_031, 512, 37.4),
        ("mooncake/mooncake_trace_arxiv_slice.jsonl", 93, 512, f64::NAN),
        ("gorgo/artchat_apr1_0030_15min_trace.jsonl.gz", 2_342, 256, 79.7),
        ("synthetic/artchat_apr5_like.jsonl.gz", 7_241, 256, 78.4),
        ("gorgo/artchat_apr5_1615_arrivals.jsonl.gz", 7_195, 256, 0.0),
        ("azure/AzureLLMInferenceTrace_conv.csv.gz", 19_366, 256, 0.0),
        ("azure/AzureLLMInferenceTrace_code.csv.gz", 8_819, 256, 0.0),
    ];
    for (name, rows, block, reuse_percent) in files {
        let Some(bytes) = shared(name) else { continue };
        let trace = read(&bytes, None).unwrap();
        assert_eq!((trace.rows.len(), trace.block_tokens, trace.rows_refitted), (rows, block, 0), "{name}");
        let mut seen = std::collections::HashSet::new();
        let (mut all, mut again) = (0.0, 0.0);
        for row in &trace.rows {
            let mut left = row.input_tokens;
            for id in &row.blocks {
                let tokens = left.min(trace.block_tokens);
                left -= tokens;
                all += f64::from(tokens);
                again += if seen.insert(*id) { 0.0 } else { f64::from(tokens) };
            }
        }
        let reuse = again / all * 100.0;
        assert!(reuse_percent.is_nan() || (reuse - reuse_percent).abs() < 0.06, "{name}: {reuse}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(11), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = read(&bytes, None);
        let _ = read(&gzip(&bytes), Some(16));
        let _ = read(&[&GZIP_MAGIC, bytes.as_slice()].concat(), None);
    }

    #[test]
    fn arbitrary_json_like_lines_never_panic_and_read_rows_obey_the_block_rule(
        lines in prop::collection::vec(
            prop_oneof![
                "\\{\"timestamp\":[0-9]{1,4},\"input_length\":[0-9]{1,4},\"output_length\":[0-9]{1,3}(,\"hash_ids\":\\[[0-9]{1,2}(,[0-9]{1,2}){0,5}\\])?\\}",
                "\\{(\"(timestamp|input_length|output_length|hash_ids|id|user)\":(-?[0-9.eE]{1,9}|\"[a-z0-9]{0,4}\"|null|\\[\\]|\\{\\}),?){1,4}\\}",
                "(TIMESTAMP,ContextTokens,GeneratedTokens|[-0-9: .]{1,20},[0-9]{1,3},[0-9]{1,3})",
            ],
            0..6,
        ),
        size in prop::option::of(1_u32..600),
    ) {
        if let Ok(trace) = read(lines.join("\n").as_bytes(), size) {
            prop_assert!(!trace.rows.is_empty());
            for row in &trace.rows {
                prop_assert_eq!(row.blocks.len(), row.input_tokens.div_ceil(trace.block_tokens) as usize);
            }
        }
    }
}
