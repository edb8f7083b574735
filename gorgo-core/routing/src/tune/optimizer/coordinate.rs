//! One weight at a time, up and down in turn (a pattern search in logarithms).
//!
//! A step that wins is tried again in the same direction, wider. When both directions of a weight have lost, its step
//! shrinks and it is the next weight's turn. Easier to follow for a person than random directions.

use serde::{Deserialize, Serialize};

use super::{Optimizer, OptimizerKind, TrialResult, load_state, save_state};
use crate::model::{ParamSpec, ParamType};
use crate::tune::exact_floats;
use crate::tune::space::SearchSpace;

pub(super) const KIND: OptimizerKind = OptimizerKind {
    kind: "coordinate",
    summary: "one weight at a time, up and down",
    params: &[
        ParamSpec {
            name: "step",
            ty: ParamType::Number { default: Some(0.7), min: 1e-4, max: 5.0 },
            unit: "",
            help: "first step, in logarithms: 0.7 doubles or halves",
        },
        ParamSpec {
            name: "step_min",
            ty: ParamType::Number { default: Some(0.1), min: 1e-6, max: 5.0 },
            unit: "",
            help: "smallest step",
        },
    ],
    build: |params, space, _seed| {
        let (step, least) = (params.number("step").unwrap_or(0.7), params.number("step_min").unwrap_or(0.1));
        if least > step {
            return Err(format!("`step_min` {least} is above `step`, {step}"));
        }
        let state = CoordinateState {
            incumbent: space.init(),
            candidate: space.init(),
            steps: vec![step; space.dimensions.len()],
            turn: 0,
            down: false,
            lost: false,
        };
        Ok(Box::new(CoordinateSearch { space: space.clone(), step, least, state }))
    },
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct CoordinateState {
    #[serde(with = "exact_floats::list")]
    incumbent: Vec<f64>,
    #[serde(with = "exact_floats::list")]
    candidate: Vec<f64>,
    #[serde(with = "exact_floats::list")]
    steps: Vec<f64>,
    turn: usize,
    down: bool,
    /// True if the other direction has already lost.
    lost: bool,
}

#[derive(Debug)]
struct CoordinateSearch {
    space: SearchSpace,
    step: f64,
    least: f64,
    state: CoordinateState,
}

impl CoordinateSearch {
    fn lose(&mut self) {
        let state = &mut self.state;
        state.down = !state.down;
        // The first loss only reverses the direction; the second ends this weight's turn.
        if std::mem::replace(&mut state.lost, true) {
            state.steps[state.turn] = (state.steps[state.turn] / 2.0).max(self.least);
            state.turn = (state.turn + 1) % self.space.dimensions.len();
            state.lost = false;
        }
    }
}

impl Optimizer for CoordinateSearch {
    fn ask(&mut self) -> Option<Vec<f64>> {
        // At a bound one direction is closed; if all are closed there is nothing to try.
        for _ in 0..2 * self.space.dimensions.len() {
            let turn = self.state.turn;
            let mut step = vec![0.0; self.space.dimensions.len()];
            step[turn] = if self.state.down { -self.state.steps[turn] } else { self.state.steps[turn] };
            let candidate = self.space.step_from(&self.state.incumbent, &step);
            // A candidate that differs by less than 0.1 % was clipped at a bound.
            if (candidate[turn] / self.state.incumbent[turn]).ln().abs() > 1e-3 {
                self.state.candidate.clone_from(&candidate);
                return Some(candidate);
            }
            self.lose();
        }
        None
    }

    fn tell(&mut self, told: &TrialResult) {
        if told.accepted {
            let state = &mut self.state;
            state.incumbent.clone_from(&state.candidate);
            // Never beyond the first step: a lucky series must not end in leaps across the box.
            state.steps[state.turn] = (state.steps[state.turn] * 1.5).min(self.step);
            state.lost = false;
        } else {
            self.lose();
        }
    }

    fn incumbent(&self) -> &[f64] {
        &self.state.incumbent
    }

    fn sigma(&self) -> Option<f64> {
        self.state.steps.get(self.state.turn).copied()
    }

    fn reopen(&mut self) {
        let step = self.step;
        self.state.steps.iter_mut().for_each(|own| *own = own.max(step));
        self.state.lost = false;
    }

    fn save(&self) -> String {
        save_state(&self.state)
    }

    fn load(&mut self, text: &str) -> Result<(), String> {
        let dimensions = self.space.dimensions.len();
        self.state = load_state(
            text,
            &self.space,
            |state: &CoordinateState| vec![&state.incumbent, &state.candidate],
            |state| {
                state.turn < dimensions.max(1)
                    && state.steps.len() == dimensions
                    && state.steps.iter().all(|step| *step > 0.0 && *step <= 5.0)
            },
        )?;
        Ok(())
    }
}
