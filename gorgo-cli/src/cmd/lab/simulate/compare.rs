//! One run per case and seed, as many at a time as there are jobs. Runs are independent: neither their number at a
//! time, nor the order in which they end, nor runs kept in a file change any result.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use gorgo_lab::sim::world::{DecisionMaker, SimulateError, TuningSummary, simulate, simulate_recorded};
use gorgo_lab::trace::RunSummary;
use gorgo_routing::model::quantile;

use super::ablation::{DecisiveParts, PolicyPart};
use super::experiment::{ExperimentError, ExperimentSetup};
use super::run_cache::RunCache;

/// Name of the row that no real router could reach.
pub(super) const CLAIRVOYANT: &str = "clairvoyant";

/// A policy to run, and its ground.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SimulationCase {
    /// Configuration and load, as a position among the plan's grounds.
    pub(super) setup: usize,
    /// `None`: the clairvoyant.
    pub(super) policy: Option<Arc<str>>,
    /// Role in an ablation.
    pub(super) ablation: AblationMode,
}

/// Role of a run in an ablation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AblationMode {
    /// None: there is no ablation.
    None,
    /// The whole policy without its tuner; counts how often each part decides.
    Whole,
    /// The same policy without this part.
    Without(PolicyPart),
}

/// Runs to make.
pub(super) struct SimulationPlan<'a> {
    pub(super) setups: &'a [ExperimentSetup],
    pub(super) cases: Vec<SimulationCase>,
    pub(super) seeds: Vec<u64>,
    /// Runs kept from before, and the file that new ones are added to.
    pub(super) cache: Option<&'a RunCache>,
}

/// Result of one run.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct SimulationOutcome {
    pub(super) summary: RunSummary,
    /// 95th percentile of the lowest TTFT that was possible for each request, ms.
    pub(super) bound_ttft_p95_ms: Option<f64>,
    /// Result of the policy's tuner; `None` if it has none.
    pub(super) tuning: Option<TuningSummary>,
    /// Share of decisions that would have gone elsewhere without each part of the policy; only in an ablation.
    pub(super) decisive: Vec<f64>,
}

/// One case's runs, by seed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PolicyRuns {
    /// Name of the policy, or of the policy without a part.
    pub(super) policy: Arc<str>,
    pub(super) case: SimulationCase,
    pub(super) runs: Vec<SimulationOutcome>,
}

impl SimulationPlan<'_> {
    /// Number of runs.
    pub(super) fn runs(&self) -> usize {
        self.cases.len() * self.seeds.len()
    }

    /// Makes or finds the run of this number.
    fn run(&self, number: usize) -> Result<SimulationOutcome, ExperimentError> {
        // Runs are numbered case by case, seeds fastest; `compare` splits the results in the same order.
        let (case, seed) = (&self.cases[number / self.seeds.len()], self.seeds[number % self.seeds.len()]);
        let ground = &self.setups[case.setup];
        let Some(kept) = self.cache else { return Ok(made(ground, case, seed)?) };
        let key = kept.key(ground, case, seed);
        if let Some(outcome) = kept.get(&key) {
            return Ok(outcome.clone());
        }
        let outcome = made(ground, case, seed)?;
        kept.put(&key, ground, case, seed, &outcome)?;
        Ok(outcome)
    }
}

/// Makes a run.
fn made(ground: &ExperimentSetup, case: &SimulationCase, seed: u64) -> Result<SimulationOutcome, SimulateError> {
    let setup = ground.setup(case.policy.as_deref().unwrap_or(CLAIRVOYANT));
    let chooser = chooser(ground, case);
    let mut census = DecisiveParts::of(ground, case);
    // Records of decisions are made only for a census, the one reader of them here.
    let run = match &mut census {
        Some(census) => simulate_recorded(&setup, chooser, seed, &mut |record| census.take(&record))?,
        None => simulate(&setup, chooser, seed)?,
    };
    let mut bounds_ms = run.bounds_ms;
    bounds_ms.sort_by(f64::total_cmp);
    Ok(SimulationOutcome {
        summary: RunSummary::from_samples(&run.samples),
        bound_ttft_p95_ms: quantile(&bounds_ms, 0.95),
        tuning: run.tuning,
        decisive: census.map(|census| census.decisive_shares()).unwrap_or_default(),
    })
}

/// Chooser of a case, built for this run alone, so that runs share no state.
fn chooser(ground: &ExperimentSetup, case: &SimulationCase) -> DecisionMaker {
    let built = case.policy.as_ref().and_then(|name| {
        let policies = ground.built()?;
        let id = policies.index_of(name)?;
        Some((policies, id))
    });
    let Some((mut policies, id)) = built else { return DecisionMaker::Clairvoyant };
    // Built just now, so there is no other reference and `get_mut` succeeds.
    if case.ablation != AblationMode::None
        && let Some(policy) = policies.list.get_mut(id.index()).and_then(Arc::get_mut)
    {
        // A tuner would adapt the other weights to the missing part and hide its value.
        policy.tune = None;
        if let AblationMode::Without(part) = case.ablation {
            part.taken_from(policy);
        }
    }
    DecisionMaker::Policy(policies, id)
}

/// Does `many` pieces of work, up to `jobs` at the same time; returns their results in order.
pub(in crate::cmd) fn each<T: Send>(many: usize, jobs: NonZeroUsize, piece: impl Fn(usize) -> T + Sync) -> Vec<T> {
    // Workers take the next number instead of a fixed share, because runs differ in length.
    let next = AtomicUsize::new(0);
    let given: Mutex<Vec<Option<T>>> = Mutex::new(std::iter::repeat_with(|| None).take(many).collect());
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= many {
                break;
            }
            let one = piece(number);
            given.lock().unwrap_or_else(PoisonError::into_inner)[number] = Some(one);
        }
    };
    thread::scope(|scope| {
        // One fewer, because this thread works as well.
        for _ in 1..jobs.get().min(many) {
            scope.spawn(work);
        }
        work();
    });
    given.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
}

/// Makes all runs; `done` is called after each.
pub(super) fn compare(
    plan: &SimulationPlan<'_>,
    jobs: NonZeroUsize,
    done: impl Fn() + Sync,
) -> Result<Vec<PolicyRuns>, ExperimentError> {
    let outcomes = each(plan.runs(), jobs, |number| {
        let outcome = plan.run(number);
        done();
        outcome
    });
    let all: Vec<SimulationOutcome> = outcomes.into_iter().collect::<Result<_, _>>()?;
    let rows = plan.cases.iter().zip(all.chunks(plan.seeds.len().max(1)));
    Ok(rows
        .map(|(case, runs)| PolicyRuns {
            policy: case.label(&plan.setups[case.setup]),
            case: case.clone(),
            runs: runs.to_vec(),
        })
        .collect())
}

impl SimulationCase {
    fn label(&self, ground: &ExperimentSetup) -> Arc<str> {
        let Some(name) = &self.policy else { return Arc::from(CLAIRVOYANT) };
        let policy = ground.policies.by_name(name);
        match (self.ablation, policy) {
            (AblationMode::Without(part), Some(policy)) => format!("{name} − {}", part.name(policy)).into(),
            _ => Arc::clone(name),
        }
    }
}
