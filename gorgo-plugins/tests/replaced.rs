//! A build that is replaced while it runs: the file may be overwritten in place, and the new build is loaded beside the
//! old one.

use std::fs;

use gorgo_plugins::conform::candidates;
use gorgo_plugins::host::QuarantineMode;

use crate::bench::{hostile_c, policies, signals, term, with_terms};

#[test]
fn overwriting_the_file_in_place_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let builds = [hostile_c(folder.path(), &["-DVALUE=1.0"]), hostile_c(folder.path(), &["-DVALUE=2.0"])];
    let library = folder.path().join("live.so");
    let load = || policies(with_terms(vec![term(&library, &[])]), QuarantineMode::Enforced).unwrap().0;
    fs::copy(&builds[0], &library).unwrap();
    let first = load();
    let mut kept = Vec::new();
    for round in 0..20 {
        // In place: the same file gets other bytes, and for a moment none.
        fs::write(&library, fs::read(&builds[(round + 1) % 2]).unwrap()).unwrap();
        assert_eq!(signals(&first, &candidates(3)), [1.0; 3], "the old code acts until a new policy is built");
        let next = load();
        let expected = if round % 2 == 0 { 2.0 } else { 1.0 };
        assert_eq!(signals(&next, &candidates(3)), [expected; 3]);
        kept.push(next);
    }
    fs::remove_file(&library).unwrap();
    assert_eq!(signals(&first, &candidates(3)), [1.0; 3]);
    assert_eq!(signals(&kept[0], &candidates(3)), [2.0; 3]);
}
