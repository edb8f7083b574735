//! Tuner of the reference implementation, faults included: a baseline for comparison, not for production.
//!
//! Every `HOP` samples it scores the last `WINDOW` of them, whichever weights routed them, as −p95 of TTFT, and accepts
//! the current weights as best if `score > best·(1 + tol)`. Scores are negative, so this accepts a result that is up to
//! 0.5 % worse; three quarters of each window belong to earlier candidates; the best score is never measured again;
//! failures yield no sample. Below `sigma_min` it fixes the best weights and stops. Source: GORGO paper and the
//! reference's published behaviour.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::cohort::count;
use super::exact_floats;
use super::optimizer::EsConstants;
use super::space::{SearchSpace, normal, step_rng};

const WINDOW: usize = 128;
const HOP: u32 = 32;
const TOLERANCE: f64 = 0.005;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ReferenceState {
    #[serde(with = "exact_floats::list")]
    pub(super) best: Vec<f64>,
    #[serde(with = "exact_floats::list")]
    pub(super) current: Vec<f64>,
    /// Best score; −∞ before the first.
    #[serde(with = "exact_floats")]
    pub(super) best_score: f64,
    #[serde(with = "exact_floats")]
    pub(super) sigma: f64,
    won: VecDeque<bool>,
    asked: u64,
    pub(super) converged: bool,
}

/// State of the loop.
#[derive(Debug)]
pub(super) struct ReferenceTuner {
    constants: EsConstants,
    space: SearchSpace,
    seed: u64,
    pub(super) state: ReferenceState,
    /// TTFT, ms, oldest first, with the generation that routed it.
    window: VecDeque<(f64, u64)>,
    fresh: u32,
}

/// Result of scoring the current weights once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ReferenceStep {
    pub(super) accepted: bool,
    pub(super) score: f64,
    pub(super) before: f64,
    /// Share of the window that other generations routed.
    pub(super) foreign: f64,
}

impl ReferenceTuner {
    pub(super) fn new(constants: EsConstants, space: &SearchSpace, seed: u64) -> Self {
        let state = ReferenceState {
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

    /// Adds a TTFT of a request that generation `routed_by` routed; `now` is the current generation. `Some`: the
    /// current weights were scored, and `state.current` holds the next ones.
    pub(super) fn observe(&mut self, ttft_ms: f64, routed_by: u64, now: u64) -> Option<ReferenceStep> {
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
        // The window is not emptied: consecutive scores share three quarters of their samples, as in the reference.
        self.fresh = 0;
        let mut sorted: Vec<f64> = self.window.iter().map(|(ttft, _)| *ttft).collect();
        sorted.sort_by(f64::total_cmp);
        // By nearest rank; negative, because the reference maximises its score.
        let score = -sorted[(WINDOW * 95).div_ceil(100) - 1];
        let foreign = count(self.window.iter().filter(|(_, by)| *by != now).count()) / count(WINDOW);
        Some(self.scored(score, foreign))
    }

    /// Takes the step that follows a score.
    pub(super) fn scored(&mut self, score: f64, foreign: f64) -> ReferenceStep {
        let state = &mut self.state;
        let before = state.best_score;
        // As in the reference: with negative scores the tolerance loosens the comparison.
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
                // No upper limit, and no mirror steps: this is the reference's loop, not an improved one.
                state.sigma /= self.constants.decay;
            } else if rate < self.constants.target {
                state.sigma *= self.constants.decay;
            }
        }
        if state.sigma < self.constants.sigma_min {
            state.converged = true;
            state.current.clone_from(&state.best);
        } else {
            let mut random = step_rng(self.seed, state.asked);
            state.asked += 1;
            let step: Vec<f64> = state.best.iter().map(|_| state.sigma * normal(&mut random)).collect();
            state.current = self.space.step_from(&state.best, &step);
        }
        ReferenceStep { accepted, score, before, foreign }
    }

    pub(super) fn load(&mut self, state: ReferenceState) -> Result<(), String> {
        if !self.space.contains(&state.best) || !self.space.contains(&state.current) {
            return Err("its weights are not within the bounds".to_owned());
        }
        if !(state.sigma > 0.0 && state.sigma.is_finite()) {
            return Err("its step size is not a positive number".to_owned());
        }
        self.state = state;
        Ok(())
    }
}
