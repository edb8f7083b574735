//! Policies that take over while requests run.

use super::*;
use crate::policy::PolicySet;

const TWO: &str = r#"
[[policy.one.term]]
kind = "inflight"
weight = { init = 1.0, min = 0.5, max = 2.0 }
[[policy.two.term]]
kind = "rtt"
weight = 1.0
"#;

fn policies(text: &str, default: &str) -> PolicySet {
    let Some(ConfigValue::Table(tables)) = parse_toml(text).unwrap().get("policy").cloned() else {
        panic!("no policies")
    };
    build(&KindRegistry::built_in(), &tables, default, &fleet(3)).policies.unwrap()
}

#[test]
fn a_policy_that_changed_takes_over_between_two_decisions_and_the_others_stay() {
    let router = probed(3, TWO, 10.0);
    let (one, two) = (id(&router, "one"), id(&router, "two"));
    let known = router.policies().list.len();
    assert!(
        router.set_weights(one, Arc::new(PolicyWeights { generation: crate::model::Generation(4), values: vec![1.7] }))
    );
    let prompt = unique(&router, 1, 2_000);
    let before = router
        .decide(&prompt, &DecisionContext { policy: one, id: DecisionId(1), seed: 1, at: UnixMicros(1), exclude: &[] })
        .unwrap();
    assert_eq!(before.record.policy, PolicyBuildId(one.0));

    assert!(router.stage_reload(policies(TWO, "gorgo")).unwrap().is_none(), "all is as it was");
    let changed = TWO.replace("kind = \"rtt\"", "kind = \"prefill\"");
    let succession = router.stage_reload(policies(&changed, "gorgo")).unwrap().unwrap();
    let added: Vec<_> =
        succession.new_policies().map(|(policy, weights)| (policy.id, weights.values.clone())).collect();
    assert_eq!(added, [(PolicyBuildId(u16::try_from(known).unwrap()), vec![1.0])]);
    assert_eq!(router.policies().get(two).unwrap().terms[0].kind, "rtt", "nothing has changed yet");
    assert!(router.apply_reload(succession, UnixMicros(2)).is_empty(), "nothing was being tuned");

    // Who asks for a policy by its place gets the new one; the row says which it was.
    let after = router
        .decide(&prompt, &DecisionContext { policy: two, id: DecisionId(2), seed: 2, at: UnixMicros(3), exclude: &[] })
        .unwrap();
    assert_eq!((after.record.policy, router.policies().get(two).unwrap().terms[0].kind), (added[0].0, "prefill"));
    assert_eq!(router.active_build(two), added[0].0, "rows of requests that are not routed name it, too");
    let kept = router
        .decide(&prompt, &DecisionContext { policy: one, id: DecisionId(3), seed: 3, at: UnixMicros(3), exclude: &[] })
        .unwrap();
    assert_eq!(
        (kept.record.policy, kept.record.generation.0),
        (PolicyBuildId(one.0), 4),
        "with the weights that were installed"
    );
    // What was reserved before comes back to zero after.
    for routed in [before, after, kept] {
        router.finish(routed.reservation, &prompt, &RequestOutcome::default(), UnixMicros(4));
    }
    assert!((0..3).all(|replica| router.load_totals(ReplicaId(replica)) == (0, 0, 0)));
}

#[test]
fn tuned_weights_go_on_and_a_running_trial_is_cut() {
    let text = r#"
[[policy.one.term]]
kind = "inflight"
weight = { init = 1.0, min = 0.5, max = 2.0, tune = true }
[policy.one.tune]
blocks = { requests = 8, washout_requests = 0, min_pairs = 2, max_pairs = 2 }
"#;
    let router = probed(3, text, 10.0);
    let one = id(&router, "one");
    let weights = PolicyWeights { generation: crate::model::Generation(9), values: vec![1.25] };
    assert!(router.set_weights(one, Arc::new(weights)));
    let changed = text.replace("max_pairs = 2", "max_pairs = 3");
    let succession = router.stage_reload(policies(&changed, "gorgo")).unwrap().unwrap();
    let begun: Vec<_> =
        succession.new_policies().map(|(_, weights)| (weights.generation.0, weights.values.clone())).collect();
    assert_eq!(begun, [(0, vec![1.25])], "a new policy begins to count anew, with what was found");
    router.apply_reload(succession, UnixMicros(2));
    assert_eq!(router.weights(one).unwrap().values, [1.25]);
    let other = changed.replace("max = 2.0", "max = 1.1");
    let succession = router.stage_reload(policies(&other, "gorgo")).unwrap().unwrap();
    let begun: Vec<_> = succession.new_policies().map(|(_, weights)| weights.values.clone()).collect();
    assert_eq!(begun, [vec![1.0]], "found within other bounds: it begins as configured");
}

#[test]
fn what_only_a_restart_can_change_is_refused() {
    let router = probed(3, TWO, 10.0);
    let refused = |text: &str, default: &str| router.stage_reload(policies(text, default)).unwrap_err();
    let renamed = refused(&TWO.replace("policy.two", "policy.three"), "gorgo");
    assert_eq!(renamed, "new policies: `three`; removed policies: `two`: restart gorgo to apply that");
    let other =
        "the default changed from `gorgo` to `one` (`gorgo ctl pin one` needs no restart): restart gorgo to apply that";
    assert_eq!(refused(TWO, "one"), other);
    let window = format!("{TWO}\n[policy.two.constraint.concentration]\nmax_share = 0.9\nwindow_secs = 17\n");
    assert_eq!(refused(&window, "gorgo"), "windows of share constraints changed: restart gorgo to apply that");
}
