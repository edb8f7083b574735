//! After a restart a tuner goes on where the last saved state left it, and trusts nothing in it.

use super::synthetic::{SyntheticTraffic, plan, tuner, valley};
use crate::model::StoreRecord;
use crate::tune::Tuner;

/// A tuner that has run for a while, and the newest state it saved.
fn history() -> (Tuner, String, u64) {
    let plan = plan("ttft-e2e", "es-1plus1", &[], 77);
    let mut tuner = tuner(&plan);
    let mut world = SyntheticTraffic::new(77, |weights: &[f64], _| 4.0 * valley(weights, [0.6, 0.12], [0.276, 0.5]));
    world.run(&mut tuner, 9_000);
    while tuner.candidate().is_none() {
        world.run(&mut tuner, 1);
    }
    let state = world.records.iter().rev().find_map(|record| match record {
        StoreRecord::Generation(row) => row.state.clone(),
        _ => None,
    });
    let last = tuner.candidate().unwrap().generation.0;
    (tuner, state.unwrap(), last)
}

#[test]
fn tune_a_killed_run_loses_nothing_but_the_generation_it_was_in() {
    let (before, state, last) = history();
    assert!(before.incumbent().generation.0 > 0, "something was accepted, else this shows nothing");
    let mut after = tuner(&plan("ttft-e2e", "es-1plus1", &[], 77));
    after.resume(&state, last).unwrap();
    assert_eq!(after.incumbent(), before.incumbent());
    assert_eq!(after.sigma(), before.sigma());
    let mut world = SyntheticTraffic::new(78, |_: &[f64], _| 0.0);
    while after.candidate().is_none() {
        world.run(&mut after, 1);
    }
    assert_eq!(after.candidate().unwrap().generation.0, last + 1, "the cut one's number is not used again");
    assert_eq!(
        after.candidate().unwrap().values,
        before.candidate().unwrap().values,
        "the cut candidate is drawn again: it was not counted"
    );
}

#[test]
fn tune_states_that_cannot_be_trusted_are_refused_with_the_reason() {
    let (before, state, last) = history();
    let weight = format!("{:?}", before.incumbent().values[0]);
    let sigma = format!("\"sigma\\\":\\\"{:?}", before.sigma().unwrap());
    assert!(state.contains(&weight) && state.contains(&sigma), "{state}");
    let broken = [
        (String::new(), "cannot be read"),
        (state.replace("\"version\":1", "\"version\":9"), "version 9"),
        (state.replace("\"b\"", "\"elsewhere\""), "another fleet: a, elsewhere, c"),
        (state.replace("es-1plus1", "cma-es"), "for optimizer cma-es"),
        (state.replace(&weight, "NaN"), "saved weight NaN of term 1 is not allowed"),
        (state.replace(&weight, "0.0"), "saved weight 0.0 of term 1 is not allowed"),
        (state.replace(&weight, "1e9"), "saved weight 1000000000.0 of term 1 is not allowed"),
        (state.replace(&sigma, "\"sigma\\\":\\\"-0.5"), "step sizes"),
    ];
    for (text, reason) in broken {
        let mut after = tuner(&plan("ttft-e2e", "es-1plus1", &[], 77));
        let refused = after.resume(&text, last).unwrap_err();
        assert!(refused.contains(reason), "{refused}, expected {reason}");
        assert_eq!(after.incumbent().values, [0.276, 1.0, 0.5], "as configured");
        let mut world = SyntheticTraffic::new(78, |_: &[f64], _| 0.0);
        while after.candidate().is_none() {
            world.run(&mut after, 1);
        }
        assert_eq!(after.candidate().unwrap().generation.0, last + 1, "numbers go on all the same");
    }
}

#[test]
fn tune_the_same_samples_give_the_same_verdicts() {
    let run = || {
        let mut tuner = tuner(&plan("ttft-e2e", "cma-es", &[], 12));
        let mut world = SyntheticTraffic::new(12, |weights: &[f64], _| valley(weights, [0.6, 0.12], [0.276, 0.5]));
        world.run(&mut tuner, 4_000);
        world.records
    };
    let (one, other) = (run(), run());
    assert!(!one.is_empty());
    assert_eq!(one, other);
}
