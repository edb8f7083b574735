//! The reference's own tuner, faults included: a baseline to compare with, not to serve with.
//!
//! Every `HOP` samples it scores the last `WINDOW` of them, whoever routed them, as −p95 of TTFT, and accepts the current
//! weights as best when `score > best·(1 + tol)`. Scores are negative, so that accepts what is up to 0.5 % worse; three
//! quarters of each window belong to earlier candidates; the best score is never measured again; failures give no sample.
//! Below `sigma_min` it pins the best and stops. Source: GORGO paper and the reference's published behaviour.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::cohort::count;
use super::exact_floats;
use super::optimizer::Constants;
use super::space::{Space, normal, randomness};

const WINDOW: usize = 128;
const HOP: u32 = 32;
const TOLERANCE: f64 = 0.005;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    #[serde(with = "exact_floats::list")]
    pub(super) best: Vec<f64>,
    #[serde(with = "exact_floats::list")]
    pub(super) current: Vec<f64>,
    /// −∞ before the first score.
    #[serde(with = "exact_floats")]
    pub(super) best_score: f64,
    #[serde(with = "exact_floats")]
    pub(super) sigma: f64,
    won: VecDeque<bool>,
    asked: u64,
    pub(super) converged: bool,
}

/// The loop.
#[derive(Debug)]
pub(super) struct Reference {
    constants: Constants,
    space: Space,
    seed: u64,
    pub(super) state: State,
    /// TTFT, ms, oldest first, and which generation routed it.
    window: VecDeque<(f64, u64)>,
    fresh: u32,
}

/// What a hop came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Hop {
    pub(super) accepted: bool,
    pub(super) score: f64,
    pub(super) before: f64,
    /// Share of the window that other generations routed.
    pub(super) foreign: f64,
}

impl Reference {
    pub(super) fn new(constants: Constants, space: &Space, seed: u64) -> Self {
        let state = State {
            best: space.init(),
            current: space.init(),
            best_score: f64::NEG_INFINITY,
            sigma: constants.sigma,
            won: VecDeque::new(),
            asked: 0,
            converged: false,
        };
        Self { constants, space: space.clone(), seed, state, window: VecDeque::new(), fresh: 0 }
    }

    /// Takes in a TTFT that generation `routed_by` brought; `now` is the current generation. `Some`: the current
    /// weights were scored, and `state.current` is what comes next.
    pub(super) fn take(&mut self, ttft_ms: f64, routed_by: u64, now: u64) -> Option<Hop> {
        if self.state.converged {
            return None;
        }
        self.window.push_back((ttft_ms, routed_by));
        while self.window.len() > WINDOW {
            self.window.pop_front();
        }
        self.fresh += 1;
        if self.window.len() < WINDOW || self.fresh < HOP {
            return None;
        }
        self.fresh = 0;
        let mut sorted: Vec<f64> = self.window.iter().map(|(ttft, _)| *ttft).collect();
        sorted.sort_by(f64::total_cmp);
        let score = -sorted[(WINDOW * 95).div_ceil(100) - 1];
        let foreign = count(self.window.iter().filter(|(_, by)| *by != now).count()) / count(WINDOW);
        Some(self.scored(score, foreign))
    }

    /// The step after a score.
    pub(super) fn scored(&mut self, score: f64, foreign: f64) -> Hop {
        let state = &mut self.state;
        let before = state.best_score;
        let accepted = before == f64::NEG_INFINITY || score > before * (1.0 + TOLERANCE);
        if accepted {
            state.best.clone_from(&state.current);
            state.best_score = score;
        }
        state.won.push_back(accepted);
        while state.won.len() > self.constants.window {
            state.won.pop_front();
        }
        if state.won.len() == self.constants.window {
            let rate = count(state.won.iter().filter(|won| **won).count()) / count(self.constants.window);
            if rate > self.constants.target {
                state.sigma /= self.constants.decay;
            } else if rate < self.constants.target {
                state.sigma *= self.constants.decay;
            }
        }
        if state.sigma < self.constants.sigma_min {
            state.converged = true;
            state.current.clone_from(&state.best);
        } else {
            let mut random = randomness(self.seed, state.asked);
            state.asked += 1;
            let step: Vec<f64> = state.best.iter().map(|_| state.sigma * normal(&mut random)).collect();
            state.current = self.space.moved(&state.best, &step);
        }
        Hop { accepted, score, before, foreign }
    }

    pub(super) fn load(&mut self, state: State) -> Result<(), String> {
        if !self.space.holds(&state.best) || !self.space.holds(&state.current) {
            return Err("its weights are not within the bounds".to_owned());
        }
        if !(state.sigma > 0.0 && state.sigma.is_finite()) {
            return Err("its step size is not a positive number".to_owned());
        }
        self.state = state;
        Ok(())
    }
}
