//! The shipped plugins and the examples: all pass the kit, and each says what it should.

use std::path::PathBuf;

use gorgo_core::model::{Params, Value};
use gorgo_plugins::conform::{self, Verdict, invented};
use gorgo_plugins::host::{CohortColumns, Conduct, Host};

use crate::bench::{c, decided, policies, root, rust, signals, table, term, tested, text, with_terms};

#[test]
fn all_are_as_the_contract_says() {
    let folder = tempfile::tempdir().unwrap();
    let examples = root().join("gorgo-plugins/examples");
    let mut libraries: Vec<PathBuf> =
        ["scorer_prefer", "scorer_carbon", "scorer_price", "scorer_lmetric"].map(rust).into();
    libraries.extend(["constraint_residency", "objective_slo_misses", "scorer_hostile"].map(rust));
    libraries.push(c(&examples.join("scorer_c/queue.c"), folder.path(), &[]));
    libraries.push(c(&examples.join("scorer_cpp/wait.cpp"), folder.path(), &[]));
    for library in libraries {
        let mut began = Vec::new();
        let reports = conform::check(&library, None, |check| began.push(check.to_owned())).unwrap();
        assert_eq!(reports.len(), 1);
        for (check, verdict) in &reports[0].found {
            assert!(matches!(verdict, Verdict::Right(_)), "{}: {check}: {verdict:?}", library.display());
        }
        assert_eq!(began.len(), reports[0].found.len() + 1);
    }
}

#[test]
fn the_kit_finds_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = |how: &str| {
        let options = table(&[("how", text(how))]);
        let reports = conform::check(&rust("scorer_hostile"), Some(&options), |_| {}).unwrap();
        let wrong = reports[0].found.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Wrong(_)));
        wrong.map(|(check, _)| *check).collect::<Vec<_>>()
    };
    assert_eq!(wrong("slow"), ["no replica", "ties", "permuted rows", "time per call"]);
    assert!(wrong("panic").contains(&"one replica"));
    assert!(wrong("nan").contains(&"extreme values"));
    let library = crate::bench::hostile_c(folder.path(), &["-DVALUE=NAN"]);
    let reports = conform::check(&library, None, |_| {}).unwrap();
    let (check, verdict) = reports[0].found.iter().find(|(_, verdict)| matches!(verdict, Verdict::Wrong(_))).unwrap();
    assert_eq!((*check, verdict), ("one replica", &Verdict::Wrong("its number for row 0 is NaN".to_owned())));
}

#[test]
fn carbon_takes_the_intensity_of_the_region() {
    let grams = table(&[("us-ashburn", Value::Integer(380)), ("eu-frankfurt", Value::Integer(340))]);
    let options = ("options", table(&[("grams_per_kwh", grams.clone())]));
    let (policies, _) =
        policies(with_terms(vec![term(&rust("scorer_carbon"), &[options])]), Conduct::Enforced).unwrap();
    // Rows are ap-seoul (not named), eu-frankfurt, us-ashburn.
    assert_eq!(signals(&policies, &invented(3)), [475.0, 340.0, 380.0]);

    let energy =
        [("grams_per_kwh", grams), ("request_wh", Value::Integer(0)), ("wh_per_1000_tokens", Value::Integer(2))];
    let options = ("options", table(&energy));
    let (policies, _) =
        crate::bench::policies(with_terms(vec![term(&rust("scorer_carbon"), &[options])]), Conduct::Enforced).unwrap();
    let mut facts = invented(3);
    facts.cached_tokens = vec![0, 1000, 3000];
    // 3000, 2000 and no uncached tokens: 6, 4 and 0 Wh.
    assert_eq!(signals(&policies, &facts), [2.85, 1.36, 0.0]);
}

#[test]
fn price_counts_cached_tokens_apart_and_knows_what_it_does_not_know() {
    let prices = |named: &[(&str, f64)]| {
        table(&named.iter().map(|(name, price)| (*name, Value::Float(*price))).collect::<Vec<_>>())
    };
    let options = table(&[
        ("input", prices(&[("eu-frankfurt", 2000.0), ("replica-2", 1000.0)])),
        ("cached", prices(&[("eu-frankfurt", 500.0)])),
        ("output", prices(&[("eu-frankfurt", 10_000.0)])),
    ]);
    let library = term(&rust("scorer_price"), &[("options", options), ("unknown", Value::Integer(99))]);
    let (policies, _) = policies(with_terms(vec![library]), Conduct::Enforced).unwrap();
    let mut facts = invented(3);
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
            ("options", table(&[("deny", Value::List(vec![text("eu-frankfurt")]))])),
        ]),
    )]);
    let policy = table(&[("term", Value::List(vec![term(&rust("scorer_lmetric"), &[])])), ("constraint", constraint)]);
    let (policies, host) = policies(policy, Conduct::Enforced).unwrap();
    let mut facts = invented(3);
    facts.cached_tokens = vec![3000, 3000, 1000];
    facts.queued_uncached_tokens = vec![500, 0, 0];
    facts.inflight = vec![1, 0, 4];
    let decision = decided(&policies, &facts).unwrap();
    assert_eq!(decision.signals, [1000.0, 0.0, 10_000.0]);
    assert_eq!(decision.row, 0, "row 1 is the cheapest, but data may not go there");
    let rule = &tested(&policies).constraints[decision.excluded[0].constraint];
    assert_eq!((&*rule.name, rule.hard, decision.excluded[0].row), ("residency", true, 1));
    facts.available = vec![false, true, false];
    assert!(decided(&policies, &facts).is_none(), "never relaxed");
    let families: Vec<_> = host.loaded().iter().map(|using| (using.family, using.about.name.clone())).collect();
    assert_eq!(families, [("term", "lmetric".to_owned()), ("constraint", "residency".to_owned())]);
}

#[test]
fn an_objective_makes_a_number_of_a_cohort() {
    let host = Host::new(std::path::Path::new(""), None, Conduct::Enforced);
    let library = text(&rust("objective_slo_misses").display().to_string());
    let options = table(&[("ttft_ms", Value::Integer(500))]);
    let params = Params { values: vec![("library", library), ("options", options)] };
    let objective = host.objective(&params).unwrap();
    let column = vec![100.0, 500.0, 501.0, f64::NAN];
    let mut cohort = CohortColumns {
        ttft_ms: column.clone(),
        e2e_ms: column.clone(),
        itl_ms: column.clone(),
        prompt_tokens: column.clone(),
        completion_tokens: column,
        span_secs: 60.0,
        failed: 1,
    };
    assert_eq!(objective.measure(&cohort), Ok(0.5));
    assert_eq!(
        objective.measure(&CohortColumns::default()),
        Err("no request of the cohort is known to have begun".to_owned())
    );
    cohort.e2e_ms.pop();
    assert!(objective.measure(&cohort).is_err());
}
