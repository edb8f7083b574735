//! Supervision of a plugin: counts, the time budget, quarantine.
//!
//! A call that exceeds its budget of thread time, or whose answer is unusable, is a strike; five strikes within a hundred
//! calls quarantine the plugin for good. The thread's clock is expensive to read (a system call), so calls are timed by
//! the cheap clock, which never shows less; only after a call that took too long by that clock are the next hundred
//! calls measured by the thread's clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gorgo_routing::model::PluginCounts;
use parking_lot::Mutex;

use super::clock::{monotonic_ns, thread_ns};

/// Strikes that quarantine a plugin.
const STRIKES: usize = 5;
/// Number of calls within which they must happen.
const WITHIN: u64 = 100;

/// Messages for operators, which the router fetches now and then.
#[derive(Debug, Default)]
pub(super) struct OperatorMessages(Mutex<Vec<String>>);

impl OperatorMessages {
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

/// Consequences of bad behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuarantineMode {
    /// A plugin that fails or is slow too often is quarantined.
    Enforced,
    /// Such a plugin is only reported: in a simulation the same seed must give the same result on every machine.
    Reported,
}

/// The watch over one instance.
#[derive(Debug)]
pub(super) struct PluginWatch {
    plugin: Arc<str>,
    budget_ns: u64,
    conduct: QuarantineMode,
    news: Arc<OperatorMessages>,
    calls: AtomicU64,
    failures: AtomicU64,
    over_budget: AtomicU64,
    total_ns: AtomicU64,
    /// Number of the call from which on the thread's clock is no longer read.
    measured_until: AtomicU64,
    reported: AtomicBool,
    quarantined: AtomicBool,
    /// Numbers of the calls of the last strikes, oldest first.
    strikes: Mutex<Vec<u64>>,
}

/// A call that has begun.
#[derive(Debug)]
pub(super) struct StartedCall {
    call: u64,
    wall_ns: u64,
    thread_ns: Option<u64>,
}

impl PluginWatch {
    pub(super) fn new(plugin: Arc<str>, budget_us: f64, conduct: QuarantineMode, news: Arc<OperatorMessages>) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a checked option, 1 to 1e6")]
        let budget_ns = (budget_us * 1e3) as u64;
        Self {
            plugin,
            budget_ns,
            conduct,
            news,
            calls: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            over_budget: AtomicU64::new(0),
            total_ns: AtomicU64::new(0),
            measured_until: AtomicU64::new(0),
            reported: AtomicBool::new(false),
            quarantined: AtomicBool::new(false),
            strikes: Mutex::new(Vec::with_capacity(STRIKES)),
        }
    }

    /// Returns whether the plugin is quarantined.
    pub(super) fn is_quarantined(&self) -> bool {
        self.quarantined.load(Ordering::Relaxed)
    }

    pub(super) fn begin(&self) -> StartedCall {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        // Relaxed is enough: no other memory depends on the counters, and a call more or less that is timed by the
        // expensive clock does no harm.
        let thread_ns = (call < self.measured_until.load(Ordering::Relaxed)).then(thread_ns);
        StartedCall { call, wall_ns: monotonic_ns(), thread_ns }
    }

    /// Ends a call; `failure` says why its answer is unusable.
    pub(super) fn end(&self, began: &StartedCall, failure: Option<&CallFailure>) {
        let wall_ns = monotonic_ns().saturating_sub(began.wall_ns);
        self.total_ns.fetch_add(wall_ns, Ordering::Relaxed);
        if wall_ns > self.budget_ns {
            match began.thread_ns.map(|began| thread_ns().saturating_sub(began)) {
                // The cheap clock also counts time in which this thread did not run: a suspicion, not yet a strike.
                None => self.measured_until.store(began.call + 1 + WITHIN, Ordering::Relaxed),
                Some(spent) if spent > self.budget_ns => {
                    self.over_budget.fetch_add(1, Ordering::Relaxed);
                    let (budget, spent) = (self.budget_ns / 1000, spent / 1000);
                    self.strike(began.call, || {
                        format!("a call took {spent} µs of thread time; its budget is {budget} µs")
                    });
                }
                Some(_) => {}
            }
        }
        if let Some(failure) = failure {
            self.failures.fetch_add(1, Ordering::Relaxed);
            // After a panic the state of the instance is undefined: one is enough.
            if failure.fatal {
                self.quarantine(&failure.text);
            } else {
                self.strike(began.call, || failure.text.clone());
            }
        }
    }

    fn strike(&self, call: u64, why: impl FnOnce() -> String) {
        let mut strikes = self.strikes.lock();
        if strikes.len() == STRIKES {
            strikes.remove(0);
        }
        strikes.push(call);
        let full = strikes.len() == STRIKES && call.saturating_sub(strikes[0]) < WITHIN;
        // Released before the message is made and written, which takes another lock.
        drop(strikes);
        if full {
            self.quarantine(&format!("{STRIKES} of {WITHIN} calls failed or were too slow; the last: {}", why()));
        }
    }

    fn quarantine(&self, why: &str) {
        let taken = self.conduct == QuarantineMode::Enforced;
        if taken {
            self.quarantined.store(true, Ordering::Relaxed);
        }
        // Once: calls that are still running on other threads may come here, too.
        if !self.reported.swap(true, Ordering::Relaxed) {
            let what = if taken { "is quarantined" } else { "would be quarantined" };
            self.news.0.lock().push(format!("plugin {} {what}: {why}", self.plugin));
        }
    }

    pub(super) fn count(&self) -> PluginCounts {
        #[expect(clippy::cast_precision_loss, reason = "a sum of nanoseconds stays below 2^53 for a hundred days")]
        let seconds = self.total_ns.load(Ordering::Relaxed) as f64 / 1e9;
        PluginCounts {
            plugin: Arc::clone(&self.plugin),
            calls: self.calls.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            over_budget: self.over_budget.load(Ordering::Relaxed),
            seconds,
            quarantined: self.is_quarantined(),
        }
    }
}

/// Reason why an answer is unusable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallFailure {
    pub(crate) text: String,
    /// True if the instance must not be called again.
    pub(crate) fatal: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(conduct: QuarantineMode, budget_us: f64) -> PluginWatch {
        PluginWatch::new(Arc::from("test"), budget_us, conduct, Arc::default())
    }

    fn failure(fatal: bool) -> CallFailure {
        CallFailure { text: "row 0 is NaN".to_owned(), fatal }
    }

    fn calls(watch: &PluginWatch, count: usize, failure: Option<&CallFailure>) {
        (0..count).for_each(|_| watch.end(&watch.begin(), failure));
    }

    #[test]
    fn five_failures_in_a_hundred_calls_are_enough_and_spread_wider_they_are_not() {
        let patient = watch(QuarantineMode::Enforced, 1e6);
        for _ in 0..50 {
            calls(&patient, 1, Some(&failure(false)));
            calls(&patient, 24, None);
        }
        assert!(!patient.is_quarantined());
        assert_eq!(patient.count().failures, 50);

        let strict = watch(QuarantineMode::Enforced, 1e6);
        for _ in 0..4 {
            calls(&strict, 1, Some(&failure(false)));
            calls(&strict, 23, None);
        }
        assert!(!strict.is_quarantined());
        calls(&strict, 1, Some(&failure(false)));
        assert!(strict.is_quarantined());
        let news = ["plugin test is quarantined: 5 of 100 calls failed or were too slow; the last: row 0 is NaN"];
        assert_eq!(strict.news.take(), news);
        calls(&strict, 10, Some(&failure(false)));
        assert!(strict.news.take().is_empty(), "told once");
    }

    #[test]
    fn one_panic_is_enough() {
        let strict = watch(QuarantineMode::Enforced, 1e6);
        calls(&strict, 1, Some(&failure(true)));
        assert!(strict.is_quarantined());
    }

    #[test]
    fn a_simulation_only_reports() {
        let reporting = watch(QuarantineMode::Reported, 1e6);
        calls(&reporting, 9, Some(&failure(true)));
        assert!(!reporting.is_quarantined());
        assert_eq!(reporting.news.take(), ["plugin test would be quarantined: row 0 is NaN"]);
    }

    #[test]
    fn slow_calls_are_measured_by_the_threads_clock_and_count() {
        let strict = watch(QuarantineMode::Enforced, 50.0);
        let spin = |watch: &PluginWatch| {
            let began = watch.begin();
            let from = thread_ns();
            while thread_ns() - from < 100_000 {}
            watch.end(&began, None);
        };
        spin(&strict);
        assert_eq!(strict.count().over_budget, 0, "the first only starts the measuring");
        (0..4).for_each(|_| spin(&strict));
        assert!(!strict.is_quarantined());
        spin(&strict);
        assert!(strict.is_quarantined());
        assert_eq!(strict.count().over_budget, 5);
    }

    #[test]
    fn who_waits_without_computing_is_not_slow() {
        let strict = watch(QuarantineMode::Enforced, 50.0);
        for _ in 0..20 {
            let began = strict.begin();
            let from = monotonic_ns();
            // Another thread computes for this one: the wall runs, this thread's clock does not.
            std::thread::spawn(move || while monotonic_ns() - from < 200_000 {}).join().unwrap();
            strict.end(&began, None);
        }
        // Starting a thread costs this one something; far less than the budget is not promised on a busy machine.
        assert!(strict.count().over_budget <= 20);
    }
}
