//! Index → bytes → index: the same matches, the same order of eviction; and bytes from anywhere.

use super::*;

const REPLICAS: u16 = 3;
const LATER: UnixMicros = UnixMicros(2_000_000);
const FITS: u64 = 77;

/// Some paths inserted at rising times; some of them fail and are taken back.
fn used(steps: &[(Vec<u8>, u16, bool)]) -> PrefixIndex {
    let index = PrefixIndex::new(usize::from(REPLICAS), ROOM);
    for ((path, replica, fails), at) in steps.iter().zip(1_000_u64..) {
        let ticket = put(&index, path, *replica, at * 7);
        if *fails {
            index.retract(&links(path), ticket);
        }
    }
    index
}

fn steps() -> impl Strategy<Value = Vec<(Vec<u8>, u16, bool)>> {
    let path = proptest::collection::vec(0_u8..4, 1..9);
    proptest::collection::vec((path, 0..REPLICAS, proptest::bool::weighted(0.2)), 1..60)
}

/// What a later run makes of it.
fn again(index: &PrefixIndex) -> PrefixIndex {
    let next = PrefixIndex::new(usize::from(REPLICAS), ROOM);
    let all: Vec<Vec<SnapshotPath>> = (0..REPLICAS)
        .map(|replica| {
            let bytes = encode(FITS, LATER, &index.export_paths(ReplicaId(replica), MAX_BLOCKS));
            decode(&bytes, FITS, LATER, 60).unwrap()
        })
        .collect();
    let oldest = all.iter().filter_map(|uses| uses.last()).map(|used| used.at).min();
    next.set_clock_origin(oldest.unwrap_or(LATER));
    for (uses, replica) in all.iter().zip(0..) {
        let done = next.restore(ReplicaId(replica), uses);
        assert_eq!(done.left_out, 0);
        assert_eq!(done.blocks, index.replica_stats(ReplicaId(replica)).unwrap().blocks);
    }
    next
}

fn assert_equal(one: &PrefixIndex, other: &PrefixIndex, paths: &[(Vec<u8>, u16, bool)]) {
    for (path, ..) in paths {
        let (mut left, mut right) = (vec![0; usize::from(REPLICAS)], vec![0; usize::from(REPLICAS)]);
        let (of, again) = (one.lookup(&links(path), &mut left), other.lookup(&links(path), &mut right));
        assert_eq!((left, of.blocks), (right, again.blocks), "{path:?}");
        // One that failed before its engine read it is forgotten as a parent.
        if paths.iter().all(|(.., fails)| !fails) {
            assert_eq!(of.parent, again.parent, "{path:?}");
        }
    }
}

proptest! {
    #![proptest_config(config(200, 31))]

    #[test]
    fn a_restored_index_matches_and_evicts_as_the_one_before(steps in steps(), room in 1_u64..20) {
        let index = used(&steps);
        let next = again(&index);
        check_invariants(&next, REPLICAS);
        assert_equal(&index, &next, &steps);
        for replica in 0..REPLICAS {
            index.set_capacity(ReplicaId(replica), room);
            next.set_capacity(ReplicaId(replica), room);
        }
        check_invariants(&next, REPLICAS);
        assert_equal(&index, &next, &steps);
        // and goes on as any index
        let _ = put(&next, &[0, 1, 2, 3], 0, LATER.0 + 1);
        check_invariants(&next, REPLICAS);
    }

    #[test]
    fn what_is_cut_short_keeps_the_newest_and_is_whole(steps in steps(), most in 0_usize..30) {
        let index = used(&steps);
        let uses = index.export_paths(ReplicaId(0), most);
        prop_assert!(uses.iter().map(|used| used.blocks.len()).sum::<usize>() <= most);
        let whole = index.export_paths(ReplicaId(0), MAX_BLOCKS);
        prop_assert_eq!(&uses[..], &whole[..uses.len()]);
        let next = PrefixIndex::new(usize::from(REPLICAS), ROOM);
        prop_assert_eq!(next.restore(ReplicaId(0), &uses).left_out, 0);
        check_invariants(&next, REPLICAS);
    }

    #[test]
    fn an_index_that_was_used_since_takes_the_rest(before in steps(), since in steps(), capacity in 1_u64..60) {
        let uses = used(&before).export_paths(ReplicaId(1), MAX_BLOCKS);
        let next = PrefixIndex::new(usize::from(REPLICAS), ROOM);
        next.set_clock_origin(UnixMicros(1));
        next.set_capacity(ReplicaId(1), capacity);
        for ((path, replica, _), at) in since.iter().zip(LATER.0..) {
            let _ = put(&next, path, *replica, at);
        }
        let (_, held) = (next.restore(ReplicaId(1), &uses), next.replica_stats(ReplicaId(1)).unwrap().blocks);
        prop_assert!(held <= capacity);
        check_invariants(&next, REPLICAS);
    }

    #[test]
    fn bytes_from_anywhere_are_refused_or_do_no_harm(
        steps in steps(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
        mended in any::<bool>(),
    ) {
        let sound = encode(FITS, LATER, &used(&steps).export_paths(ReplicaId(0), MAX_BLOCKS));
        let mut bytes = sound.clone();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(cut.index(bytes.len() * 3).max(1));
        if bytes == sound {
            return Ok(());
        }
        if mended && bytes.len() > 28 {
            let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[28..]).to_le_bytes();
            bytes[20..28].copy_from_slice(&checksum);
        } else if let Ok(uses) = decode(&bytes, FITS, LATER, 60) {
            prop_assert!(false, "damage was not seen: {:?}", uses);
        }
        if let Ok(uses) = decode(&bytes, FITS, LATER, u64::MAX) {
            let next = PrefixIndex::new(usize::from(REPLICAS), ROOM);
            next.restore(ReplicaId(0), &uses);
            check_invariants(&next, REPLICAS);
        }
    }

    #[test]
    fn noise_is_no_snapshot(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(decode(&bytes, FITS, LATER, 60).is_err());
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let bytes = encode(FITS, LATER, &[]);
    assert_eq!(decode(&bytes, FITS, LATER, 60), Ok(Vec::new()));
    assert_eq!(decode(&bytes, FITS + 1, LATER, 60), Err(SnapshotError::Foreign));
    assert_eq!(decode(&bytes, FITS, UnixMicros(LATER.0 + 62_000_000), 60), Err(SnapshotError::TooOld(62)));
    assert_eq!(decode(&bytes, FITS, UnixMicros(LATER.0 - 1), 60), Err(SnapshotError::Future));
    let mut newer = bytes.clone();
    newer[8] = 9;
    assert_eq!(decode(&newer, FITS, LATER, 60), Err(SnapshotError::Version(9)));
    assert!(matches!(decode(&bytes[..20], FITS, LATER, 60), Err(SnapshotError::Damaged(_))));
}

#[test]
fn a_snapshot_fits_one_database_block_size_engine_and_address() {
    let key = SnapshotKey { secret: 1, block_bytes: 256, engine: "sglang", url: "http://a:1" };
    let others = [
        SnapshotKey { secret: 2, ..key },
        SnapshotKey { block_bytes: 128, ..key },
        SnapshotKey { engine: "vllm", ..key },
        SnapshotKey { url: "http://a:2", ..key },
    ];
    assert!(others.iter().all(|other| other.fits() != key.fits()));
}

#[test]
fn a_purge_meanwhile_is_final() {
    let index = used(&[(vec![1, 2, 3], 0, false)]);
    let uses = index.export_paths(ReplicaId(0), MAX_BLOCKS);
    let next = PrefixIndex::new(1, ROOM);
    next.restore(ReplicaId(0), &uses);
    assert_eq!(matches(&next, &[1, 2, 3], 1), [3]);
    next.purge(ReplicaId(0));
    assert_eq!(matches(&next, &[1, 2, 3], 1), [0]);
}
