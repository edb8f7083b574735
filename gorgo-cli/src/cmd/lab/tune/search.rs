//! The search: candidates from the policy's optimizer, each judged by whole simulated runs.

use std::num::NonZeroUsize;
use std::sync::Arc;

use gorgo_lab::sim::world::{DecisionMaker, SimulateError, simulate};
use gorgo_lab::trace::{self, RunSummary};
use gorgo_routing::model::{ErrorClass, ParamValues};
use gorgo_routing::policy::Policy;
use gorgo_routing::tune::cohort::Statistic;
use gorgo_routing::tune::contrast::{BlockPair, contrast, estimates};
use gorgo_routing::tune::optimizer::TrialResult;
use gorgo_routing::tune::sample::{SampleOutcome, TuningSample};
use gorgo_routing::tune::{Optimizer, TuningPlan};

use crate::cmd::lab::simulate::each;
use crate::cmd::lab::simulate::experiment::{ExperimentError, ExperimentSetup};

/// A candidate is accepted if it is better by more than this many standard errors of the paired runs.
const ACCEPT_SE: f64 = 1.0;

/// One run with given weights.
#[derive(Debug, Clone)]
struct TuneRun {
    samples: Vec<TuningSample>,
    summary: RunSummary,
}

/// Figures of several runs: means over seeds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct TuneFigures {
    pub(super) ttft_p95_ms: f64,
    pub(super) e2e_p95_ms: f64,
    pub(super) busiest_share: f64,
}

impl TuneFigures {
    fn of(runs: &[TuneRun]) -> Self {
        let mean = |of: fn(&RunSummary) -> Option<f64>| {
            trace::mean(&runs.iter().filter_map(|run| of(&run.summary)).collect::<Vec<_>>()).unwrap_or(0.0)
        };
        Self {
            ttft_p95_ms: mean(|run| run.all.ttft.p95),
            e2e_p95_ms: mean(|run| run.all.e2e.p95),
            busiest_share: mean(|run| run.busiest_share),
        }
    }
}

/// Result of a search.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SearchOutcome {
    /// Weights of all terms: as configured, and as found.
    pub(super) start: Vec<f64>,
    pub(super) found: Vec<f64>,
    pub(super) tried: u32,
    pub(super) accepted: u32,
    /// Figures on the seeds of the search: start, found.
    pub(super) on_search_seeds: [TuneFigures; 2],
    /// Figures on the other seeds.
    pub(super) on_check_seeds: [TuneFigures; 2],
}

/// A policy, and the settings of its search.
pub(super) struct WeightSearch<'a> {
    ground: &'a ExperimentSetup,
    policy: &'a Policy,
    plan: &'a TuningPlan,
    jobs: NonZeroUsize,
    seeds: &'a [u64],
}

impl<'a> WeightSearch<'a> {
    pub(super) fn new(
        ground: &'a ExperimentSetup,
        name: &str,
        jobs: NonZeroUsize,
        seeds: &'a [u64],
    ) -> Result<Self, ExperimentError> {
        if seeds.len() < 2 {
            let text = "--seeds: at least two are needed to estimate the error of a difference";
            return Err(ExperimentError::Asked(text.to_owned()));
        }
        let tuned = ground.policies.by_name(name).and_then(|policy| Some((policy, policy.tune.as_ref()?)));
        let Some((policy, plan)) = tuned else {
            let text = format!(
                "--policy: \"{name}\" has no `tune` table, or tuning is not enabled; add one with an objective and an \
                 optimizer, and set `tune = true` on the weights to tune"
            );
            return Err(ExperimentError::Asked(text));
        };
        Ok(Self { ground, policy, plan, jobs, seeds })
    }

    pub(super) const fn policy(&self) -> &Policy {
        self.policy
    }

    /// Largest number of runs that a search makes.
    pub(super) fn runs(&self, generations: u32, checks: usize) -> usize {
        let generations = usize::try_from(generations).unwrap_or(usize::MAX);
        self.seeds.len().saturating_mul(generations.saturating_add(1)).saturating_add(2 * checks)
    }

    /// Searches, and checks the result on other seeds; `done` is called after each run.
    pub(super) fn run(
        &self,
        generations: u32,
        checks: &[u64],
        done: impl Fn() + Sync,
    ) -> Result<SearchOutcome, ExperimentError> {
        // The incumbent's runs are kept: every candidate is compared with them, seed by seed.
        let mut optimizer = self.optimizer()?;
        let start = self.policy.weights().values;
        let (mut best, mut best_runs) = (start.clone(), self.all(&start, self.seeds, &done)?);
        let first = TuneFigures::of(&best_runs);
        let (mut tried, mut accepted) = (0, 0);
        while tried < generations {
            let Some(point) = optimizer.ask() else { break };
            tried += 1;
            let weights = self.weights(&point);
            let runs = self.all(&weights, self.seeds, &done)?;
            let told = self.judged(&best_runs, &runs)?;
            optimizer.tell(&told);
            if told.accepted {
                accepted += 1;
                (best, best_runs) = (weights, runs);
            }
        }
        // Check exactly the numbers that are written: six digits are more than any search resolves.
        let found: Vec<f64> = best.iter().map(|weight| six_digits(*weight)).collect();
        let check = |weights: &[f64]| Ok::<_, ExperimentError>(TuneFigures::of(&self.all(weights, checks, &done)?));
        Ok(SearchOutcome {
            on_search_seeds: [first, TuneFigures::of(&best_runs)],
            on_check_seeds: [check(&start)?, check(&found)?],
            start,
            found,
            tried,
            accepted,
        })
    }

    fn optimizer(&self) -> Result<Box<dyn Optimizer>, ExperimentError> {
        let TuningPlan { optimizer, optimizer_params, space, seed, .. } = self.plan;
        if ParamValues::text(optimizer_params, "mode") == Some("reference") {
            let name = &self.policy.name;
            let text = format!(
                "--policy {name}: its optimizer has `mode = \"reference\"`, which scores windows of live traffic one \
                 after the other and has no offline form; --set policy.{name}.tune.optimizer.mode=paired searches \
                 the same weights offline"
            );
            return Err(ExperimentError::Asked(text));
        }
        (optimizer.build)(optimizer_params, space, *seed).map_err(ExperimentError::Asked)
    }

    /// Weights in slot order: the candidate's for the dimensions of the search, the configured ones for all others.
    fn weights(&self, point: &[f64]) -> Vec<f64> {
        let mut values = self.policy.weights().values;
        for (dimension, weight) in self.plan.space.dimensions.iter().zip(point) {
            values[dimension.slot] = *weight;
        }
        values
    }

    /// One run per seed.
    fn all(&self, weights: &[f64], seeds: &[u64], done: &(impl Fn() + Sync)) -> Result<Vec<TuneRun>, ExperimentError> {
        let runs = each(seeds.len(), self.jobs, |number| {
            let run = self.one(weights, seeds[number]);
            done();
            run
        });
        Ok(runs.into_iter().collect::<Result<_, SimulateError>>()?)
    }

    fn one(&self, weights: &[f64], seed: u64) -> Result<TuneRun, SimulateError> {
        let built = self.ground.built().and_then(|policies| {
            let index = policies.index_of(&self.policy.name)?;
            Some((policies, index))
        });
        let chooser = built.map_or(DecisionMaker::Clairvoyant, |(mut policies, index)| {
            // Built just now, so there is no other reference and `get_mut` succeeds.
            if let Some(policy) = policies.list.get_mut(index.index()).and_then(Arc::get_mut) {
                // The weights of a candidate are fixed for the whole run.
                policy.tune = None;
                for (term, weight) in policy.terms.iter_mut().zip(weights) {
                    term.weight.init = *weight;
                }
            }
            DecisionMaker::Policy(policies, index)
        });
        let run = simulate(&self.ground.setup(&self.policy.name), chooser, seed)?;
        let samples = run.samples.iter().filter_map(|sample| self.sample(sample)).collect();
        Ok(TuneRun { samples, summary: RunSummary::from_samples(&run.samples) })
    }

    /// Sample for the objective; `None` if the outcome does not depend on the weights.
    fn sample(&self, of: &trace::RequestSample) -> Option<TuningSample> {
        let fate = match of.error {
            None => SampleOutcome::Served,
            // Not failures of the choice: a refusal comes from limits, a client error from the request.
            Some(ErrorClass::Refused | ErrorClass::ClientError) => return None,
            Some(_) => SampleOutcome::Failed,
        };
        // A request without a replica was never routed, and says nothing about weights.
        let place = of
            .replica
            .as_ref()
            .and_then(|name| self.ground.members.iter().position(|member| member.replica.name == *name));
        Some(TuningSample {
            ttft_ms: of.ttft_ms,
            e2e_ms: of.e2e_ms,
            itl_ms: of.itl_ms,
            prompt_tokens: of.usage.prompt_tokens,
            completion_tokens: of.usage.completion_tokens,
            replica: u16::try_from(place?).ok()?,
            size: f64::from(of.input_tokens).ln_1p(),
            fate,
        })
    }

    /// Verdict on the candidate's runs, paired by seed with the incumbent's.
    fn judged(&self, incumbent: &[TuneRun], candidate: &[TuneRun]) -> Result<TrialResult, ExperimentError> {
        let pairs: Vec<BlockPair> = incumbent
            .iter()
            .zip(candidate)
            .map(|(one, other)| BlockPair { incumbent: one.samples.clone(), candidate: other.samples.clone() })
            .collect();
        let replicas = self.ground.members.len();
        let Some(seen) = contrast(&*self.plan.objective, &pairs, replicas) else {
            let text = format!("the trace has too few requests for the objective {}", self.plan.objective_kind);
            return Err(ExperimentError::Asked(text));
        };
        // Objectives are minimized, so better is negative.
        let better = seen.difference < -ACCEPT_SE * seen.error;
        let accepted = better && self.is_within_guard(&pairs, replicas);
        Ok(TrialResult { accepted, decided: true, difference: seen.difference, error: seen.error })
    }

    fn is_within_guard(&self, pairs: &[BlockPair], replicas: usize) -> bool {
        let guard = self.plan.guard;
        let of = |statistic| estimates(pairs, replicas, statistic).map(|(own, other)| (own.value, other.value));
        // Unknown statistics do not fail a candidate: there may be no request with that measurement.
        let slow = of(Statistic::E2eP95).is_some_and(|(own, other)| own > guard.max_e2e_p95_ratio * other);
        let failing = of(Statistic::ErrorShare).is_some_and(|(own, other)| own > guard.max_error_share.max(other));
        !slow && !failing
    }
}

/// A number rounded to the digits that are written.
fn six_digits(number: f64) -> f64 {
    format!("{number:.5e}").parse().unwrap_or(number)
}
