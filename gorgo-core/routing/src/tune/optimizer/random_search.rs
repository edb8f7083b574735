//! Tries points anywhere in the box, evenly in logarithms: the baseline that a clever optimizer has to beat.

use serde::{Deserialize, Serialize};

use super::{Optimizer, OptimizerKind, Told, loaded, saved};
use crate::tune::exact_floats;
use crate::tune::space::{Space, randomness, uniform};

pub(super) const KIND: OptimizerKind = OptimizerKind {
    kind: "random-search",
    summary: "points anywhere within the bounds, evenly in logarithms",
    params: &[],
    build: |_, space, seed| {
        let state = State { incumbent: space.init(), candidate: space.init(), asked: 0, seed };
        Ok(Box::new(RandomSearch { space: space.clone(), state }))
    },
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    #[serde(with = "exact_floats::list")]
    incumbent: Vec<f64>,
    #[serde(with = "exact_floats::list")]
    candidate: Vec<f64>,
    asked: u64,
    seed: u64,
}

#[derive(Debug)]
struct RandomSearch {
    space: Space,
    state: State,
}

impl Optimizer for RandomSearch {
    fn ask(&mut self) -> Option<Vec<f64>> {
        let mut random = randomness(self.state.seed, self.state.asked);
        self.state.asked += 1;
        let each = self.space.dimensions.iter();
        self.state.candidate = each
            .map(|dimension| {
                let (low, high) = (dimension.min.ln(), dimension.max.ln());
                dimension.clip((low + uniform(&mut random) * (high - low)).exp())
            })
            .collect();
        (self.state.candidate != self.state.incumbent).then(|| self.state.candidate.clone())
    }

    fn tell(&mut self, told: &Told) {
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
        saved(&self.state)
    }

    fn load(&mut self, text: &str) -> Result<(), String> {
        self.state = loaded(text, &self.space, |state: &State| vec![&state.incumbent, &state.candidate], |_| true)?;
        Ok(())
    }
}
