//! Real batches, hand-made ones of other engines, and anything else.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::super::msgpack_writer::MsgpackWriter;
use super::*;

fn config(cases: u32, seed: u64) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..ProptestConfig::default() }
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Recorded batches: number and payload.
fn recorded() -> Vec<(i64, Vec<u8>)> {
    let lines = include_str!("vllm-0.32.txt").lines().filter(|line| !line.starts_with('#'));
    let frames = lines.map(|line| line.split(' ').map(unhex).collect::<Vec<_>>());
    frames.map(|frames| (batch_number(&frames[1]).unwrap(), frames[2].clone())).collect()
}

fn stored(change: &KvChange) -> &StoredBlocks {
    let KvChange::Stored(stored) = change else { panic!("{change:?}") };
    stored
}

#[test]
fn batches_of_a_real_vllm() {
    let recorded = recorded();
    let numbers: Vec<i64> = recorded.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [0, 1, 2, 8]);
    let batches: Vec<KvEventBatch> = recorded.iter().map(|(_, payload)| decode_batch(payload).unwrap()).collect();
    assert!(
        batches.windows(2).all(|pair| pair[0].created_secs < pair[1].created_secs) && batches[0].created_secs > 1.7e9
    );
    assert!(batches.iter().all(|batch| batch.unknown == 0));

    let [first] = &batches[0].changes[..] else { panic!("{:?}", batches[0]) };
    let first = stored(first);
    assert_eq!((first.blocks.len(), first.tokens.len(), first.block_tokens), (5, 160, 32));
    assert_eq!((first.parent, first.blocks[0], first.tokens[1]), (None, 10_670_381_169_537_659_977, 372));
    assert_eq!(first.extra_key_digests, [0; 5]);

    // Cleared with the next step, then the same prompt with a salt: the same tokens under other names, with extra keys.
    assert_eq!(batches[1].changes[0], KvChange::Cleared);
    let salted = stored(&batches[1].changes[1]);
    assert_eq!(salted.tokens[..20], first.tokens[..20]);
    assert!(
        salted.extra_key_digests[0] != 0 && salted.extra_key_digests[1..] == [0; 4],
        "{:?}",
        salted.extra_key_digests
    );
    assert_ne!(salted.blocks[0], first.blocks[0]);

    let decoded = stored(&batches[2].changes[0]);
    assert_eq!((decoded.parent, decoded.blocks.len()), (salted.blocks.last().copied(), 1));
    assert_eq!(batches[3].changes, [KvChange::Removed(vec![12_233_956_127_339_432_493])]);
}

#[test]
fn sglangs_signed_names_and_positional_events() {
    let frame = MsgpackWriter::default().array(2).time(5.5).array(3);
    let frame = frame.array(6).text("BlockStored").array(2).whole(-1).whole(i64::MIN).whole(-77);
    let frame = frame.array(4).whole(1).whole(2).whole(70_000).whole(4).whole(2).nil();
    let frame = frame.array(2).text("BlockRemoved").array(2).whole(-5).large(u64::MAX - 1);
    let frame = frame.array(1).text("AllBlocksCleared");
    let expected = KvEventBatch {
        created_secs: 5.5,
        changes: vec![
            KvChange::Stored(StoredBlocks {
                blocks: vec![u64::MAX, 1 << 63],
                parent: Some((-77_i64).cast_unsigned()),
                tokens: vec![1, 2, 70_000, 4],
                block_tokens: 2,
                extra_key_digests: Vec::new(),
            }),
            KvChange::Removed(vec![(-5_i64).cast_unsigned(), u64::MAX - 1]),
            KvChange::Cleared,
        ],
        unknown: 0,
    };
    assert_eq!(decode_batch(&frame.0).unwrap(), expected);
}

#[test]
fn names_as_byte_strings_adapters_and_other_pools() {
    let event = |pool: i64, adapter: i64| {
        let frame = MsgpackWriter::default().array(1 + 1).whole(1).array(1).map(7).text("type").text("BlockStored");
        let frame = frame.text("block_hashes").array(1).bytes(&[9; 32]).text("parent_block_hash").bytes(&[1, 2]);
        let frame = frame.text("token_ids").array(1).whole(3).text("block_size").whole(1);
        let frame = frame.text("group_idx").whole(pool).text("lora_id").whole(adapter);
        decode_batch(&frame.0).unwrap().changes
    };
    let plain = event(0, 0);
    assert_eq!(stored(&plain[0]).blocks, [u64::from_be_bytes([9; 8])]);
    assert_eq!((stored(&plain[0]).parent, stored(&plain[0]).extra_key_digests.len()), (Some(0x102), 0));
    let (one, two) = (event(0, 1), event(0, 2));
    assert!(
        stored(&one[0]).extra_key_digests[0] != 0
            && stored(&one[0]).extra_key_digests != stored(&two[0]).extra_key_digests
    );
    assert_eq!(event(1, 0), [KvChange::Removed(Vec::new())], "another pool's blocks are none of ours");
}

#[test]
fn unknown_kinds_are_skipped_and_counted() {
    let frame = MsgpackWriter::default().array(4).time(1.0).array(4);
    let frame = frame.map(2).text("type").text("BlockMoved").text("block_hashes").text("elsewhere");
    let frame = frame.array(3).text("Loaded").nil().array(2).whole(1).map(1).text("a").bytes(b"b");
    let frame = frame.map(0).map(1).text("type").text("AllBlocksCleared");
    let frame = frame.whole(0).text("more");
    let read = decode_batch(&frame.0).unwrap();
    assert_eq!((read.unknown, &read.changes[..]), (3, &[KvChange::Cleared][..]));
}

#[test]
fn frames_that_are_none() {
    let deep = {
        let mut frame = MsgpackWriter::default().array(2).time(1.0).array(1).array(2).text("Nested");
        for _ in 0..100_000 {
            frame = frame.array(1);
        }
        frame.nil().0
    };
    let promised = MsgpackWriter::default().array(2).time(1.0).array(u32::MAX).0;
    let no_names = MsgpackWriter::default().array(2).time(1.0).array(1).array(1).text("BlockRemoved").0;
    let cases: [(&[u8], FrameError); 8] = [
        (b"", FrameError::Truncated),
        (b"\xc0", FrameError::Unexpected("a batch")),
        (b"\x91\x01", FrameError::Unexpected("time and events")),
        (b"\x92\xa1x\x90", FrameError::Unexpected("a time")),
        (b"\x92\x01\x01", FrameError::Unexpected("a list of events")),
        (&promised, FrameError::Truncated),
        (&no_names, FrameError::Unexpected("names of removed blocks")),
        (&deep, FrameError::TooDeep),
    ];
    for (frame, expected) in cases {
        assert_eq!(decode_batch(frame), Err(expected), "{:?}", frame.get(..20));
    }
    assert_eq!(batch_number(b"1234567"), Err(FrameError::Number(7)));
    assert_eq!(batch_number(&[0xff; 8]), Ok(-1));
    assert_eq!(decode_batch(&vec![0xc0; MOST_BYTES + 1]), Err(FrameError::TooLong(MOST_BYTES + 1)));
}

proptest! {
    #![proptest_config(config(2_000, 31))]

    #[test]
    fn anything_is_read_or_refused_and_costs_little(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(read) = decode_batch(&bytes) {
            let names = |change: &KvChange| match change {
                KvChange::Stored(stored) => stored.blocks.len().max(stored.tokens.len()),
                KvChange::Removed(blocks) => blocks.len(),
                _ => 0,
            };
            prop_assert!(read.created_secs.is_finite());
            prop_assert!(read.changes.iter().map(names).sum::<usize>() <= bytes.len());
        }
    }

    #[test]
    fn a_real_batch_with_a_byte_changed_or_cut_short_is_read_or_refused(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        for (_, payload) in recorded() {
            let mut payload = payload;
            let at = at.index(payload.len());
            prop_assert!(decode_batch(&payload[..at]).is_err());
            payload[at] = byte;
            // Whatever the input, it ends without a panic.
            if let Ok(read) = decode_batch(&payload) {
                prop_assert!(read.changes.len() as u64 + read.unknown <= 16);
            }
        }
    }
}
