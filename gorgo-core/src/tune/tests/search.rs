//! Flat, a better point, a lucky window, a world that changes, a fleet that changes, a candidate that fails.

use super::world::{World, plan, tuner, valley};
use crate::model::{Record, Verdict};
use crate::tune::Assignment;

const START: [f64; 2] = [0.276, 0.5];
const BEST: [f64; 2] = [0.6, 0.12];

#[test]
fn tune_a_flat_objective_is_left_alone() {
    let (mut accepted, mut decided, mut far) = (0, 0, 0);
    let seeds = 100..115_u64;
    for seed in seeds.clone() {
        let plan = plan("ttft-e2e", "es-1plus1", &[], seed);
        let mut tuner = tuner(&plan);
        let mut world = World::new(seed, |_: &[f64], _| 0.0);
        world.run(&mut tuner, 20_000);
        let (won, lost, _) = world.verdicts();
        accepted += won;
        decided += won + lost;
        let weights = &tuner.incumbent().values;
        far += usize::from(plan.space.at_bound(&[weights[0]]).next().is_some());
    }
    println!(
        "seeds {seeds:?}: {accepted} of {decided} candidates accepted on a flat objective, {far} ended at a bound"
    );
    assert!(decided > 200, "{decided} generations decide too little");
    assert!(accepted * 10 <= decided, "{accepted} of {decided} false acceptances");
    assert!(far <= 2, "{far} runs drifted to a bound");
}

#[test]
fn tune_a_better_point_is_found() {
    let mut found = 0;
    let seeds = 200..225_u64;
    for seed in seeds.clone() {
        let plan = plan("ttft-e2e", "es-1plus1", &[], seed);
        let mut tuner = tuner(&plan);
        let mut world = World::new(seed, |weights: &[f64], _| valley(weights, BEST, START));
        world.run(&mut tuner, 20_000);
        let left = valley(&tuner.incumbent().values, BEST, START);
        let better = 1.0 - (left - 0.25).exp();
        println!("seed {seed}: {:.1} % better, {:?}", better * 100.0, world.verdicts());
        found += usize::from(better >= 0.10);
    }
    println!("seeds {seeds:?}: a 10 % better point found in {found} of 25");
    assert!(found * 5 >= 25 * 4, "{found} of 25");
}
