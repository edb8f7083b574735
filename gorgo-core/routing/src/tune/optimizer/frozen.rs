//! Never moves: keeps the configured weights, which are measured all the same.

use super::{Optimizer, OptimizerKind, TrialResult};
use crate::tune::space::SearchSpace;

pub(super) const KIND: OptimizerKind = OptimizerKind {
    kind: "frozen",
    summary: "keeps the configured weights",
    params: &[],
    build: |_, space: &SearchSpace, _| Ok(Box::new(Frozen { init: space.init() })),
};

#[derive(Debug)]
struct Frozen {
    init: Vec<f64>,
}

impl Optimizer for Frozen {
    fn ask(&mut self) -> Option<Vec<f64>> {
        None
    }

    fn tell(&mut self, _told: &TrialResult) {}

    fn incumbent(&self) -> &[f64] {
        &self.init
    }

    fn sigma(&self) -> Option<f64> {
        None
    }

    fn reopen(&mut self) {}

    fn save(&self) -> String {
        "{}".to_owned()
    }

    fn load(&mut self, _state: &str) -> Result<(), String> {
        Ok(())
    }
}
