//! One run per policy and seed, as many at a time as there are jobs. Each run stands alone, so neither how many run at
//! once nor in what order they end changes any result.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use gorgo_core::sim::world::{Chooser, SimulateError, Tuning, simulate};
use gorgo_core::trace::{Summary, quantile};

use super::ground::Ground;

/// Name of the row that no router could reach.
pub(super) const CLAIRVOYANT: &str = "clairvoyant";

/// What is to be run.
pub(super) struct Plan<'a> {
    pub(super) ground: &'a Ground,
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
        let setup = self.ground.setup(name.map_or(CLAIRVOYANT, |name| name));
        let run = simulate(&setup, name.map_or(Chooser::Clairvoyant, |name| self.chooser(name)), seed)?;
        let mut bounds_ms = run.bounds_ms;
        bounds_ms.sort_by(f64::total_cmp);
        Ok(Outcome {
            summary: Summary::of(&run.samples),
            bound_ttft_p95_ms: quantile(&bounds_ms, 0.95),
            tuning: run.tuning,
        })
    }

    /// A policy, built for its run alone.
    fn chooser(&self, name: &str) -> Chooser {
        let built = self.ground.built();
        let found = built.and_then(|policies| policies.named(name).map(|policy| policy.id).zip(Some(policies)));
        found.map_or(Chooser::Clairvoyant, |(id, policies)| Chooser::Policy(policies, id))
    }
}

/// Does `many` pieces of work, so many at a time; what they give, in order.
pub(in crate::cmd) fn each<T: Send>(many: usize, jobs: NonZeroUsize, piece: impl Fn(usize) -> T + Sync) -> Vec<T> {
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
        for _ in 1..jobs.get().min(many) {
            scope.spawn(work);
        }
        work();
    });
    given.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
}

/// Runs all; `done` is called after each. The clairvoyant is the last of the rows.
pub(super) fn compare(
    plan: &Plan<'_>,
    jobs: NonZeroUsize,
    done: impl Fn() + Sync,
) -> Result<Vec<PolicyRuns>, SimulateError> {
    let outcomes = each(plan.runs(), jobs, |number| {
        let outcome = plan.run(number);
        done();
        outcome
    });
    let all: Vec<Outcome> = outcomes.into_iter().collect::<Result<_, _>>()?;
    let names = plan.policies.iter().cloned().chain([Arc::from(CLAIRVOYANT)]);
    let rows = names.zip(all.chunks(plan.seeds.len()));
    Ok(rows.map(|(policy, runs)| PolicyRuns { policy, runs: runs.to_vec() }).collect())
}
