//! The laws of a decision: exact propensities, repeatable from rows, independent of the order of rows.

use proptest::prelude::*;

use super::*;
use crate::config::parse_toml;
use crate::model::arbitrary::{candidates, fixed, fleet, permuted, request, with_order};
use crate::model::{ConfigValue, RttSource};
use crate::policy::{KindRegistry, PolicySet, build};

/// A policy with everything: rates, negative weights, unknown rules, constraints of both sorts, exploration.
const RICH: &str = r#"
    [policy.rich]
    unit = "raw"
    picker = { kind = "softmin", temperature = 50.0 }
    exploration = 0.1
    [[policy.rich.term]]
    kind = "rtt"
    weight = 0.3
    [[policy.rich.term]]
    kind = "prefill"
    weight = { rate = "prefill", init = 0.7 }
    [[policy.rich.term]]
    kind = "throughput"
    weight = -0.01
    [[policy.rich.term]]
    kind = "kv-usage"
    weight = 100.0
    unknown = 0.5
    [[policy.rich.term]]
    kind = "queue"
    weight = 0.001
    [[policy.rich.term]]
    kind = "hash"
    [policy.rich.constraint.max-inflight]
    max_requests = 40
    [policy.rich.constraint.concentration]
    max_share = 0.4
    [policy.rich.constraint.regions]
    allow = ["east", "west"]
"#;

fn policies() -> PolicySet {
    let file = parse_toml(RICH).unwrap();
    let Some(ConfigValue::Table(tables)) = file.get("policy").cloned() else { panic!() };
    build(&KindRegistry::built_in(), &tables, "rich", &fleet(8)).policies.unwrap()
}

/// The rows as the store would hold them.
fn stored(policy: &Policy, facts: &Candidates, decision: &Decision) -> Vec<CandidateRecord> {
    crate::policy::record::candidate_rows(policy, facts, decision, &[])
}

proptest! {
    #![proptest_config(fixed(300))]

    #[test]
    fn a_decision_repeated_from_its_rows_is_equal(
        request in request(), facts in candidates(), seed in 0..1_u64 << 53,
    ) {
        let policies = policies();
        let (mut scratch, mut other) = (DecisionScratch::default(), DecisionScratch::default());
        for policy in &policies.list {
            let weights = policy.weights();
            let Some(decision) = decide(policy, &weights, &request, &facts, seed, &mut scratch) else { continue };
            let rows = stored(policy, &facts, &decision);
            let repeated = repeat_decision(policy, &weights.values, &rows, seed, &mut other).unwrap();
            prop_assert_eq!(repeated.replica, decision.replica, "{}", policy.name);
            prop_assert_eq!(repeated.propensity.to_bits(), decision.propensity.to_bits(), "{}", policy.name);
            prop_assert_eq!(repeated.ties, decision.ties, "{}", policy.name);
            // And so is a second decision in used scratch space.
            let second = decide(policy, &weights, &request, &facts, seed, &mut other).unwrap();
            prop_assert_eq!(second, decision, "{}", policy.name);
        }
    }

    #[test]
    fn the_chosen_one_may_be_chosen_and_costs_add_up(
        request in request(), facts in candidates(), seed in 0..1_u64 << 53,
    ) {
        let policies = policies();
        let mut scratch = DecisionScratch::default();
        for policy in &policies.list {
            let weights = policy.weights();
            let allowed_by_health = facts.available.iter().any(|available| *available);
            let decision = decide(policy, &weights, &request, &facts, seed, &mut scratch);
            if policy.constraints.iter().filter(|rule| rule.hard).count() == 1 {
                prop_assert_eq!(decision.is_some(), allowed_by_health, "{}", policy.name);
            }
            let Some(decision) = decision else { continue };
            prop_assert!(facts.available[decision.row]);
            prop_assert!(decision.propensity > 0.0 && decision.propensity <= 1.0);
            let hard = |exclusion: &Exclusion| exclusion.row == decision.row && exclusion.violation.is_infinite();
            prop_assert!(!decision.excluded.iter().any(hard), "{}", policy.name);
            let slots = policy.terms.len();
            prop_assert_eq!(decision.signals.len(), slots * facts.len());
            for (place, signal) in decision.signals.iter().enumerate() {
                prop_assert_eq!(from_milli(to_milli(*signal)).to_bits(), signal.to_bits());
                prop_assert_eq!(decision.costs[place], signal * weights.values[place % slots]);
            }
        }
    }

    #[test]
    fn the_order_of_rows_means_nothing(request in request(), (facts, order) in with_order()) {
        let policies = policies();
        let (mut straight, mut moved) = (DecisionScratch::default(), DecisionScratch::default());
        for policy in &policies.list {
            let weights = policy.weights();
            let a = evaluate(policy, &weights, &request, &facts, 1, &mut straight);
            let b = evaluate(policy, &weights, &request, &permuted(&facts, &order), 1, &mut moved);
            prop_assert_eq!(a.is_some(), b.is_some(), "{}", policy.name);
            if a.is_none() {
                continue;
            }
            let slots = policy.terms.len();
            for (row, from) in order.iter().enumerate() {
                prop_assert_eq!(
                    &straight.signals[from * slots..(from + 1) * slots],
                    &moved.signals[row * slots..(row + 1) * slots],
                    "{}", policy.name
                );
                let (a, b) = (straight.distribution[*from], moved.distribution[row]);
                prop_assert!((a - b).abs() < 1e-9, "{}: {a} {b}", policy.name);
            }
        }
    }
}

fn plain(rows: u16) -> Candidates {
    let mut facts = Candidates::default();
    facts.reset(usize::from(rows), 1);
    facts.replica = fleet(rows).iter().map(|replica| replica.id).collect();
    facts.rtt_source = vec![RttSource::Probe; usize::from(rows)];
    facts
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

#[test]
fn what_is_chosen_is_as_frequent_as_its_propensity() {
    let policies = policies();
    let rich = policies.by_name("rich").unwrap();
    let mut facts = plain(5);
    facts.rtt_ms = vec![Some(10.0), Some(40.0), Some(20.0), Some(90.0), Some(15.0)];
    let mut chosen = [0.0; 5];
    let mut propensity = [0.0; 5];
    let mut scratch = DecisionScratch::default();
    for seed in 0..20_000 {
        let decision = decide(rich, &rich.weights(), &request_of(100), &facts, seed, &mut scratch).unwrap();
        chosen[decision.row] += 1.0 / 20_000.0;
        propensity[decision.row] = decision.propensity;
    }
    // Row 2 is in the north, which the policy does not allow.
    assert_eq!(chosen[2], 0.0);
    assert!((propensity.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    for (frequency, propensity) in chosen.iter().zip(propensity) {
        assert!((frequency - propensity).abs() < 0.01, "{chosen:?} {propensity}");
    }
}

#[test]
fn ties_are_shared_evenly_and_by_no_pattern() {
    let policies = policies();
    let gorgo = policies.by_name("gorgo").unwrap();
    let mut scratch = DecisionScratch::default();
    let mut chosen = [0_u32; 4];
    for seed in 0..400 {
        let decision = decide(gorgo, &gorgo.weights(), &request_of(50), &plain(4), seed, &mut scratch).unwrap();
        assert_eq!((decision.ties, decision.propensity), (4, 0.25));
        chosen[decision.row] += 1;
    }
    assert!(chosen.iter().all(|count| (70..=130).contains(count)), "{chosen:?}");
}

#[test]
fn an_unknown_signal_is_the_worst_of_the_available() {
    let policies = policies();
    let gorgo = policies.by_name("gorgo").unwrap();
    let mut facts = plain(4);
    facts.rtt_ms = vec![Some(10.0), None, Some(40.0), Some(2_000.0)];
    facts.available[3] = false;
    let mut scratch = DecisionScratch::default();
    let decision = decide(gorgo, &gorgo.weights(), &request_of(0), &facts, 1, &mut scratch).unwrap();
    assert_eq!(decision.signals.chunks(3).map(|row| row[0]).collect::<Vec<_>>(), [10.0, 40.0, 40.0, 2_000.0]);
    facts.rtt_ms = vec![None, Some(f64::NAN), Some(f64::INFINITY), None];
    let decision = decide(gorgo, &gorgo.weights(), &request_of(0), &facts, 1, &mut scratch).unwrap();
    assert_eq!(decision.signals.chunks(3).map(|row| row[0]).collect::<Vec<_>>(), [0.0; 4], "void, like unknown");
    // Under a negative weight the smallest is the worst.
    let throughput = policies.by_name("throughput").unwrap();
    facts.engine_throughput = vec![Some(100.0), None, Some(300.0), None];
    let decision = decide(throughput, &throughput.weights(), &request_of(0), &facts, 1, &mut scratch).unwrap();
    assert_eq!(decision.signals, [100.0, 100.0, 300.0, 100.0]);
    assert_eq!(decision.row, 2);
}

#[test]
fn when_nobody_is_left_the_least_violating_come_back_and_exclusions_stay() {
    let policies = policies();
    let rich = policies.by_name("rich").unwrap();
    let mut facts = plain(5);
    facts.available[4] = false;
    facts.inflight = vec![80, 60, 0, 70, 0];
    let mut scratch = DecisionScratch::default();
    let decision = decide(rich, &rich.weights(), &request_of(100), &facts, 1, &mut scratch).unwrap();
    assert_eq!((decision.row, decision.propensity), (1, 1.0));
    let rows = stored(rich, &facts, &decision);
    let names: Vec<_> = rows.iter().map(|row| row.excluded_by.as_deref()).collect();
    assert_eq!(
        names,
        [Some("max-inflight"), Some("relaxed:max-inflight"), Some("regions"), Some("max-inflight"), Some("health")]
    );
    facts.available = vec![false, false, true, false, false];
    assert!(decide(rich, &rich.weights(), &request_of(100), &facts, 1, &mut scratch).is_none(), "hard ones stay");
}

#[test]
fn rows_of_another_policy_are_not_repeated() {
    let policies = policies();
    let (gorgo, rich) = (policies.by_name("gorgo").unwrap(), policies.by_name("rich").unwrap());
    let mut scratch = DecisionScratch::default();
    let facts = plain(3);
    let decision = decide(gorgo, &gorgo.weights(), &request_of(1), &facts, 1, &mut scratch).unwrap();
    let rows = stored(gorgo, &facts, &decision);
    assert_eq!(repeat_decision(rich, &rich.weights().values, &rows, 1, &mut scratch), None);
    assert_eq!(repeat_decision(gorgo, &[1.0], &rows, 1, &mut scratch), None);
}

#[test]
fn draws_cover_the_whole_interval() {
    assert_eq!(unit_interval(0), 0.0);
    assert!(unit_interval(u64::MAX) < 1.0);
    // A crumb above the sum goes to the last row that has any probability.
    assert_eq!(draw(&[0.0, 1e-300, 0.0], &[0, 1, 2], 5), Some(1));
}

/// The same policies of built-in terms and spelled out as expressions.
const TWICE: &str = r#"
    [policy.built]
    unit = "raw"
    [[policy.built.term]]
    kind = "rtt"
    weight = 0.276
    [[policy.built.term]]
    kind = "prefill"
    weight = { rate = "prefill" }
    [[policy.built.term]]
    kind = "queue"
    weight = 0.5
    [[policy.built.term]]
    kind = "waiting"
    weight = -1
    unknown = 3
    [policy.built.constraint.max-inflight]
    max_requests = 20

    [policy.spelled]
    unit = "raw"
    [[policy.spelled.term]]
    name = "rtt"
    kind = "expression"
    unit = "ms"
    signal = "rtt_ms"
    weight = 0.276
    [[policy.spelled.term]]
    name = "prefill"
    kind = "expression"
    unit = "ms"
    signal = "(prompt_tokens - min(cached_tokens, prompt_tokens)) * prefill_ms_per_token"
    weight = 1
    [[policy.spelled.term]]
    name = "queue"
    kind = "expression"
    unit = "tokens"
    signal = "queued_uncached_tokens"
    weight = 0.5
    [[policy.spelled.term]]
    name = "waiting"
    kind = "expression"
    unit = "requests"
    signal = "engine_waiting"
    weight = -1
    unknown = 3
    [policy.spelled.constraint.expression]
    allow = "inflight < 20"
    violation = "(inflight + 1) / 20 - 1"
"#;

proptest! {
    #![proptest_config(fixed(500))]

    #[test]
    fn a_built_in_term_and_its_expression_agree_bit_for_bit(
        request in request(), facts in candidates(), seed in 0..1_u64 << 53,
    ) {
        let file = parse_toml(TWICE).unwrap();
        let Some(ConfigValue::Table(tables)) = file.get("policy").cloned() else { panic!() };
        let policies = build(&KindRegistry::built_in(), &tables, "built", &fleet(8)).policies.unwrap();
        let mut facts = facts;
        // The constraint that is built in counts the engine's own figure too, which has no name of its own here.
        for (running, sent) in facts.engine_running.iter_mut().zip(&mut facts.inflight_since_report) {
            (*running, *sent) = (None, 0);
        }
        let mut scratch = DecisionScratch::default();
        let mut decided = |name| {
            let policy = policies.by_name(name).unwrap();
            decide(policy, &policy.weights(), &request, &facts, seed, &mut scratch)
        };
        match (decided("built"), decided("spelled")) {
            (Some(built), Some(spelled)) => {
                let bits = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!(bits(&built.signals), bits(&spelled.signals));
                prop_assert_eq!(bits(&built.costs), bits(&spelled.costs));
                prop_assert_eq!(bits(&built.totals), bits(&spelled.totals));
                prop_assert_eq!(built.propensity.to_bits(), spelled.propensity.to_bits());
                prop_assert_eq!((built.replica, built.ties), (spelled.replica, spelled.ties));
                prop_assert_eq!(built.excluded, spelled.excluded);
            }
            (built, spelled) => prop_assert_eq!(built.is_some(), spelled.is_some()),
        }
    }
}
