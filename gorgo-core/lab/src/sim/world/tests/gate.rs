//! Effect of the admission gate on traffic beyond what the fleet serves well; below that, it has none.

use super::*;
use crate::trace::RecordedTrace;
use crate::trace::generate::{GeneratedProfile, generate};
use gorgo_routing::config::parse_toml;
use gorgo_routing::model::ConfigValue;
use gorgo_routing::policy::preset;

/// With and without the gate; `bare` is the preset without.
const POLICIES: &str = r#"
[policy.smg]
term = [{ kind = "inflight" }]
constraint = { cache-affinity = { min_match = 0.5, max_difference = 32, max_ratio = 1.1 } }
[policy.smg-gated]
term = [{ kind = "inflight" }]
constraint = { cache-affinity = { min_match = 0.5, max_difference = 32, max_ratio = 1.1 } }
admission = {}
[policy.smg-short]
term = [{ kind = "inflight" }]
constraint = { cache-affinity = { min_match = 0.5, max_difference = 32, max_ratio = 1.1 } }
admission = { max_queued = 2 }
"#;

/// Traffic like that of Apr 7, at this many requests per second.
fn traffic(rate: f64, minutes: f64) -> SimulatedWorkload {
    let profile = GeneratedProfile::find("art-chat-apr7").unwrap();
    let mut workload = profile.workload.clone();
    workload.scale_rate(rate / profile.rate());
    let trace: RecordedTrace = generate(&workload, 11, minutes);
    SimulatedWorkload::new(shape(trace, &ShapeOptions { max_output_tokens: Some(128), ..ShapeOptions::default() }))
}

fn run_of(workload: &SimulatedWorkload, policy: &str, scenario: &Scenario) -> SimulationResult {
    let members = fleet();
    let file = parse_toml(POLICIES).unwrap();
    let Some(ConfigValue::Table(mut tables)) = file.get("policy").cloned() else { panic!("no policies") };
    let ConfigValue::Table(mut bare) = preset("predicted-latency").unwrap() else { panic!("no table") };
    bare.retain(|(key, _)| key != "admission");
    tables.push(("bare".to_owned(), ConfigValue::Table(bare)));
    let replicas: Vec<Replica> = members.iter().map(|member| member.replica.clone()).collect();
    let policies = build(&KindRegistry::built_in(), &tables, policy, &replicas).policies.unwrap();
    let setup = SimulationSetup { max_in_flight: None, ..setup(workload, &members, scenario) };
    let id = policies.default;
    simulate(&setup, DecisionMaker::Policy(policies, id), 101).unwrap()
}

/// 95th percentile of end-to-end times, ms, by nearest rank.
fn e2e_p95(run: &SimulationResult) -> f64 {
    let mut times: Vec<f64> = run.samples.iter().map(|sample| sample.e2e_ms).collect();
    times.sort_by(f64::total_cmp);
    times[(times.len() * 95).div_ceil(100) - 1]
}

#[test]
fn beyond_the_knee_the_gate_ends_the_collapse_and_below_it_costs_nothing() {
    let (beyond, below) = (traffic(7.5, 6.0), traffic(3.5, 6.0));
    let calm = Scenario::default();
    for (without, with) in [("bare", "predicted-latency"), ("smg", "smg-gated")] {
        let p95 = |workload, policy| e2e_p95(&run_of(workload, policy, &calm));
        let (collapsed, gated) = (p95(&beyond, without), p95(&beyond, with));
        eprintln!("7.5 requests/s: E2E p95 {collapsed:.0} ms with {without}, {gated:.0} ms with {with}");
        assert!(gated < 0.6 * collapsed, "{with}: {gated} against {collapsed}");
        let (free, ordinary) = (p95(&below, without), p95(&below, with));
        eprintln!("3.5 requests/s: E2E p95 {free:.0} ms with {without}, {ordinary:.0} ms with {with}");
        assert!((ordinary / free - 1.0).abs() < 0.05, "{with}: {ordinary} against {free}");
    }
}

#[test]
fn held_or_shed_each_request_ends_once_and_the_same_seed_is_the_same_run() {
    let workload = traffic(9.0, 2.0);
    let storm = scenario(
        "[[fault]]\nat_s = 30\nreplica = \"near\"\nkind = \"down\"\nfor_s = 20\n\
         [[fault]]\nat_s = 60\nreplica = \"middle\"\nkind = \"restart\"\n",
    );
    for policy in ["smg-short", "smg-gated", "predicted-latency"] {
        let run = run_of(&workload, policy, &storm);
        assert_eq!(run, run_of(&workload, policy, &storm), "{policy}");
        let mut rows: Vec<usize> = run.samples.iter().map(|sample| sample.row).collect();
        rows.sort_unstable();
        rows.dedup();
        assert_eq!((rows.len(), run.samples.len()), (workload.rows().len(), workload.rows().len()), "{policy}");
        assert_eq!(run.leftover_load, (0, 0, 0), "{policy}");
        let shed = run.samples.iter().filter(|sample| sample.error == Some(ErrorClass::Refused)).count();
        assert_eq!(shed > 0, policy == "smg-short", "{policy}: {shed} shed");
    }
}
