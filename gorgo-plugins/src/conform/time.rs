//! The time of a call with many replicas must be within the router's default budget.

use super::facts::{candidates, request};
use super::subject::{FLEET, JudgeSubject};
use crate::host::clock::thread_ns;
use crate::host::columns::ColumnBuffers;

const CALLS: u32 = 200;
/// Default of `budget_us`, µs.
const BUDGET_US: f64 = 200.0;

pub(super) fn check(subject: &JudgeSubject) -> Result<String, String> {
    let [few, many] = [3, FLEET].map(|replicas| micros_per_call(subject, replicas));
    let seen = format!("{few:.2} µs with 3 replicas, {many:.2} µs with {FLEET}");
    if many <= BUDGET_US { Ok(seen) } else { Err(format!("{seen}; the budget is {BUDGET_US} µs")) }
}

/// Mean time of a call, µs, without the first one, which fills caches.
fn micros_per_call(subject: &JudgeSubject, replicas: u16) -> f64 {
    let facts = candidates(replicas);
    let mut room = ColumnBuffers::default();
    let columns = room.columns(&request(), &facts, &subject.about.asks);
    subject.raw(&request(), &columns, &mut room);
    // The thread's clock, as for the budget: other programs on the machine must not fail the check.
    let began = thread_ns();
    for _ in 0..CALLS {
        subject.raw(&request(), &columns, &mut room);
    }
    #[expect(clippy::cast_precision_loss, reason = "a few seconds at most")]
    let spent_us = thread_ns().saturating_sub(began) as f64 / 1e3;
    spent_us / f64::from(CALLS)
}
