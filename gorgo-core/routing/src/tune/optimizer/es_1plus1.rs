//! A (1+1) evolution strategy in the logarithms of the weights, with Rechenberg's 1/5 success rule.
//!
//! Offspring: `clip(exp(ln x + sigma·z))`, z standard normal. Constants of the GORGO paper. `sigma` is multiplied or
//! divided by `decay` after every decided trial, once `window` of them are known. Trials that reached their limit
//! undecided do not count: under noise they would shrink the steps until there is nothing left to detect. If a step was
//! clearly worse, its mirror image is tried next: what makes things worse one way often makes them better the other.
//! `mode = "reference"`: the reference's own loop, faults included, run by [`crate::tune::reference_tuner`].

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{Optimizer, OptimizerKind, TrialResult, load_state, save_state};
use crate::model::{ParamSpec, ParamType, ParamValues};
use crate::tune::exact_floats;
use crate::tune::space::{SearchSpace, normal, step_rng};

pub(super) const KIND: OptimizerKind = OptimizerKind {
    kind: "es-1plus1",
    summary: "(1+1) evolution strategy in logarithms with the 1/5 success rule",
    params: &[
        ParamSpec {
            name: "sigma",
            ty: ParamType::Number { default: Some(0.5), min: 1e-4, max: 5.0 },
            unit: "",
            help: "first step size, in logarithms",
        },
        ParamSpec {
            name: "sigma_min",
            ty: ParamType::Number { default: Some(0.02), min: 1e-6, max: 5.0 },
            unit: "",
            help: "smallest step size",
        },
        ParamSpec {
            name: "decay",
            ty: ParamType::Number { default: Some(0.817), min: 0.1, max: 0.999 },
            unit: "",
            help: "factor of the step size: divided by it to grow, multiplied by it to shrink",
        },
        ParamSpec {
            name: "window",
            ty: ParamType::Integer { default: Some(8), min: 1, max: 1_000 },
            unit: "trials",
            help: "number of trials behind the success rate",
        },
        ParamSpec {
            name: "target",
            ty: ParamType::Number { default: Some(0.2), min: 0.01, max: 0.99 },
            unit: "share",
            help: "success rate above which steps grow and below which they shrink",
        },
        ParamSpec {
            name: "mode",
            ty: ParamType::Text { default: Some("paired"), choices: &["paired", "reference"] },
            unit: "",
            help: "`reference`: score and accept as the reference implementation does, for comparison only",
        },
    ],
    build: |params, space, seed| Ok(Box::new(OnePlusOneEs::new(EsConstants::read(params)?, space, seed))),
};

/// Constants of the strategy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::tune) struct EsConstants {
    pub(in crate::tune) sigma: f64,
    pub(in crate::tune) sigma_min: f64,
    pub(in crate::tune) decay: f64,
    pub(in crate::tune) window: usize,
    pub(in crate::tune) target: f64,
}

impl EsConstants {
    pub(in crate::tune) fn read(params: &ParamValues) -> Result<Self, String> {
        let number = |name, default| params.number(name).unwrap_or(default);
        let constants = Self {
            sigma: number("sigma", 0.5),
            sigma_min: number("sigma_min", 0.02),
            decay: number("decay", 0.817),
            window: params.integer("window").and_then(|window| usize::try_from(window).ok()).unwrap_or(8),
            target: number("target", 0.2),
        };
        if constants.sigma_min > constants.sigma {
            return Err(format!("`sigma_min` {} is above `sigma`, {}", constants.sigma_min, constants.sigma));
        }
        Ok(constants)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct EsState {
    #[serde(with = "exact_floats::list")]
    incumbent: Vec<f64>,
    #[serde(with = "exact_floats::list")]
    candidate: Vec<f64>,
    /// Last step, in logarithms.
    #[serde(with = "exact_floats::list")]
    step: Vec<f64>,
    /// True if the next candidate is the mirror image of that step.
    mirror: bool,
    /// True if the last candidate was a mirror image.
    mirrored: bool,
    #[serde(with = "exact_floats")]
    sigma: f64,
    /// Results of the last decided trials, oldest first.
    won: VecDeque<bool>,
    asked: u64,
    seed: u64,
}

#[derive(Debug)]
struct OnePlusOneEs {
    constants: EsConstants,
    space: SearchSpace,
    state: EsState,
}

impl OnePlusOneEs {
    fn new(constants: EsConstants, space: &SearchSpace, seed: u64) -> Self {
        let state = EsState {
            incumbent: space.init(),
            candidate: space.init(),
            step: vec![0.0; space.dimensions.len()],
            mirror: false,
            mirrored: false,
            sigma: constants.sigma,
            won: VecDeque::new(),
            asked: 0,
            seed,
        };
        Self { constants, space: space.clone(), state }
    }
}

impl Optimizer for OnePlusOneEs {
    fn ask(&mut self) -> Option<Vec<f64>> {
        let state = &mut self.state;
        if self.space.dimensions.is_empty() {
            return None;
        }
        // The mirror image of a clearly harmful step comes before a new random one.
        state.mirrored = std::mem::take(&mut state.mirror);
        if state.mirrored {
            state.step.iter_mut().for_each(|step| *step = -*step);
            state.candidate = self.space.step_from(&state.incumbent, &state.step);
            if state.candidate != state.incumbent {
                return Some(state.candidate.clone());
            }
        }
        state.mirrored = false;
        // A candidate that the box clips back onto the incumbent is no candidate: draw again.
        for _ in 0..100 {
            // One stream per draw, so that a resumed search continues with the same numbers.
            let mut random = step_rng(state.seed, state.asked);
            state.asked += 1;
            state.step.iter_mut().for_each(|step| *step = state.sigma * normal(&mut random));
            state.candidate = self.space.step_from(&state.incumbent, &state.step);
            if state.candidate != state.incumbent {
                return Some(state.candidate.clone());
            }
        }
        None
    }

    fn tell(&mut self, told: &TrialResult) {
        let (state, constants) = (&mut self.state, &self.constants);
        if told.accepted {
            state.incumbent.clone_from(&state.candidate);
        }
        // A mirror image is not mirrored again: that would be the original step.
        state.mirror = !told.accepted && !state.mirrored && told.decided && told.difference > 1.5 * told.error;
        if !told.decided {
            return;
        }
        state.won.push_back(told.accepted);
        while state.won.len() > constants.window {
            state.won.pop_front();
        }
        // With fewer results the rate is too coarse to act on.
        if state.won.len() == constants.window {
            let won = state.won.iter().filter(|won| **won).count();
            let rate = crate::tune::cohort::count(won) / crate::tune::cohort::count(constants.window);
            if rate > constants.target {
                // A step wider than the box has no effect.
                state.sigma = (state.sigma / constants.decay).min(5.0);
            } else if rate < constants.target {
                state.sigma = (state.sigma * constants.decay).max(constants.sigma_min);
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
        self.state.sigma = self.state.sigma.max(self.constants.sigma);
        // Results from before the change do not count for the new situation.
        self.state.won.clear();
    }

    fn save(&self) -> String {
        save_state(&self.state)
    }

    fn load(&mut self, text: &str) -> Result<(), String> {
        self.state = load_state(
            text,
            &self.space,
            |state: &EsState| vec![&state.incumbent, &state.candidate],
            |state| {
                state.sigma > 0.0
                    && state.sigma <= 5.0
                    && state.step.len() == state.incumbent.len()
                    && state.step.iter().all(|step| step.is_finite())
            },
        )?;
        Ok(())
    }
}
