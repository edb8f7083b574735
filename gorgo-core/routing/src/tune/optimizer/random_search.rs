//! Tries points anywhere in the box, evenly distributed in logarithms: the baseline that a smarter optimizer must beat.

use serde::{Deserialize, Serialize};

use super::{Optimizer, OptimizerKind, TrialResult, load_state, save_state};
use crate::tune::exact_floats;
use crate::tune::space::{SearchSpace, step_rng, uniform};

pub(super) const KIND: OptimizerKind = OptimizerKind {
    kind: "random-search",
    summary: "points anywhere within the bounds, evenly in logarithms",
    params: &[],
    build: |_, space, seed| {
        let state = RandomSearchState { incumbent: space.init(), candidate: space.init(), asked: 0, seed };
        Ok(Box::new(RandomSearch { space: space.clone(), state }))
    },
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RandomSearchState {
    #[serde(with = "exact_floats::list")]
    incumbent: Vec<f64>,
    #[serde(with = "exact_floats::list")]
    candidate: Vec<f64>,
    asked: u64,
    seed: u64,
}

#[derive(Debug)]
struct RandomSearch {
    space: SearchSpace,
    state: RandomSearchState,
}

impl Optimizer for RandomSearch {
    fn ask(&mut self) -> Option<Vec<f64>> {
        let mut random = step_rng(self.state.seed, self.state.asked);
        self.state.asked += 1;
        let each = self.space.dimensions.iter();
        self.state.candidate = each
            .map(|dimension| {
                let (low, high) = (dimension.min.ln(), dimension.max.ln());
                dimension.clamp((low + uniform(&mut random) * (high - low)).exp())
            })
            .collect();
        // A point equal to the incumbent could only tie.
        (self.state.candidate != self.state.incumbent).then(|| self.state.candidate.clone())
    }

    fn tell(&mut self, told: &TrialResult) {
        if told.accepted {
            self.state.incumbent.clone_from(&self.state.candidate);
        }
    }

    fn incumbent(&self) -> &[f64] {
        &self.state.incumbent
    }

    fn sigma(&self) -> Option<f64> {
        None
    }

    fn reopen(&mut self) {}

    fn save(&self) -> String {
        save_state(&self.state)
    }

    fn load(&mut self, text: &str) -> Result<(), String> {
        self.state = load_state(
            text,
            &self.space,
            |state: &RandomSearchState| vec![&state.incumbent, &state.candidate],
            |_| true,
        )?;
        Ok(())
    }
}
