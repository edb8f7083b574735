//! One run per policy and seed, as many at a time as there are jobs. Each run stands alone, so neither how many run at
//! once nor in what order they end changes any result.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use gorgo_core::config::Config;
use gorgo_core::model::Replica;
use gorgo_core::policy::{Registry, build};
use gorgo_core::sim::world::{Chooser, Member, Scenario, Setup, SimulateError, Tuning, Workload, simulate};
use gorgo_core::trace::{Summary, quantile};

/// Name of the row that no router could reach.
pub(super) const CLAIRVOYANT: &str = "clairvoyant";

/// What is to be run.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) registry: &'a Registry,
    pub(super) config: &'a Config,
    pub(super) members: &'a [Member],
    pub(super) scenario: &'a Scenario,
    pub(super) workload: &'a Workload,
    pub(super) max_in_flight: Option<usize>,
    pub(super) policies: Vec<Arc<str>>,
    pub(super) seeds: Vec<u64>,
}

/// One run in numbers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    pub(super) summary: Summary,
    /// 95th percentile of the lowest TTFT that was possible for each request, ms.
    pub(super) bound_ttft_p95_ms: Option<f64>,
    /// What the policy's tuner did; `None` where it has none.
    pub(super) tuning: Option<Tuning>,
}

/// One policy's runs, by seed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PolicyRuns {
    pub(super) policy: Arc<str>,
    pub(super) runs: Vec<Outcome>,
}

impl Plan<'_> {
    /// How many runs that is; the clairvoyant's come last.
    pub(super) fn runs(&self) -> usize {
        (self.policies.len() + 1) * self.seeds.len()
    }

    /// The run of that number.
    fn run(&self, number: usize) -> Result<Outcome, SimulateError> {
        let (place, seed) = (number / self.seeds.len(), self.seeds[number % self.seeds.len()]);
        let name = self.policies.get(place);
        let (probe, scrape) =
            self.scenario.pace(name.map_or(CLAIRVOYANT, |name| name), self.config.probe, self.config.scrape);
        let setup = Setup {
            workload: self.workload,
            members: self.members,
            scenario: self.scenario,
            max_in_flight: self.max_in_flight,
            index: self.config.index,
            probe,
            scrape,
            failover: self.config.failover,
        };
        let run = simulate(&setup, name.map_or(Chooser::Clairvoyant, |name| self.chooser(name)), seed)?;
        let mut bounds_ms = run.bounds_ms;
        bounds_ms.sort_by(f64::total_cmp);
        Ok(Outcome {
            summary: Summary::of(&run.samples),
            bound_ttft_p95_ms: quantile(&bounds_ms, 0.95),
            tuning: run.tuning,
        })
    }

    /// A policy, built for its run alone. It was built before, so it can be again.
    fn chooser(&self, name: &str) -> Chooser {
        let fleet: Vec<Replica> = self.members.iter().map(|member| member.replica.clone()).collect();
        let checked = build(self.registry, &self.config.policies, &self.config.default_policy, &fleet);
        let found =
            checked.policies.and_then(|policies| policies.named(name).map(|policy| policy.id).zip(Some(policies)));
        found.map_or(Chooser::Clairvoyant, |(id, policies)| Chooser::Policy(policies, id))
    }
}

/// Runs all; `done` is called after each. The clairvoyant is the last of the rows.
pub(super) fn compare(
    plan: &Plan<'_>,
    jobs: NonZeroUsize,
    done: impl Fn() + Sync,
) -> Result<Vec<PolicyRuns>, SimulateError> {
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<Option<Result<Outcome, SimulateError>>>> =
        Mutex::new(std::iter::repeat_with(|| None).take(plan.runs()).collect());
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= plan.runs() {
                break;
            }
            let outcome = plan.run(number);
            outcomes.lock().unwrap_or_else(PoisonError::into_inner)[number] = Some(outcome);
            done();
        }
    };
    thread::scope(|scope| {
        for _ in 1..jobs.get().min(plan.runs()) {
            scope.spawn(work);
        }
        work();
    });
    let outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    let all: Vec<Outcome> = outcomes.into_iter().flatten().collect::<Result<_, _>>()?;
    let names = plan.policies.iter().cloned().chain([Arc::from(CLAIRVOYANT)]);
    let rows = names.zip(all.chunks(plan.seeds.len()));
    Ok(rows.map(|(policy, runs)| PolicyRuns { policy, runs: runs.to_vec() }).collect())
}
