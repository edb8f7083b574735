//! What is told of a cache, on top of what the index saw itself.

use super::*;

const A: ReplicaId = ReplicaId(0);
const D: DecisionId = DecisionId(5);

#[test]
fn a_block_that_went_takes_what_follows_and_its_path_can_still_be_evicted() {
    let index = PrefixIndex::new(2, ROOM);
    let _ = put(&index, &[1, 2, 3, 4], 0, 1);
    let _ = put(&index, &[1, 2, 7], 0, 2);
    let _ = put(&index, &[1, 2, 3, 4], 1, 3);
    let path = links(&[1, 2, 3, 4]);
    index.unmark_from(path[0], path[2], A);
    check_invariants(&index, 2);
    assert_eq!(matches(&index, &[1, 2, 3, 4], 2), [2, 4]);
    assert_eq!(matches(&index, &[1, 2, 7], 2), [3, 2]);
    // The newest use ends in what goes: it is shortened, not lost.
    index.unmark_from(path[0], links(&[1, 2, 7])[2], A);
    check_invariants(&index, 2);
    index.set_capacity(A, 1);
    assert_eq!(matches(&index, &[1, 2], 2), [1, 2]);
    index.unmark_from(77, 78, A);
    index.unmark_from(path[0], path[0], ReplicaId(9));
    check_invariants(&index, 2);
}

#[test]
fn settling_adds_what_is_missing_and_drops_what_was_not_used_since() {
    let index = PrefixIndex::new(2, ROOM);
    let path = links(&[1, 2, 3, 4]);
    index.reconcile(&path, 3, None, A, D);
    assert_eq!(matches(&index, &[1, 2, 3, 4], 2), [3, 0]);
    let _ = put(&index, &[1, 2, 3, 4], 0, 10);
    let since = index.current_stamp();
    index.reconcile(&path, 2, Some(since - 1), A, D);
    assert_eq!(matches(&index, &[1, 2, 3, 4], 2), [4, 0], "used since");
    index.reconcile(&path, 2, None, A, D);
    assert_eq!(matches(&index, &[1, 2, 3, 4], 2), [4, 0], "not known for certain");
    index.reconcile(&path, 2, Some(since), A, D);
    assert_eq!(matches(&index, &[1, 2, 3, 4], 2), [2, 0]);
    index.reconcile(&path, 0, Some(since), A, D);
    index.reconcile(&path, 9, None, ReplicaId(1), D);
    assert_eq!(matches(&index, &[1, 2, 3, 4], 2), [0, 4]);
    check_invariants(&index, 2);
}

proptest! {
    #![proptest_config(config(256, 51))]

    #[test]
    fn the_invariants_hold_whatever_is_told(
        steps in proptest::collection::vec(
            (0..4_u8, proptest::collection::vec(0..3_u8, 1..6), 0..2_u16, 0..6_usize), 1..60),
        capacity in 1..20_u64,
    ) {
        let index = PrefixIndex::new(2, ROOM);
        index.set_capacity(A, capacity);
        for (at, (what, path, replica, blocks)) in (1..).zip(steps) {
            let (links, replica_id) = (links(&path), ReplicaId(replica));
            match what {
                0 => drop(put(&index, &path, replica, at)),
                1 => {
                    let block = links[blocks % links.len()];
                    index.unmark_from(links[0], block, replica_id);
                    let here = matches(&index, &path, 2)[usize::from(replica)];
                    prop_assert!(here <= u32::try_from(blocks % links.len()).unwrap());
                }
                2 => index.reconcile(&links, blocks, Some(index.current_stamp()), replica_id, D),
                _ => {
                    index.mark_cached(&links, replica_id, D);
                    let here = matches(&index, &path, 2)[usize::from(replica)];
                    prop_assert_eq!(u64::from(here), (links.len() as u64).min(if replica == 0 { capacity } else { 99 }));
                }
            }
            check_invariants(&index, 2);
        }
    }
}
