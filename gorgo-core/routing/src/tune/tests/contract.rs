//! What every optimizer must do, over the whole table.

use super::synthetic::{params, plan};
use crate::tune::optimizer::{OPTIMIZERS, Optimizer, TrialResult};

fn built(kind: &str, seed: u64) -> (crate::tune::SearchSpace, Box<dyn Optimizer>) {
    let space = plan("ttft-e2e", kind, &[], seed).space;
    let kind = OPTIMIZERS.iter().find(|row| row.kind == kind).unwrap();
    let optimizer = (kind.build)(&params(kind.params, &[]), &space, seed).unwrap();
    (space, optimizer)
}

/// A verdict without noise on a bowl around (0.6, 0.12), or on a plain.
fn told(optimizer: &dyn Optimizer, candidate: &[f64], flat: bool) -> TrialResult {
    let bowl = |point: &[f64]| (point[0] / 0.6).ln().powi(2) + (point[1] / 0.12).ln().powi(2);
    let difference = if flat { 0.0 } else { bowl(candidate) - bowl(optimizer.incumbent()) };
    TrialResult { accepted: difference < 0.0, decided: true, difference, error: 0.01 }
}

#[test]
fn tune_every_optimizer_stays_in_the_box_and_only_moves_when_it_is_told_to() {
    for kind in OPTIMIZERS {
        for seed in 0..10 {
            let (space, mut optimizer) = built(kind.kind, seed);
            for _ in 0..60 {
                let before = optimizer.incumbent().to_vec();
                let Some(candidate) = optimizer.ask() else { break };
                assert!(space.contains(&candidate), "{}: {candidate:?}", kind.kind);
                assert_ne!(candidate, before, "{}: nothing to compare", kind.kind);
                assert_eq!(optimizer.incumbent(), before, "{}: it moved before it was told", kind.kind);
                optimizer.tell(&told(&*optimizer, &candidate, true));
                assert_eq!(optimizer.incumbent(), before, "{}: it moved on a plain", kind.kind);
                let again = optimizer.ask();
                if let Some(candidate) = again {
                    optimizer.tell(&TrialResult { accepted: true, ..told(&*optimizer, &candidate, false) });
                    assert_eq!(optimizer.incumbent(), candidate, "{}", kind.kind);
                }
            }
        }
    }
}

#[test]
fn tune_every_optimizer_but_the_frozen_one_finds_a_better_point() {
    for kind in OPTIMIZERS.iter().filter(|kind| kind.kind != "frozen") {
        let mut found = 0;
        for seed in 0..20 {
            let (_, mut optimizer) = built(kind.kind, seed);
            let bowl = |point: &[f64]| (point[0] / 0.6_f64).ln().powi(2) + (point[1] / 0.12_f64).ln().powi(2);
            let start = bowl(optimizer.incumbent());
            for _ in 0..60 {
                let Some(candidate) = optimizer.ask() else { break };
                optimizer.tell(&told(&*optimizer, &candidate, false));
            }
            found += usize::from(bowl(optimizer.incumbent()) < 0.5 * start);
        }
        println!("{}: {found} of 20", kind.kind);
        assert!(found >= 18, "{}: {found} of 20", kind.kind);
    }
}

#[test]
fn tune_every_optimizer_resumes_bit_for_bit() {
    for kind in OPTIMIZERS {
        let (_, mut whole) = built(kind.kind, 7);
        for cut in 0..25 {
            // Resumed by another one, which was built with another seed and has a past of its own.
            let (_, mut resumed) = built(kind.kind, 8);
            for _ in 0..3 {
                if let Some(candidate) = resumed.ask() {
                    resumed.tell(&told(&*resumed, &candidate, false));
                }
            }
            let saved = whole.save();
            resumed.load(&saved).unwrap();
            assert_eq!(resumed.save(), saved, "{} after {cut}", kind.kind);
            for _ in 0..12 {
                let (one, other) = (whole.ask(), resumed.ask());
                let bits = |point: &Option<Vec<f64>>| {
                    point.as_ref().map(|point| point.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
                };
                assert_eq!(bits(&one), bits(&other), "{} after {cut}", kind.kind);
                let Some(candidate) = one else { break };
                let told = told(&*whole, &candidate, cut % 2 == 0);
                whole.tell(&told);
                resumed.tell(&told);
            }
        }
    }
}

#[test]
fn tune_states_of_others_and_broken_ones_are_refused_and_change_nothing() {
    for kind in OPTIMIZERS.iter().filter(|kind| kind.kind != "frozen") {
        let (_, mut optimizer) = built(kind.kind, 1);
        let before = optimizer.save();
        let mut broken = vec!["".to_owned(), "{}".to_owned(), "null".to_owned(), before[..before.len() / 2].to_owned()];
        for bad in ["NaN", "0.0", "1000000000.0", "-0.5", "inf"] {
            broken.push(before.replacen("0.276", bad, 1));
        }
        if optimizer.sigma().is_some() {
            let sigma = format!("{:?}", optimizer.sigma().unwrap());
            broken.push(before.replace(&format!("\"{sigma}\""), "\"-1.0\""));
            broken.push(before.replace(&format!("\"{sigma}\""), "\"NaN\""));
        }
        for text in broken {
            assert!(optimizer.load(&text).is_err(), "{}: {text}", kind.kind);
            assert_eq!(optimizer.save(), before, "{}", kind.kind);
        }
    }
}

#[test]
fn tune_reopening_widens_the_steps() {
    for kind in OPTIMIZERS {
        let (_, mut optimizer) = built(kind.kind, 3);
        let Some(first) = optimizer.sigma() else { continue };
        for _ in 0..80 {
            let Some(candidate) = optimizer.ask() else { break };
            optimizer.tell(&told(&*optimizer, &candidate, true));
        }
        assert!(optimizer.sigma().unwrap() < 0.5 * first, "{}: steps do not shrink on a plain", kind.kind);
        optimizer.reopen();
        assert!(optimizer.sigma().unwrap() >= first, "{}", kind.kind);
    }
}
