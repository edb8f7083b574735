//! Covariance matrix adaptation for one offspring at a time: the (1+1)-CMA-ES with a Cholesky factor.
//!
//! Steps `sigma·A·z` in logarithms; a success turns `A` towards its direction, so that weights which have to move
//! together do. Step size by the smoothed success rate. Source: Igel, Suttorp, Hansen (2006), with their constants for
//! the dimension, but the 1/5 rule's target of one offspring, 2/11. Trials that ran to their limit undecided leave it be.

use serde::{Deserialize, Serialize};

use super::{Optimizer, OptimizerKind, Told, loaded, saved};
use crate::model::{Param, ParamType};
use crate::tune::cohort::count;
use crate::tune::exact_floats;
use crate::tune::space::{Space, normal, randomness};

pub(super) const KIND: OptimizerKind = OptimizerKind {
    kind: "cma-es",
    summary: "(1+1) evolution strategy that learns which weights move together",
    params: &[
        Param {
            name: "sigma",
            ty: ParamType::Number { default: Some(0.5), min: 1e-4, max: 5.0 },
            unit: "",
            help: "first step size, in logarithms",
        },
        Param {
            name: "sigma_min",
            ty: ParamType::Number { default: Some(0.05), min: 1e-6, max: 5.0 },
            unit: "",
            help: "smallest step size",
        },
    ],
    build: |params, space, seed| {
        let (sigma, least) = (params.number("sigma").unwrap_or(0.5), params.number("sigma_min").unwrap_or(0.05));
        if least > sigma {
            return Err(format!("`sigma_min` {least} is above `sigma`, {sigma}"));
        }
        Ok(Box::new(CmaEs { sigma, least, space: space.clone(), state: State::new(space, sigma, seed) }))
    },
};

/// Success rate that keeps the step size.
const TARGET: f64 = 2.0 / 11.0;
/// How fast the success rate forgets.
const FORGET: f64 = 1.0 / 12.0;
/// Above this success rate steps are plainly too short, and say nothing of directions.
const THRESHOLD: f64 = 0.44;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    #[serde(with = "exact_floats::list")]
    incumbent: Vec<f64>,
    #[serde(with = "exact_floats::list")]
    candidate: Vec<f64>,
    /// the factor, row-major.
    #[serde(with = "exact_floats::list")]
    factor: Vec<f64>,
    /// The last draw, standard normal.
    #[serde(with = "exact_floats::list")]
    draw: Vec<f64>,
    #[serde(with = "exact_floats")]
    sigma: f64,
    #[serde(with = "exact_floats")]
    success: f64,
    asked: u64,
    seed: u64,
}

impl State {
    fn new(space: &Space, sigma: f64, seed: u64) -> Self {
        let n = space.dimensions.len();
        let mut factor = vec![0.0; n * n];
        (0..n).for_each(|k| factor[k * n + k] = 1.0);
        let (incumbent, candidate) = (space.init(), space.init());
        Self { incumbent, candidate, factor, draw: vec![0.0; n], sigma, success: TARGET, asked: 0, seed }
    }
}

#[derive(Debug)]
struct CmaEs {
    sigma: f64,
    least: f64,
    space: Space,
    state: State,
}

impl Optimizer for CmaEs {
    fn ask(&mut self) -> Option<Vec<f64>> {
        let n = self.space.dimensions.len();
        let state = &mut self.state;
        for _ in 0..100 {
            let mut random = randomness(state.seed, state.asked);
            state.asked += 1;
            state.draw.iter_mut().for_each(|draw| *draw = normal(&mut random));
            let row = |k: usize| (0..n).map(|j| state.factor[k * n + j] * state.draw[j]).sum::<f64>() * state.sigma;
            let step: Vec<f64> = (0..n).map(row).collect();
            state.candidate = self.space.moved(&state.incumbent, &step);
            if state.candidate != state.incumbent {
                return Some(state.candidate.clone());
            }
        }
        None
    }

    fn tell(&mut self, told: &Told) {
        let n = self.space.dimensions.len();
        let state = &mut self.state;
        if told.accepted {
            state.incumbent.clone_from(&state.candidate);
        }
        if !told.decided {
            return;
        }
        state.success = (1.0 - FORGET) * state.success + FORGET * f64::from(u8::from(told.accepted));
        let damping = 1.0 + count(n) / 2.0;
        let growth = (state.success - TARGET / (1.0 - TARGET) * (1.0 - state.success)) / damping;
        state.sigma = (state.sigma * growth.exp()).clamp(self.least, 5.0);
        if told.accepted && state.success < THRESHOLD {
            let rate = 2.0 / (count(n) * count(n) + 6.0);
            let length: f64 = state.draw.iter().map(|draw| draw * draw).sum::<f64>().max(1e-12);
            let keep = (1.0 - rate).sqrt();
            let turn = keep / length * ((1.0 + rate * length / (1.0 - rate)).sqrt() - 1.0);
            let moved: Vec<f64> =
                (0..n).map(|k| (0..n).map(|j| state.factor[k * n + j] * state.draw[j]).sum()).collect();
            for (row, moved) in state.factor.chunks_exact_mut(n.max(1)).zip(&moved) {
                for (entry, draw) in row.iter_mut().zip(&state.draw) {
                    *entry = keep * *entry + turn * moved * draw;
                }
            }
        }
    }

    fn incumbent(&self) -> &[f64] {
        &self.state.incumbent
    }

    fn sigma(&self) -> Option<f64> {
        Some(self.state.sigma)
    }

    fn reopen(&mut self) {
        self.state.sigma = self.state.sigma.max(self.sigma);
        self.state.success = TARGET;
    }

    fn save(&self) -> String {
        saved(&self.state)
    }

    fn load(&mut self, text: &str) -> Result<(), String> {
        let n = self.space.dimensions.len();
        self.state = loaded(
            text,
            &self.space,
            |state: &State| vec![&state.incumbent, &state.candidate],
            |state| {
                state.sigma > 0.0
                    && state.sigma <= 5.0
                    && (0.0..=1.0).contains(&state.success)
                    && (state.factor.len(), state.draw.len()) == (n * n, n)
                    && state.factor.iter().chain(&state.draw).all(|number| number.is_finite())
            },
        )?;
        Ok(())
    }
}
