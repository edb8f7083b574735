//! The shipped plugins and the examples: all pass the conformance kit, and each gives the right numbers.

use std::path::PathBuf;

use gorgo_plugins::conform::{self, CheckVerdict, candidates, request};
use gorgo_plugins::host::{PluginHost, QuarantineMode};
use gorgo_routing::model::{ConfigValue, ParamValues, RequestView};
use gorgo_routing::policy::{DecisionScratch, PluginLoader, decide};
use gorgo_routing::tune::RequestColumns;
use gorgo_routing::tune::contrast::{BlockPair, contrast};
use gorgo_routing::tune::sample::{SampleOutcome, TuningSample};

use crate::bench::{c, decided, policies, root, rust, signals, table, term, tested, text, with_terms};

#[test]
fn all_are_as_the_contract_says() {
    let folder = tempfile::tempdir().unwrap();
    let examples = root().join("gorgo-plugins/examples");
    let mut libraries: Vec<PathBuf> =
        ["scorer_prefer", "scorer_carbon", "scorer_price", "scorer_lmetric", "scorer_slo_headroom"].map(rust).into();
    libraries.extend(
        ["constraint_residency", "objective_slo_misses", "scorer_hostile", "scorer_predicted_latency"].map(rust),
    );
    libraries.push(c(&examples.join("scorer_c/queue.c"), folder.path(), &[]));
    libraries.push(c(&examples.join("scorer_cpp/wait.cpp"), folder.path(), &[]));
    libraries.push(c(&examples.join("objective_c/patience.c"), folder.path(), &[]));
    for library in libraries {
        let mut began = Vec::new();
        let reports = conform::check(&library, None, |check| began.push(check.to_owned())).unwrap();
        assert_eq!(reports.len(), 1);
        for (check, verdict) in &reports[0].results {
            assert!(matches!(verdict, CheckVerdict::Passed(_)), "{}: {check}: {verdict:?}", library.display());
        }
        assert_eq!(began.len(), reports[0].results.len() + 1);
    }
}

#[test]
fn the_kit_finds_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = |how: &str| {
        let options = table(&[("how", text(how))]);
        let reports = conform::check(&rust("scorer_hostile"), Some(&options), |_| {}).unwrap();
        let wrong = reports[0].results.iter().filter(|(_, verdict)| matches!(verdict, CheckVerdict::Failed(_)));
        wrong.map(|(check, _)| *check).collect::<Vec<_>>()
    };
    assert_eq!(wrong("slow"), ["no replica", "ties", "permuted rows", "time per call"]);
    assert!(wrong("panic").contains(&"one replica"));
    assert!(wrong("nan").contains(&"extreme values"));
    let library = crate::bench::hostile_c(folder.path(), &["-DVALUE=NAN"]);
    let reports = conform::check(&library, None, |_| {}).unwrap();
    let (check, verdict) =
        reports[0].results.iter().find(|(_, verdict)| matches!(verdict, CheckVerdict::Failed(_))).unwrap();
    assert_eq!(
        (*check, verdict),
        ("one replica", &CheckVerdict::Failed("its number for row 0 is NaN, not finite".to_owned()))
    );
}

#[test]
fn carbon_takes_the_intensity_of_the_region() {
    let grams = table(&[("us-ashburn", ConfigValue::Integer(380)), ("eu-frankfurt", ConfigValue::Integer(340))]);
    let options = ("options", table(&[("grams_per_kwh", grams.clone())]));
    let (policies, _) =
        policies(with_terms(vec![term(&rust("scorer_carbon"), &[options])]), QuarantineMode::Enforced).unwrap();
    // Rows are ap-seoul (not named), eu-frankfurt, us-ashburn.
    assert_eq!(signals(&policies, &candidates(3)), [475.0, 340.0, 380.0]);

    let energy = [
        ("grams_per_kwh", grams),
        ("request_wh", ConfigValue::Integer(0)),
        ("wh_per_1000_tokens", ConfigValue::Integer(2)),
    ];
    let options = ("options", table(&energy));
    let (policies, _) =
        crate::bench::policies(with_terms(vec![term(&rust("scorer_carbon"), &[options])]), QuarantineMode::Enforced)
            .unwrap();
    let mut facts = candidates(3);
    facts.cached_tokens = vec![0, 1000, 3000];
    // 3000, 2000 and no uncached tokens: 6, 4 and 0 Wh.
    assert_eq!(signals(&policies, &facts), [2.85, 1.36, 0.0]);
}

#[test]
fn price_counts_cached_tokens_apart_and_knows_what_it_does_not_know() {
    let prices = |named: &[(&str, f64)]| {
        table(&named.iter().map(|(name, price)| (*name, ConfigValue::Float(*price))).collect::<Vec<_>>())
    };
    let options = table(&[
        ("input", prices(&[("eu-frankfurt", 2000.0), ("replica-2", 1000.0)])),
        ("cached", prices(&[("eu-frankfurt", 500.0)])),
        ("output", prices(&[("eu-frankfurt", 10_000.0)])),
    ]);
    let library = term(&rust("scorer_price"), &[("options", options), ("unknown", ConfigValue::Integer(99))]);
    let (policies, _) = policies(with_terms(vec![library]), QuarantineMode::Enforced).unwrap();
    let mut facts = candidates(3);
    facts.cached_tokens = vec![0, 1000, 1000];
    // 2000 × 2000 + 1000 × 500 + 256 × 10,000, and 3000 × 1000, per million.
    assert_eq!(signals(&policies, &facts), [99.0, 7.06, 3.0]);
}

#[test]
fn lmetric_multiplies_and_residency_excludes() {
    let constraint = table(&[(
        "plugin",
        table(&[
            ("library", text(&rust("constraint_residency").display().to_string())),
            ("options", table(&[("deny", ConfigValue::List(vec![text("eu-frankfurt")]))])),
        ]),
    )]);
    let policy =
        table(&[("term", ConfigValue::List(vec![term(&rust("scorer_lmetric"), &[])])), ("constraint", constraint)]);
    let (policies, host) = policies(policy, QuarantineMode::Enforced).unwrap();
    let mut facts = candidates(3);
    facts.cached_tokens = vec![3000, 3000, 1000];
    facts.queued_uncached_tokens = vec![500, 0, 0];
    facts.inflight = vec![1, 0, 4];
    let decision = decided(&policies, &facts).unwrap();
    assert_eq!(decision.signals, [1000.0, 0.0, 10_000.0]);
    assert_eq!(decision.row, 0, "row 1 is the cheapest, but data may not go there");
    let rule = &tested(&policies).constraints[decision.excluded[0].constraint_index];
    assert_eq!((&*rule.name, rule.hard, decision.excluded[0].row), ("residency", true, 1));
    facts.available = vec![false, true, false];
    assert!(decided(&policies, &facts).is_none(), "never relaxed");
    let families: Vec<_> = host.loaded().iter().map(|using| (using.family, using.about.name.clone())).collect();
    assert_eq!(families, [("term", "lmetric".to_owned()), ("constraint", "residency".to_owned())]);
}

#[test]
fn tune_an_objective_makes_a_number_of_an_arms_requests() {
    let host = PluginHost::new(std::path::Path::new(""), None, QuarantineMode::Enforced);
    let library = text(&rust("objective_slo_misses").display().to_string());
    let options = table(&[("ttft_ms", ConfigValue::Integer(500))]);
    let params = ParamValues { values: vec![("library", library), ("options", options)] };
    let loaded = host.objective(&params).unwrap();
    let objective = loaded.objective.as_request_objective().unwrap();
    let column = vec![100.0, 500.0, 501.0, f64::NAN];
    let cohort = RequestColumns {
        ttft_ms: column.clone(),
        e2e_ms: column.clone(),
        itl_ms: column.clone(),
        prompt_tokens: column.clone(),
        completion_tokens: column,
        span_secs: f64::NAN,
        failed: 1,
    };
    assert_eq!(objective.measure(&cohort), Some(0.5), "one is late and one failed, of four that are known");
    // No request at all: no number, and after five of those in a row the plugin is not called any more.
    for _ in 0..5 {
        assert_eq!(objective.measure(&RequestColumns::default()), None);
    }
    let cause = "the cohort has neither a request with a known TTFT nor a failed one";
    let news = format!("plugin slo-misses is quarantined: 5 of 100 calls failed or were too slow; the last: {cause}");
    assert_eq!(host.take_messages(), [news]);
    assert_eq!(objective.measure(&cohort), None, "quarantined");
    let counts = host.counts();
    assert_eq!((counts[0].calls, counts[0].failures, counts[0].quarantined), (6, 5, true));
    assert_eq!(host.loaded()[0].family, "objective");
    assert_eq!(loaded.sha256, host.loaded()[0].sha256);
}

/// A policy that is tuned to have few requests over 500 ms.
fn tuned(options: ConfigValue) -> ConfigValue {
    let weight = table(&[
        ("init", ConfigValue::Float(0.2)),
        ("min", ConfigValue::Float(0.05)),
        ("max", ConfigValue::Float(2.0)),
        ("tune", ConfigValue::Bool(true)),
    ]);
    let objective = table(&[
        ("kind", text("plugin")),
        ("library", text(&rust("objective_slo_misses").display().to_string())),
        ("options", options),
    ]);
    table(&[
        ("term", ConfigValue::List(vec![table(&[("kind", text("inflight")), ("weight", weight)])])),
        ("tune", table(&[("objective", objective)])),
    ])
}

#[test]
fn tune_a_policy_is_tuned_towards_what_a_plugin_measures() {
    let (policies, host) =
        policies(tuned(table(&[("ttft_ms", ConfigValue::Integer(500))])), QuarantineMode::Enforced).unwrap();
    let plan = tested(&policies).tune.as_ref().unwrap();
    assert_eq!((plan.objective_kind, plan.least_samples()), ("plugin", 20));
    assert_eq!(plan.objective_sha256.as_ref(), Some(&host.loaded()[0].sha256));
    let sample = |ttft_ms: f64| TuningSample {
        ttft_ms: Some(ttft_ms),
        e2e_ms: 900.0,
        itl_ms: None,
        prompt_tokens: None,
        completion_tokens: None,
        replica: 0,
        size: 0.0,
        fate: SampleOutcome::Served,
    };
    // Of the incumbent's requests one in four is late, of the candidate's one in eight or two.
    let block = |late: usize| (0..16).map(|place| sample(if place < late { 700.0 } else { 100.0 })).collect();
    let pairs: Vec<BlockPair> =
        [1, 2, 2, 3].map(|late| BlockPair { incumbent: block(4), candidate: block(late) }).into();
    let seen = contrast(&*plan.objective, &pairs, 3).unwrap();
    assert_eq!((seen.incumbent, seen.candidate, seen.difference), (0.25, 0.125, -0.125));
    // The mean of four shares that vary by 1/16: their standard deviation over the root of four.
    let expected = (2.0_f64 / 3.0).sqrt() / 16.0 / 2.0;
    assert!((seen.error - expected).abs() < 1e-12, "{} and {expected}", seen.error);

    let wrong = crate::bench::policies(tuned(table(&[("ttft", ConfigValue::Integer(5))])), QuarantineMode::Enforced)
        .unwrap_err();
    assert_eq!(wrong, "policy.tested.tune.objective: `options.ttft` is unknown; known: ttft_ms");
}

#[test]
fn slo_headroom_is_how_late_the_first_token_would_be() {
    let judged = |options: &[(&str, ConfigValue)], slo_ttft_ms: Option<f64>| {
        let library =
            term(&rust("scorer_slo_headroom"), &[("options", table(options)), ("unknown", ConfigValue::Integer(77))]);
        let (policies, _) = policies(with_terms(vec![library]), QuarantineMode::Enforced).unwrap();
        let mut facts = candidates(3);
        facts.rtt_ms = vec![Some(20.0), Some(200.0), None];
        facts.intercept_ms = vec![Some(10.0); 3];
        facts.cached_tokens = vec![1000, 3000, 0];
        facts.queued_uncached_tokens = vec![500, 0, 0];
        facts.prefill_ms_per_token = vec![Some(0.1); 3];
        facts.queue_ms_per_token = vec![Some(0.02); 3];
        let policy = tested(&policies);
        let view = RequestView { slo_ttft_ms, ..request() };
        decide(policy, &policy.weights(), &view, &facts, 1, &mut DecisionScratch::default()).unwrap()
    };
    // Predicted: 20 + 10 + 2000 × 0.1 + 500 × 0.02 = 240 ms, 210 ms, and unknown.
    assert_eq!(judged(&[("margin", ConfigValue::Integer(0))], Some(225.0)).signals, [15.0, 0.0, 77.0]);
    assert_eq!(judged(&[], Some(200.0)).signals, [60.0, 30.0, 77.0], "with the margin of a tenth");
    let silent = judged(&[], None);
    assert_eq!((silent.signals, silent.void_terms), (vec![0.0; 3], vec![0]), "nothing was asked for");
    assert_eq!(judged(&[("default_ms", ConfigValue::Integer(200))], None).signals, [60.0, 30.0, 77.0]);
}

#[test]
fn a_region_that_nobody_is_in_is_refused_and_there_may_be_two_plugins() {
    let residency = |deny: &str| {
        table(&[
            ("kind", text("plugin")),
            ("library", text(&rust("constraint_residency").display().to_string())),
            ("options", table(&[("deny", ConfigValue::List(vec![text(deny)]))])),
        ])
    };
    let of = |constraints: &[(&str, ConfigValue)]| {
        let terms = ConfigValue::List(vec![term(&rust("scorer_lmetric"), &[])]);
        policies(table(&[("term", terms), ("constraint", table(constraints))]), QuarantineMode::Enforced)
    };
    let wrong = of(&[("home", residency("eu-frankfort"))]).unwrap_err();
    let expected = "policy.tested.constraint.home: the plugin residency refuses: no replica is in region \
                    `eu-frankfort`; regions of the fleet: ap-seoul, eu-frankfurt, us-ashburn";
    assert_eq!(wrong, expected);
    let (policies, _) = of(&[("law", residency("eu-frankfurt")), ("contract", residency("ap-seoul"))]).unwrap();
    let rules: Vec<&str> = tested(&policies).constraints.iter().map(|rule| &*rule.name).collect();
    assert_eq!(rules, ["health", "law", "contract"]);
    assert_eq!(decided(&policies, &candidates(3)).unwrap().row, 2);
    assert!(tested(&policies).constraints[1].plugin_sha256.is_some());
}
