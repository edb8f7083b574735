//! Covariance matrix adaptation for one offspring at a time: the (1+1)-CMA-ES with a Cholesky factor.
//!
//! Steps are `sigma·A·z` in logarithms; a success turns `A` towards its direction, so that weights which must move
//! together do. The step size follows the smoothed success rate. Source: Igel, Suttorp, Hansen (2006), with their
//! constants for the dimension, except for the target success rate, which is that of one offspring, 2/11. Trials that
//! reached their limit undecided change nothing.

use serde::{Deserialize, Serialize};

use super::{Optimizer, OptimizerKind, TrialResult, load_state, save_state};
use crate::model::{ParamSpec, ParamType};
use crate::tune::cohort::count;
use crate::tune::exact_floats;
use crate::tune::space::{SearchSpace, normal, step_rng};

pub(super) const KIND: OptimizerKind = OptimizerKind {
    kind: "cma-es",
    summary: "(1+1) evolution strategy that learns which weights move together",
    params: &[
        ParamSpec {
            name: "sigma",
            ty: ParamType::Number { default: Some(0.5), min: 1e-4, max: 5.0 },
            unit: "",
            help: "first step size, in logarithms",
        },
        ParamSpec {
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
        Ok(Box::new(CmaEs { sigma, least, space: space.clone(), state: CmaEsState::new(space, sigma, seed) }))
    },
};

/// Success rate at which the step size stays the same.
const TARGET: f64 = 2.0 / 11.0;
/// Weight of a new result in the smoothed success rate.
const FORGET: f64 = 1.0 / 12.0;
/// Success rate above which steps are clearly too short; their directions then carry no information.
const THRESHOLD: f64 = 0.44;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct CmaEsState {
    #[serde(with = "exact_floats::list")]
    incumbent: Vec<f64>,
    #[serde(with = "exact_floats::list")]
    candidate: Vec<f64>,
    /// Cholesky factor, row-major.
    #[serde(with = "exact_floats::list")]
    factor: Vec<f64>,
    /// Last draw, standard normal.
    #[serde(with = "exact_floats::list")]
    draw: Vec<f64>,
    #[serde(with = "exact_floats")]
    sigma: f64,
    #[serde(with = "exact_floats")]
    success: f64,
    asked: u64,
    seed: u64,
}

impl CmaEsState {
    fn new(space: &SearchSpace, sigma: f64, seed: u64) -> Self {
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
    space: SearchSpace,
    state: CmaEsState,
}

impl Optimizer for CmaEs {
    fn ask(&mut self) -> Option<Vec<f64>> {
        let n = self.space.dimensions.len();
        let state = &mut self.state;
        // Bounded: with the incumbent in a corner of the box, every step may be clipped back onto it.
        for _ in 0..100 {
            let mut random = step_rng(state.seed, state.asked);
            state.asked += 1;
            state.draw.iter_mut().for_each(|draw| *draw = normal(&mut random));
            let row = |k: usize| (0..n).map(|j| state.factor[k * n + j] * state.draw[j]).sum::<f64>() * state.sigma;
            let step: Vec<f64> = (0..n).map(row).collect();
            state.candidate = self.space.step_from(&state.incumbent, &step);
            if state.candidate != state.incumbent {
                return Some(state.candidate.clone());
            }
        }
        None
    }

    fn tell(&mut self, told: &TrialResult) {
        let n = self.space.dimensions.len();
        let state = &mut self.state;
        if told.accepted {
            state.incumbent.clone_from(&state.candidate);
        }
        // Under noise most trials are undecided; as failures they would shrink the steps to nothing.
        if !told.decided {
            return;
        }
        state.success = (1.0 - FORGET) * state.success + FORGET * f64::from(u8::from(told.accepted));
        // Igel, Suttorp, Hansen: step size control by the success rate.
        let damping = 1.0 + count(n) / 2.0;
        let growth = (state.success - TARGET / (1.0 - TARGET) * (1.0 - state.success)) / damping;
        state.sigma = (state.sigma * growth.exp()).clamp(self.least, 5.0);
        if told.accepted && state.success < THRESHOLD {
            // Rank-one update of the Cholesky factor, along the step that has just succeeded.
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
        // After a drift the shape of the search is kept, but its width is that of the start again.
        self.state.sigma = self.state.sigma.max(self.sigma);
        self.state.success = TARGET;
    }

    fn save(&self) -> String {
        save_state(&self.state)
    }

    fn load(&mut self, text: &str) -> Result<(), String> {
        // A saved state is untrusted: it may be damaged or come from another policy.
        let n = self.space.dimensions.len();
        self.state = load_state(
            text,
            &self.space,
            |state: &CmaEsState| vec![&state.incumbent, &state.candidate],
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
