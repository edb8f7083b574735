//! Plugins that misbehave while they serve: the decision continues, the failure is counted, the plugin is quarantined.

use std::sync::Arc;

use gorgo_plugins::conform::candidates;
use gorgo_plugins::host::{PluginHost, QuarantineMode};
use gorgo_routing::model::ConfigValue;
use gorgo_routing::policy::{PluginLoader, PolicySet};

use crate::bench::{decided, hostile_c, policies, rust, signals, table, term, text, with_terms};

/// A policy of the hostile plugin and the built-in queue.
fn hostile(how: &str, more: &[(&str, ConfigValue)], conduct: QuarantineMode) -> (PolicySet, Arc<PluginHost>) {
    let mut members = vec![("options", table(&[("how", text(how))]))];
    members.extend_from_slice(more);
    let queue = table(&[("kind", text("queue")), ("weight", ConfigValue::Float(0.01))]);
    policies(with_terms(vec![term(&rust("scorer_hostile"), &members), queue]), conduct).unwrap()
}

fn quarantined(host: &PluginHost) -> bool {
    host.counts()[0].quarantined
}

#[test]
fn it_behaves_until_it_does_not() {
    let (policies, host) = hostile("", &[], QuarantineMode::Enforced);
    let facts = candidates(3);
    let known = facts.rtt_ms.iter().map(|rtt| rtt.map(|rtt| (rtt * 1e3).round() / 1e3));
    let worst = known.clone().flatten().fold(0.0, f64::max);
    let expected: Vec<f64> = known.map(|rtt| rtt.unwrap_or(worst)).collect();
    assert_eq!(signals(&policies, &facts), expected, "a row that it does not know is the worst known");
    assert!(decided(&policies, &facts).unwrap().void_terms.is_empty());
    assert_eq!(host.counts()[0].failures, 0);
}

#[test]
fn a_panic_costs_the_term_and_nothing_else() {
    let (policies, host) = hostile("panic", &[], QuarantineMode::Enforced);
    assert_eq!(signals(&policies, &candidates(3)), [0.0; 3]);
    assert!(quarantined(&host), "an instance that panicked is not called again");
    let news = host.take_messages();
    assert_eq!(news, ["plugin hostile is quarantined: a panic: row 3 of 2"]);
    for _ in 0..3 {
        assert!(decided(&policies, &candidates(3)).is_some());
    }
    assert_eq!(host.counts()[0].calls, 1);
}

#[test]
fn what_is_not_finite_voids_the_whole_term_and_the_fifth_time_ends_it() {
    for how in ["nan", "infinite"] {
        let (policies, host) = hostile(how, &[], QuarantineMode::Enforced);
        for _ in 0..4 {
            let decision = decided(&policies, &candidates(3)).unwrap();
            assert_eq!(decision.void_terms, [0], "the queue says something");
            let hostile: Vec<f64> = decision.signals.iter().step_by(2).copied().collect();
            assert_eq!(hostile, [0.0; 3], "rows that were finite are void, too");
        }
        assert!(!quarantined(&host));
        assert!(decided(&policies, &candidates(3)).is_some());
        assert!(quarantined(&host));
        let number = if how == "nan" { "NaN" } else { "inf" };
        let expected = format!(
            "plugin hostile is quarantined: 5 of 100 calls failed or were too slow; the last: its number for row 0 is \
             {number}, not finite"
        );
        assert_eq!(host.take_messages(), [expected]);
    }
}

#[test]
fn an_error_is_a_failure_and_no_opinion_is_none() {
    let (policies, host) = hostile("error", &[], QuarantineMode::Enforced);
    (0..5).for_each(|_| assert_eq!(signals(&policies, &candidates(3)), [0.0; 3]));
    assert!(host.take_messages()[0].ends_with("the last: the moon is full"));

    let (policies, host) = hostile("no-opinion", &[], QuarantineMode::Enforced);
    (0..20).for_each(|_| assert_eq!(signals(&policies, &candidates(3)), [0.0; 3]));
    assert_eq!((host.counts()[0].failures, quarantined(&host)), (0, false));
}

#[test]
fn who_computes_too_long_is_taken_out() {
    let (policies, host) = hostile("slow", &[("budget_us", ConfigValue::Integer(200))], QuarantineMode::Enforced);
    for _ in 0..6 {
        assert!(!quarantined(&host));
        signals(&policies, &candidates(3));
    }
    assert!(quarantined(&host), "{:?}", host.counts());
    assert_eq!(host.counts()[0].over_budget, 5);
    let news = host.take_messages();
    assert!(news[0].contains("µs of thread time; its budget is 200 µs"), "{news:?}");
}

#[test]
fn a_policy_that_cannot_do_without_refuses() {
    let (policies, host) = hostile("nan", &[("on_fault", text("refuse"))], QuarantineMode::Enforced);
    (0..4).for_each(|_| assert!(decided(&policies, &candidates(3)).is_some()));
    assert!(decided(&policies, &candidates(3)).is_none(), "the fifth failure takes it out");
    assert!(quarantined(&host));
    assert!(decided(&policies, &candidates(3)).is_none());
}

#[test]
fn a_simulation_reports_and_goes_on() {
    let (policies, host) = hostile("nan", &[], QuarantineMode::Reported);
    (0..9).for_each(|_| assert!(decided(&policies, &candidates(3)).is_some()));
    assert_eq!((host.counts()[0].calls, quarantined(&host)), (9, false));
    assert!(host.take_messages()[0].starts_with("plugin hostile would be quarantined: "));
}

#[test]
fn statuses_and_lengths_that_do_not_exist_do_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    for (definition, said) in [("-DSTATUS=77", "the unknown status 77"), ("-DLONG_ERROR", "an error")] {
        let library = hostile_c(folder.path(), &[definition]);
        let (policies, host) = policies(with_terms(vec![term(&library, &[])]), QuarantineMode::Enforced).unwrap();
        (0..5).for_each(|_| assert_eq!(signals(&policies, &candidates(2)), [0.0; 2]));
        assert!(host.take_messages()[0].ends_with(said), "{definition}");
    }
}

/// Many threads on one instance, some of whose calls panic: every decision is made, and the counts are right.
#[test]
fn threads_share_an_instance() {
    let options = [("options", table(&[("how", text("panic")), ("after", ConfigValue::Integer(500))]))];
    let library = term(&rust("scorer_hostile"), &options);
    let (policies, host) = policies(with_terms(vec![library]), QuarantineMode::Enforced).unwrap();
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| (0..200).for_each(|_| assert!(decided(&policies, &candidates(8)).is_some())));
        }
    });
    assert!(quarantined(&host));
    let calls = host.counts()[0].calls;
    assert!((501..=504).contains(&calls), "{calls} calls: after the first panic only those that had begun");
}
