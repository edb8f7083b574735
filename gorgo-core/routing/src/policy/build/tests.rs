//! Fault reports as people read them, and the policies that come of good tables.

use super::*;
use crate::config::parse_toml;
use crate::model::arbitrary::fleet;
use crate::model::{PolicyBuildId, Unit};
use crate::policy::UnknownFallback;

/// The `[policy.NAME]` tables of a TOML text.
fn tables(text: &str) -> Vec<(String, ConfigValue)> {
    let file = parse_toml(text).unwrap();
    let Some(ConfigValue::Table(policies)) = file.get("policy").cloned() else { panic!("no [policy.NAME]") };
    policies
}

fn check(text: &str, default: &str) -> CheckedPolicies {
    build(&KindRegistry::built_in(), &tables(text), default, &fleet(3))
}

/// One line per finding.
fn report(text: &str) -> String {
    let lines: Vec<String> = check(text, "gorgo")
        .faults
        .list
        .iter()
        .map(|fault| {
            let severity = if fault.severity == Severity::Warning { "warning: " } else { "" };
            format!("{severity}{}: {}", fault.path, fault.message)
        })
        .collect();
    lines.join("\n")
}

#[test]
fn every_preset_is_sound_and_can_be_the_default() {
    for known in PRESETS {
        // Engines whose batch is known: a gate has nothing to warn of.
        let known_batch = |replica| Replica { decode_batch: Some(20), ..replica };
        let fleet: Vec<Replica> = fleet(3).into_iter().map(known_batch).collect();
        let checked = build(&KindRegistry::built_in(), &[], known.name, &fleet);
        assert_eq!(checked.faults, ConfigFaults::default(), "{}", known.name);
        let policies = checked.policies.unwrap();
        assert_eq!(&*policies.get(policies.default).unwrap().name, known.name);
        assert!(known.text.starts_with('#'), "{} says what it is", known.name);
    }
}

#[test]
fn the_baselines_of_the_study_are_there() {
    let checked = build(&KindRegistry::built_in(), &[], "gorgo", &fleet(3));
    let policies = checked.policies.unwrap();
    for name in [
        "random",
        "round-robin",
        "least-request",
        "least-load",
        "least-latency",
        "least-kv-cache",
        "power-of-two",
        "prefix-cache",
        "session-affinity",
        "simple-session-affinity",
        "throughput",
        "pack-load",
        "gorgo",
    ] {
        assert!(policies.by_name(name).is_some(), "{name}");
    }
    let gorgo = policies.by_name("gorgo").unwrap();
    assert_eq!(gorgo.weights().values, [0.276, 1.0, 0.5]);
    let units: Vec<_> = gorgo.terms.iter().map(|term| (&*term.name, term.unit)).collect();
    assert_eq!(units, [("rtt", Unit::Millis), ("prefill", Unit::Tokens), ("queue", Unit::Tokens)]);
}

#[test]
fn all_faults_come_at_once_each_with_its_path() {
    insta::assert_snapshot!(report(
        r#"
        [policy.gorgo]
        unti = "ms"
        unit = "seconds"
        cost = "product"
        picker = "best"
        exploration = 1.5
        shadow = ["least-laod", "gorgo", "random", "random", 3]
        [[policy.gorgo.term]]
        kind = "rtt"
        wieght = { init = 1.0 }
        statistic = "p99"
        [[policy.gorgo.term]]
        kind = "rtt"
        weight = { init = 9.0, min = 0.5, max = 2.0, tuned = true }
        [[policy.gorgo.term]]
        kind = "latncy"
        [[policy.gorgo.term]]
        weight = 1.0
        [[policy.gorgo.term]]
        kind = "prefill"
        name = "long"
        weight = nan
        unknown = "best"
        [[policy.gorgo.term]]
        kind = "queue"
        weight = { init = 0.0, min = 0.0, max = 1.0, tune = true, rate = "decode" }
        [[policy.gorgo.term]]
        kind = "constant"
        values = { replica-7 = 1.0 }
        [policy.gorgo.constraint.concentration]
        max_share = 1.4
        [policy.gorgo.constraint.max-inflight]
        max_requests = 2.5
        [policy.gorgo.constraint.budget]
        [policy.gorgo.constraint.regions]
        allow = ["east", "moon"]
        [policy.gorgo.tune]
        enabled = true
        "#
    ), @r#"
    policy.gorgo.unti: unknown key; did you mean `unit`?
    policy.gorgo.unit: unknown unit "seconds"; known: ms, raw
    policy.gorgo.exploration: 1.5 is above 1.0
    policy.gorgo.shadow[0]: unknown policy "least-laod"; did you mean `least-load`?
    policy.gorgo.shadow[1]: a policy cannot be its own shadow
    policy.gorgo.shadow[3]: named twice
    policy.gorgo.shadow[4]: expected a string, found a whole number
    policy.gorgo.term[0].wieght: unknown key; did you mean `weight`?
    policy.gorgo.term[0].statistic: unknown value "p99"; did you mean `p95`?
    policy.gorgo.term[1].weight.tuned: unknown key; did you mean `tune`?
    policy.gorgo.term[1].weight.init: 9.0 is above `max`, 2.0
    policy.gorgo.term[1].kind: a term "rtt" is defined above; give one of them another `name`
    policy.gorgo.term[2].kind: unknown term "latncy"; did you mean `latency`?
    policy.gorgo.term[3]: `kind` is missing; known: rtt, network, prefill, queue, inflight, running, waiting, kv-usage, kv-tokens, throughput, latency, backlog, compute, stall, answer, tail-start, drain, kv-pressure, min-max, miss-share, batch-work, constant, hash, turn, expression
    policy.gorgo.term[4].unknown: expected "worst" or a number in the term's unit, at most 1e12
    policy.gorgo.term[4].weight: not a number; allowed: -1e9 to 1e9
    policy.gorgo.term[5].weight.rate: the rate `decode` is ms per unit of requests, but the signal is in tokens
    policy.gorgo.term[5].weight.min: 0.0 is not above 0: a weight that is tuned is searched in logarithms
    policy.gorgo.term[6]: `unit` of the signal is missing; known: ms, tokens, requests, share, tokens/s, 1
    policy.gorgo.term[6]: `values.replica-7`: no replica of that name
    policy.gorgo.constraint.concentration.max_share: 1.4 is above 1.0
    policy.gorgo.constraint.max-inflight.max_requests: expected a whole number, found a number
    policy.gorgo.constraint.budget: unknown constraint; known: health, concentration, max-inflight, max-queued-tokens, min-share, regions, imbalance, expression, bounded-load, cache-affinity
    policy.gorgo.constraint.regions.allow: no enabled replica is in region "moon"; known: east, north, west
    policy.gorgo.cost: unknown cost "product"; known: sum, tail-aware
    policy.gorgo.picker: unknown picker "best"; known: lowest, softmin, softmin-range, power-of-two, random
    "#);
}

#[test]
fn weights_say_what_is_wrong_with_them() {
    insta::assert_snapshot!(report(
        r#"
        [policy.gorgo]
        unit = "raw"
        [[policy.gorgo.term]]
        kind = "queue"
        weight = "heavy"
        [[policy.gorgo.term]]
        kind = "rtt"
        weight = { ms_per_unit = 1.0, init = 2.0 }
        [[policy.gorgo.term]]
        kind = "prefill"
        weight = { init = 1.0, min = 2.0, max = 1.0 }
        [[policy.gorgo.term]]
        kind = "running"
        weight = { rate = "prefil", tune = true }
        [[policy.gorgo.term]]
        kind = "waiting"
        weight = { rate = "decode", ms_per_unit = 3.0 }
        [[policy.gorgo.term]]
        kind = "kv-tokens"
        weight = inf
        [[policy.gorgo.term]]
        kind = "kv-usage"
        weight = { init = 0.1, min = 0.2, tune = "yes" }
        "#
    ), @r#"
    policy.gorgo.term[0].weight: expected a number or a table, found a string
    policy.gorgo.term[1].weight.ms_per_unit: give `init` or `ms_per_unit`, not both
    policy.gorgo.term[1].weight.ms_per_unit: the signal is already in ms; use `init`
    policy.gorgo.term[2].weight.min: 2.0 is above `max`, 1.0
    policy.gorgo.term[3].weight.rate: unknown rate "prefil"; did you mean `prefill`?
    policy.gorgo.term[3].weight.tune: a weight that is tuned needs `min`
    policy.gorgo.term[3].weight.tune: a weight that is tuned needs `max`
    policy.gorgo.term[4].weight.ms_per_unit: give `rate` or `ms_per_unit`, not both
    policy.gorgo.term[5].weight: inf is above 1e9
    policy.gorgo.term[6].weight.tune: expected true or false, found a string
    policy.gorgo.term[6].weight.init: 0.1 is below `min`, 0.2
    "#);
}

#[test]
fn the_round_trip_is_charged_once() {
    insta::assert_snapshot!(report(
        r#"
        [policy.gorgo]
        unit = "ms"
        [[policy.gorgo.term]]
        kind = "rtt"
        name = "distance"
        [[policy.gorgo.term]]
        kind = "network"
        [[policy.gorgo.term]]
        kind = "backlog"
        "#
    ));
}

#[test]
fn a_policy_in_ms_wants_every_term_in_ms() {
    insta::assert_snapshot!(report(
        r#"
        [policy.gorgo]
        unit = "ms"
        [[policy.gorgo.term]]
        kind = "rtt"
        [[policy.gorgo.term]]
        kind = "prefill"
        [[policy.gorgo.term]]
        kind = "queue"
        weight = { rate = "queue", init = 1.0 }
        [[policy.gorgo.term]]
        kind = "running"
        weight = { ms_per_unit = 3.0 }
        [[policy.gorgo.term]]
        kind = "kv-usage"
        "#
    ), @r#"
    policy.gorgo.term[1].weight: the signal is in tokens, the policy in ms: the weight needs `rate = "prefill"` or `rate = "queue"`, or to be stated as `{ ms_per_unit = … }`
    policy.gorgo.term[4].weight: the signal is in share, the policy in ms: the weight needs to be stated as `{ ms_per_unit = … }`
    "#);
}

#[test]
fn what_is_legal_but_foolish_is_a_warning() {
    insta::assert_snapshot!(report(
        r#"
        [[policy.mine.term]]
        kind = "rtt"
        [[policy.mine.term]]
        kind = "prefill"
        [[policy.mine.term]]
        kind = "queue"
        weight = 0
        "#
    ), @r#"
    warning: policy.mine: terms of different units are added up (rtt in ms, prefill in tokens, queue in tokens); set unit = "raw" if that is intended, or unit = "ms" and give the others rates
    warning: policy.mine: no cost here rises with load (the queue term is missing or has weight 0) and no constraint limits it: one replica may get everything
    "#);
    assert_eq!(
        report("[[policy.mine.term]]\nkind = \"rtt\"\n[policy.mine.constraint.concentration]\nmax_share = 0.67"),
        ""
    );
    assert_eq!(report("[policy.mine]\npicker = \"random\""), "");
}

#[test]
fn shapes_are_checked_too() {
    insta::assert_snapshot!(report(
        r#"
        [policy]
        flat = 3
        [policy.empty]
        [policy.shapes]
        picker = { temperature = 3.0 }
        exploration = "much"
        shadow = "random"
        term = 3
        constraint = []
        unit = 1
        [policy.softmin]
        picker = { kind = "softmin" }
        term = [3, { kind = "constant" }, { kind = "constant", unit = "token", name = "" }]
        constraint = { health = true }
        "#
    ), @r#"
    policy.flat: expected a table, found a whole number
    policy.empty: there is no [[…term]], but the picker reads costs; add a term, or set `picker = "random"`
    policy.shapes.unit: expected a string, found a whole number
    policy.shapes.exploration: expected a number, found a string
    policy.shapes.shadow: expected an array of strings, found a string
    policy.shapes.term: expected [[…term]] tables, found a whole number
    policy.shapes.constraint: expected a table, found an array
    policy.shapes.picker: `kind` is missing; known: lowest, softmin, softmin-range, power-of-two, random
    policy.softmin.term[0]: expected a table, found a whole number
    policy.softmin.term[1]: `unit` of the signal is missing; known: ms, tokens, requests, share, tokens/s, 1
    policy.softmin.term[2].unit: unknown unit; did you mean `tokens`?
    policy.softmin.term[2].name: expected a string that is not empty
    policy.softmin.constraint.health: expected a table, found true or false
    policy.softmin.picker: `temperature` is missing
    "#);
}

#[test]
fn an_unknown_default_is_a_fault() {
    let checked = build(&KindRegistry::built_in(), &[], "grogo", &fleet(3));
    assert!(checked.policies.is_none());
    assert_eq!(checked.faults.list[0].path, "default_policy");
    assert_eq!(checked.faults.list[0].message, "unknown policy \"grogo\"; did you mean `gorgo`?");
}

#[test]
fn a_table_of_a_presets_name_wins() {
    let checked = check("[policy.random]\n[[policy.random.term]]\nkind = \"turn\"", "random");
    let policies = checked.policies.unwrap();
    assert_eq!(policies.list.iter().filter(|policy| &*policy.name == "random").count(), 1);
    assert_eq!(policies.by_name("random").unwrap().terms[0].kind, "turn");
    assert_eq!(policies.by_name("random").unwrap().id, PolicyBuildId(0));
}

#[test]
fn a_full_policy_comes_out_as_written() {
    let checked = check(
        r#"
        [policy.mine]
        unit = "ms"
        cost = { kind = "sum" }
        picker = { kind = "softmin", temperature = 30.0 }
        exploration = 0.01
        shadow = ["least-load", "other"]
        [[policy.mine.term]]
        kind = "rtt"
        weight = { init = 0.5, min = 0.05, max = 2.0, tune = true }
        unknown = 500
        [[policy.mine.term]]
        kind = "prefill"
        weight = { rate = "prefill", init = 1.0 }
        [[policy.mine.term]]
        name = "price"
        kind = "constant"
        unit = "ms"
        values = { replica-1 = 12 }
        [policy.mine.constraint.concentration]
        max_share = 0.67
        window_secs = 60
        [policy.mine.constraint.regions]
        allow = ["east", "west"]
        [[policy.other.term]]
        kind = "queue"
        [policy.other.constraint.concentration]
        max_ratio = 2.0
        window_secs = 60
        [policy.other.constraint.min-share]
        min_share = 0.05
        "#,
        "mine",
    );
    assert_eq!(checked.faults, ConfigFaults::default());
    let policies = checked.policies.unwrap();
    let mine = policies.by_name("mine").unwrap();
    assert_eq!(mine.unit, PolicyUnit::Millis);
    assert_eq!(mine.terms[0].unknown, UnknownFallback::Value(500.0));
    assert!(mine.terms[0].weight.tune && mine.terms[0].weight.max == 2.0);
    assert_eq!(mine.terms[1].unit, Unit::Millis, "a rate makes ms of tokens");
    assert_eq!((&*mine.terms[2].name, mine.terms[2].kind), ("price", "constant"));
    assert_eq!(
        mine.shadows.iter().map(|id| &*policies.get(*id).unwrap().name).collect::<Vec<_>>(),
        ["least-load", "other"]
    );
    let rules: Vec<_> = mine.constraints.iter().map(|rule| &*rule.name).collect();
    assert_eq!(rules, ["health", "regions", "concentration"], "hard ones first");
    assert!(mine.needs.contains(RequiredFacts::RTT.union(RequiredFacts::PREFIX).union(RequiredFacts::RATES)));
    assert!(!mine.needs.contains(RequiredFacts::LATENCY));
    assert_eq!(policies.windows.len(), 2, "equal windows are one");
    let other = policies.by_name("other").unwrap();
    assert_eq!(other.constraints[1].window, mine.constraints[2].window);
    assert_eq!(mine.sha256.len(), 64);
    assert_ne!(mine.sha256, other.sha256);
}

#[test]
fn the_digest_is_of_the_content() {
    let digest_of = |text: &str| check(text, "mine").policies.unwrap().by_name("mine").unwrap().sha256.clone();
    let one = digest_of("[policy.mine]\nexploration = 0\npicker = \"random\"");
    assert_eq!(one, digest_of("[policy.mine]\npicker = \"random\"\nexploration = 0.0"));
    assert_ne!(one, digest_of("[policy.mine]\npicker = \"random\"\nexploration = 0.1"));
}

#[test]
fn faults_in_expressions_point_into_the_text() {
    insta::assert_snapshot!(report(
        r#"
        [policy.gorgo]
        unit = "ms"
        [[policy.gorgo.term]]
        name = "one"
        kind = "expression"
        unit = "ms"
        signal = "rtt_sm + 1"
        [[policy.gorgo.term]]
        name = "two"
        kind = "expression"
        unit = "ms"
        signal = "1 + queued_tokens"
        [[policy.gorgo.term]]
        name = "three"
        kind = "expression"
        signal = "rtt_ms"
        [[policy.gorgo.term]]
        name = "four"
        kind = "expression"
        unit = "ms"
        [[policy.gorgo.term]]
        name = "five"
        kind = "expression"
        unit = "ms"
        signal = 3
        [[policy.gorgo.term]]
        name = "six"
        kind = "expression"
        unit = "requests"
        signal = "engine_waiting"
        [policy.gorgo.constraint.expression]
        allow = "kv_used_share < 0.9 && (inflight < 3"
        "#
    ));
}

#[test]
fn an_expression_without_load_is_no_counterweight() {
    let of = |signal: &str| {
        report(&format!("[[policy.mine.term]]\nkind = \"expression\"\nunit = \"ms\"\nsignal = \"{signal}\""))
    };
    assert!(of("rtt_ms").contains("no cost here rises with load"));
    assert_eq!(of("rtt_ms + 0.01 * queued_tokens"), "");
}

#[test]
fn only_an_expression_that_may_be_relaxed_is_relaxed() {
    let hard = |relax: &str| {
        let text = format!(
            "[[policy.mine.term]]\nkind = \"queue\"\n[policy.mine.constraint.expression]\n\
             allow = \"rtt_ms < 300\"\n{relax}"
        );
        let checked = check(&text, "mine");
        assert_eq!(checked.faults, ConfigFaults::default());
        let policies = checked.policies.unwrap();
        let mine = policies.by_name("mine").unwrap();
        assert!(mine.needs.contains(RequiredFacts::RTT));
        mine.constraints.iter().find(|rule| &*rule.name == "expression").unwrap().hard
    };
    assert!(!hard(""));
    assert!(!hard("relax = true"));
    assert!(hard("relax = false"));
}

#[test]
fn tune_tables_are_checked_like_the_rest() {
    let table = |tune: &str, weight: &str| {
        format!(
            "[policy.mine]\nunit = \"raw\"\n[[policy.mine.term]]\nkind = \"queue\"\nweight = {weight}\n[policy.mine.tune]\n{tune}"
        )
    };
    let tuned = "{ init = 0.5, min = 0.05, max = 1.0, tune = true }";
    insta::assert_snapshot!(report(&table(
        r#"
        enabeld = true
        objective = { kind = "ttft-e2e", alpha = 1.5, beta = 1 }
        optimizer = "simplex"
        assignment = "switch"
        blocks = { requests = 8, washout_requests = 8, min_pairs = 20 }
        guard = { max_error_share = 2.0 }
        seed = -1
        "#,
        tuned
    )), @r#"
    policy.mine.tune.enabeld: unknown key; did you mean `enabled`?
    policy.mine.tune.assignment: unknown assignment "switch"; did you mean `switchback`?
    policy.mine.tune.blocks.washout_requests: 8 leaves nothing of the 8 requests of a block
    policy.mine.tune.blocks.min_pairs: 20 is above `max_pairs`, 16
    policy.mine.tune.guard.max_error_share: 2.0 is above 1.0
    policy.mine.tune.seed: -1 is below 0
    policy.mine.tune.objective.beta: unknown key; did you mean `eta`?
    policy.mine.tune.objective.alpha: 1.5 is above 1.0
    policy.mine.tune.optimizer: unknown optimizer "simplex"; known: es-1plus1, cma-es, coordinate, random-search, frozen
    "#);
    insta::assert_snapshot!(report(&table("", "1.0")), @"policy.mine.tune: no term of this policy has a weight with `tune = true`");
    insta::assert_snapshot!(report(&table("optimizer = { kind = \"es-1plus1\", sigma = 0.01 }", tuned)), @"policy.mine.tune.optimizer: `sigma_min` 0.02 is above `sigma`, 0.01");
    insta::assert_snapshot!(report(&table("objective = \"ttft-p99\"\nblocks = { max_pairs = 3, min_pairs = 2 }", tuned)), @"policy.mine.tune.blocks: ttft-p99 needs 100 requests per arm, and the blocks give at most 96");
    insta::assert_snapshot!(report(&table("assignment = \"request\"", tuned)), @r#"warning: policy.mine.tune.assignment: if the arms share queues and caches, a comparison by request is biased: the more selfish arm looks better than it is; prefer "switchback""#);
    assert_eq!(report(&table("", tuned)), "");
    assert_eq!(report(&table("optimizer = \"frozen\"", "1.0")), "");
}

#[test]
fn tune_plans_come_out_as_written() {
    let plan_of = |name: &str| {
        check("[policy.other]\npicker = \"random\"", name).policies.unwrap().by_name(name).unwrap().tune.clone()
    };
    assert!(plan_of("gorgo").is_none());
    let tuned = plan_of("gorgo-tuned").unwrap();
    assert_eq!((tuned.objective_kind, tuned.optimizer.kind), ("ttft-e2e", "es-1plus1"));
    assert_eq!(tuned.space.dimensions.iter().map(|dimension| dimension.slot).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(tuned.blocks, crate::tune::BlockSettings::default());
    assert_eq!(tuned.guard, crate::tune::GuardLimits::default());
    assert_eq!(plan_of("gorgo-es").unwrap().optimizer_params.text("mode"), Some("reference"));
}

#[test]
fn a_gate_says_where_it_does_nothing() {
    let warned = |engine: &str, batch: Option<u32>, table: &str| {
        let mut fleet = fleet(2);
        for replica in &mut fleet {
            replica.engine = crate::model::EngineKind::parse(engine).unwrap();
            replica.decode_batch = batch;
        }
        let text = format!("[policy.mine]\n[[policy.mine.term]]\nkind = \"rtt\"\n[policy.mine.admission]\n{table}");
        let checked = build(&KindRegistry::built_in(), &tables(&text), "mine", &fleet);
        assert!(checked.policies.is_some());
        checked.faults.list.iter().map(|fault| fault.message.clone()).collect::<Vec<_>>()
    };
    let said = warned("vllm", None, "");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("no gate at ") && said[0].contains("set `decode_batch` there"), "{said:?}");
    for quiet in [
        warned("vllm", Some(64), ""),
        warned("vllm", None, "max_in_flight = 30"),
        warned("sglang", None, ""),
        warned("simulated", None, ""),
    ] {
        assert_eq!(quiet, [""; 0]);
    }
}
