//! What every constraint must hold to, run over the whole table, and what each is for.

use proptest::prelude::*;

use super::{CONSTRAINTS, Constraint, ConstraintScope};
use crate::model::arbitrary::{candidates, fixed, fleet, permuted, request, with_order};
use crate::model::{Candidates, ConfigValue, ParamValues, RequestView};

type ParamSetting = (&'static str, ConfigValue);

fn text(value: &str) -> ConfigValue {
    ConfigValue::Text(value.to_owned())
}

/// Settings that make sense for a fleet of eight, at least one per kind.
fn settings() -> Vec<(&'static str, Vec<ParamSetting>)> {
    let of = || ("of", text("requests"));
    vec![
        ("health", vec![]),
        ("concentration", vec![("max_share", ConfigValue::Float(0.3)), ("min_requests", ConfigValue::Integer(5))]),
        (
            "concentration",
            vec![("max_ratio", ConfigValue::Float(1.5)), ("window_decisions", ConfigValue::Integer(50)), of()],
        ),
        ("max-inflight", vec![("max_requests", ConfigValue::Integer(30))]),
        ("max-queued-tokens", vec![("max_tokens", ConfigValue::Integer(100_000))]),
        ("max-queued-tokens", vec![("max_tokens", ConfigValue::Integer(100_000)), ("counts", text("prompt"))]),
        ("min-share", vec![("min_share", ConfigValue::Float(0.1)), ("min_requests", ConfigValue::Integer(0)), of()]),
        ("regions", vec![("allow", ConfigValue::List(vec![text("east"), text("north")]))]),
        ("imbalance", vec![("max_difference", ConfigValue::Integer(8))]),
        ("imbalance", vec![("max_sigmas", ConfigValue::Float(1.0))]),
        ("bounded-load", vec![("factor", ConfigValue::Float(1.25))]),
        ("cache-affinity", vec![("max_difference", ConfigValue::Float(8.0)), ("max_ratio", ConfigValue::Float(1.1))]),
        (
            "cache-affinity",
            vec![
                ("compare", text("match")),
                ("above_mean", ConfigValue::Float(20.0)),
                ("min_match", ConfigValue::Float(0.5)),
            ],
        ),
        ("imbalance", vec![("max_mad", ConfigValue::Float(1.0)), ("of", text("load"))]),
        ("imbalance", vec![("max_difference", ConfigValue::Integer(8)), ("of", text("reported"))]),
        (
            "expression",
            vec![("allow", text("inflight < 40 && kv_used_share < 0.9")), ("relax", ConfigValue::Bool(true))],
        ),
        (
            "expression",
            vec![
                ("allow", text("rtt_ms < 500")),
                ("unknown", text("exclude")),
                ("relax", ConfigValue::Bool(true)),
                ("violation", text("rtt_ms / 500 - 1")),
            ],
        ),
        ("expression", vec![("allow", text("prompt_tokens < 1000 || cached_tokens > 0"))]),
    ]
}

fn build(kind: &str, values: Vec<ParamSetting>, replicas: u16) -> Result<Box<dyn Constraint>, String> {
    let kind = CONSTRAINTS.iter().find(|known| known.kind == kind).unwrap();
    (kind.build)(&ParamValues { values }, &fleet(replicas))
}

fn violations(constraint: &dyn Constraint, request: &RequestView, facts: &Candidates, rows: &[usize]) -> Vec<f64> {
    let mut out = vec![-7.0; facts.len()];
    constraint.violation(&ConstraintScope { request, candidates: facts, rows, window: 0 }, &mut out);
    out
}

#[test]
fn every_kind_is_tested_here() {
    for kind in CONSTRAINTS {
        assert!(settings().iter().any(|(name, _)| *name == kind.kind), "{}", kind.kind);
    }
}

proptest! {
    #![proptest_config(fixed(300))]

    #[test]
    fn only_the_rows_in_scope_are_judged(request in request(), facts in candidates(), mask in any::<u8>()) {
        let rows: Vec<usize> = (0..facts.len()).filter(|row| mask >> row & 1 == 1).collect();
        for (kind, values) in settings() {
            let constraint = build(kind, values, 8).unwrap();
            let hard = CONSTRAINTS.iter().find(|known| known.kind == kind).unwrap().hard;
            let hard = constraint.hard().unwrap_or(hard);
            let out = violations(&*constraint, &request, &facts, &rows);
            for (row, violation) in out.iter().enumerate() {
                if rows.contains(&row) {
                    prop_assert!(*violation >= 0.0, "{kind}: {violation}");
                    let infinite = violation.is_infinite();
                    prop_assert!(if hard { infinite || *violation == 0.0 } else { !infinite }, "{kind}: {violation}");
                } else {
                    prop_assert_eq!(*violation, -7.0, "{}", kind);
                }
            }
        }
    }

    #[test]
    fn permuted_rows_give_permuted_violations(request in request(), (facts, order) in with_order()) {
        let rows: Vec<usize> = (0..facts.len()).collect();
        let moved = permuted(&facts, &order);
        for (kind, values) in settings() {
            let constraint = build(kind, values, 8).unwrap();
            let straight = violations(&*constraint, &request, &facts, &rows);
            let permuted = violations(&*constraint, &request, &moved, &rows);
            for (row, from) in order.iter().enumerate() {
                let (a, b) = (straight[*from], permuted[row]);
                prop_assert!(a == b || (a - b).abs() <= 1e-9 * a.abs(), "{kind}: {a} {b}");
            }
        }
    }
}

fn request_of(prompt_tokens: u32) -> RequestView {
    RequestView {
        prompt_tokens,
        max_tokens: None,
        body_bytes: 0,
        session_hash: 0,
        head_hash: 0,
        slo_ttft_ms: None,
        decision_number: 0,
    }
}

fn facts(rows: u16) -> Candidates {
    let mut facts = Candidates::default();
    facts.reset(usize::from(rows), 1);
    facts.replica = fleet(rows).iter().map(|replica| replica.id).collect();
    facts
}

fn judged(kind: &str, values: Vec<ParamSetting>, facts: &Candidates) -> Vec<f64> {
    let rows: Vec<usize> = (0..facts.len()).collect();
    let replicas = u16::try_from(facts.len()).unwrap();
    violations(&*build(kind, values, replicas).unwrap(), &request_of(100), facts, &rows)
}

#[test]
fn concentration_limits_the_share_of_the_window() {
    let mut facts = facts(3);
    facts.windows = vec![vec![800.0, 150.0, 50.0]];
    facts.window_decisions = vec![20];
    let half = || vec![("max_share", ConfigValue::Float(0.5)), ("min_requests", ConfigValue::Integer(20))];
    let out = judged("concentration", half(), &facts);
    assert!((out[0] - 0.6).abs() < 1e-9 && out[1..] == [0.0, 0.0], "{out:?}");
    facts.window_decisions = vec![19];
    assert_eq!(judged("concentration", half(), &facts), [0.0; 3], "too few requests to say anything");
}

#[test]
fn a_ratio_goes_by_capacity_where_all_capacities_are_known() {
    let mut facts = facts(2);
    facts.windows = vec![vec![600.0, 400.0]];
    facts.window_decisions = vec![100];
    let ratio = || vec![("max_ratio", ConfigValue::Float(1.5)), ("min_requests", ConfigValue::Integer(1))];
    facts.capacity_tokens = vec![100, 300];
    let out = judged("concentration", ratio(), &facts);
    assert!((out[0] - 0.6).abs() < 1e-9, "limit 1.5 × 0.25: {out:?}");
    assert_eq!(out[1], 0.0);
    facts.capacity_tokens = vec![100, 0];
    assert_eq!(judged("concentration", ratio(), &facts), [0.0, 0.0], "equal shares: limit 0.75");
}

#[test]
fn what_can_never_be_met_is_refused_with_what_could() {
    let refused = |kind, values, replicas| build(kind, values, replicas).unwrap_err();
    let share = |value| vec![("max_share", ConfigValue::Float(value))];
    assert_eq!(
        refused("concentration", share(0.3), 3),
        "`max_share` 0.3 × 3 replicas is below 1, so together they could not take all of the work; at least 0.334 is needed"
    );
    assert!(build("concentration", share(0.334), 3).is_ok());
    assert!(build("concentration", share(0.3), 1).is_ok(), "one replica is never limited");
    assert_eq!(refused("concentration", vec![], 3), "`max_share` or `max_ratio` is missing");
    let both = vec![("max_share", ConfigValue::Float(0.5)), ("max_ratio", ConfigValue::Float(2.0))];
    assert_eq!(refused("concentration", both, 3), "give `max_share` or `max_ratio`, not both");
    let mut windows = share(0.5);
    windows.extend([("window_secs", ConfigValue::Float(60.0)), ("window_decisions", ConfigValue::Integer(5))]);
    assert_eq!(refused("concentration", windows, 3), "give `window_secs` or `window_decisions`, not both");
    assert_eq!(
        refused("min-share", vec![("min_share", ConfigValue::Float(0.5))], 3),
        "`min_share` 0.5 × 3 replicas is above 1, so it can never be met"
    );
    assert_eq!(refused("max-inflight", vec![], 3), "`max_requests` is missing");
    assert_eq!(refused("max-queued-tokens", vec![], 3), "`max_tokens` is missing");
    assert_eq!(refused("regions", vec![], 3), "`allow` must list at least one region");
    assert_eq!(
        refused("regions", vec![("allow", ConfigValue::List(vec![text("sud")]))], 3),
        "`allow`: no enabled replica is in region \"sud\"; known: east, north, west"
    );
    assert!(refused("imbalance", vec![], 3).ends_with("is missing"));
}

#[test]
fn imbalance_of_old_reports_does_not_see_what_was_sent_since() {
    let mut facts = facts(3);
    facts.engine_running = vec![Some(1.0), Some(9.0), None];
    facts.inflight = vec![20, 0, 2];
    facts.inflight_since_report = vec![19, -9, 0];
    let of =
        |of: &str| judged("imbalance", vec![("max_difference", ConfigValue::Integer(7)), ("of", text(of))], &facts);
    let (reported, requests) = (of("reported"), of("requests"));
    assert!(reported[0] == 0.0 && reported[1] > 0.0 && reported[2] > 0.0, "{reported:?}");
    assert!(requests[0] > 0.0 && requests[1] == 0.0, "{requests:?}");
}

#[test]
fn limits_count_what_would_be_with_one_more() {
    let mut facts = facts(3);
    facts.inflight = vec![3, 4, 0];
    facts.engine_running = vec![None, None, Some(5.0)];
    assert_eq!(judged("max-inflight", vec![("max_requests", ConfigValue::Integer(4))], &facts), [0.0, 0.25, 0.5]);
    facts.queued_uncached_tokens = vec![99, 100, 0];
    facts.queued_tokens_first = vec![0, 0, 199];
    let out = judged("max-queued-tokens", vec![("max_tokens", ConfigValue::Integer(100))], &facts);
    assert!(out[0] == 0.0 && out[1] > 0.0 && out[2] == 0.0, "{out:?}");
    let prompt = vec![("max_tokens", ConfigValue::Integer(100)), ("counts", text("prompt"))];
    assert_eq!(judged("max-queued-tokens", prompt, &facts), [0.0, 0.0, 1.0]);
}

#[test]
fn while_somebody_starves_only_those_may_be_picked() {
    let mut facts = facts(3);
    facts.windows = vec![vec![90.0, 10.0, 0.0]];
    facts.window_decisions = vec![100];
    let least = || vec![("min_share", ConfigValue::Float(0.1)), ("min_requests", ConfigValue::Integer(20))];
    let out = judged("min-share", least(), &facts);
    assert!(out[0] > out[1] && out[1] > 0.0 && out[2] == 0.0, "{out:?}");
    facts.windows = vec![vec![80.0, 10.0, 10.0]];
    assert_eq!(judged("min-share", least(), &facts), [0.0; 3]);
}

#[test]
fn a_gap_leaves_the_least_loaded_and_outliers_are_kept_out() {
    let mut facts = facts(4);
    facts.inflight = vec![1, 9, 1, 5];
    let eight = || vec![("max_difference", ConfigValue::Integer(8))];
    assert_eq!(judged("imbalance", eight(), &facts), [0.0; 4], "a gap of 8 is allowed");
    facts.inflight = vec![1, 10, 1, 5];
    let out = judged("imbalance", eight(), &facts);
    assert!(out[0] == 0.0 && out[2] == 0.0 && out[1] > out[3] && out[3] > 0.0, "{out:?}");
    // Mean 4.25, sample deviation about 4.27.
    let out = judged("imbalance", vec![("max_sigmas", ConfigValue::Float(1.0))], &facts);
    assert!(out[1] > 0.0 && out.iter().filter(|violation| **violation == 0.0).count() == 3, "{out:?}");
    // Median 3, deviations 2, 7, 2, 2: median 2.
    let out = judged("imbalance", vec![("max_mad", ConfigValue::Float(2.0))], &facts);
    assert!(out[1] > 0.0 && out.iter().filter(|violation| **violation == 0.0).count() == 3, "{out:?}");
}

#[test]
fn a_stale_report_is_not_an_idle_engine() {
    let mut facts = facts(3);
    facts.kv_used_tokens = vec![Some(10.0), Some(9_000.0), None];
    let out = judged("imbalance", vec![("max_difference", ConfigValue::Integer(100)), ("of", text("load"))], &facts);
    assert!(out[0] == 0.0 && out[1] > 0.0 && out[2] > 0.0, "{out:?}");
}

#[test]
fn an_expression_that_is_0_excludes() {
    let mut facts = facts(4);
    facts.kv_used_share = vec![Some(0.5), Some(0.95), None, Some(0.99)];
    let full = |more: Vec<ParamSetting>| {
        let mut values = vec![("allow", text("kv_used_share < 0.9"))];
        values.extend(more);
        judged("expression", values, &facts)
    };
    let relax = || ("relax", ConfigValue::Bool(true));
    assert_eq!(full(vec![]), [0.0, f64::INFINITY, 0.0, f64::INFINITY]);
    assert_eq!(full(vec![relax()]), [0.0, 1.0, 0.0, 1.0]);
    assert_eq!(full(vec![relax(), ("unknown", text("exclude"))]), [0.0, 1.0, 1.0, 1.0]);
    let graded = full(vec![relax(), ("unknown", text("exclude")), ("violation", text("kv_used_share - 0.96"))]);
    assert_eq!((graded[0], graded[1], graded[2]), (0.0, 1.0, 1.0), "0.95 − 0.96 is not above 0");
    assert!((graded[3] - 0.03).abs() < 1e-9, "{graded:?}");
    // Without a value it is as if unknown.
    let odd = vec![("allow", text("inflight / inflight > 0")), relax()];
    assert_eq!(judged("expression", odd, &facts), [0.0; 4]);
}

#[test]
fn an_expression_that_says_nothing_is_refused() {
    let refused = |values: Vec<ParamSetting>| build("expression", values, 3).unwrap_err();
    assert_eq!(refused(vec![]), "`allow` is missing");
    assert_eq!(
        refused(vec![("allow", text("1 + 1"))]),
        "`allow`: column 1: this is always 2 and excludes none; name a fact"
    );
    assert_eq!(
        refused(vec![("allow", text("inflight < 3")), ("violation", text("inflight -"))]),
        "`violation`: column 11: expected a number, a name, a function or `(`, found the end"
    );
    assert_eq!(
        refused(vec![("allow", text("inflight < 3")), ("violation", text("inflight"))]),
        "`violation`: has no effect with `relax = false`; remove one of them"
    );
}
