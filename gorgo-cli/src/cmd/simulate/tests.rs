//! The command on a small fleet and a small trace.

use std::collections::BTreeSet;

use clap::{Args, FromArgMatches};
use serde_json::Value;

use super::*;

const CONFIG: &str = "default_policy = \"gorgo\"\n\
    [[replica]]\nname = \"near\"\nengine = \"simulated\"\nmodels = [\"sim\"]\nsimulated = { rtt_ms = 37.0 }\n\
    [[replica]]\nname = \"far\"\nengine = \"simulated\"\nmodels = [\"sim\"]\nsimulated = { rtt_ms = 279.0 }\n\
    [policy.mine]\n[[policy.mine.term]]\nkind = \"inflight\"\n";

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policies.toml"), CONFIG).unwrap();
        let row = |number: usize| {
            let blocks: Vec<usize> = (0..4 + number / 8).map(|block| (number % 8) * 100 + block).collect();
            format!(
                "{{\"timestamp\":{},\"input_length\":{},\"output_length\":{},\"hash_ids\":{blocks:?}}}\n",
                number * 300,
                blocks.len() * 512,
                10 + number % 40
            )
        };
        fs::write(folder.path().join("trace.jsonl"), (0..80).map(row).collect::<String>()).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn command(&self, more: &str) -> Simulate {
        let (config, trace) = (self.path("policies.toml"), self.path("trace.jsonl"));
        let line = ["simulate", "--config", &config, "--trace", &trace];
        let line = line.into_iter().chain(more.split_whitespace());
        let matches = Simulate::augment_args(clap::Command::new("simulate")).try_get_matches_from(line).unwrap();
        Simulate::from_arg_matches(&matches).unwrap()
    }

    fn report(&self, more: &str) -> Report {
        self.command(more).compared().unwrap()
    }

    fn told(&self, text: &str) -> String {
        text.replace(&self.path(""), "")
    }
}

#[test]
fn one_job_and_two_and_a_second_time_give_the_same() {
    let bench = Bench::new();
    let line = "--policies gorgo,random,mine --seeds 2 --jobs";
    let first = bench.report(&format!("{line} 1"));
    assert_eq!(first, bench.report(&format!("{line} 2")));
    assert_eq!(first, bench.report(&format!("{line} 1")));
    assert_ne!(first, bench.report("--policies gorgo,random,mine --seeds 3..4"));
}

#[test]
fn the_json_has_the_keys_of_the_contract() {
    let bench = Bench::new();
    let json: Value = serde_json::from_str(&bench.report("--policies gorgo,random --seeds 101..102").json()).unwrap();
    assert_eq!((&json["default"], &json["seeds"]), (&"gorgo".into(), &serde_json::json!([101, 102])));
    assert!(json["trace"].as_str().unwrap().ends_with("trace.jsonl"));
    let names: Vec<&str> =
        json["policies"].as_array().unwrap().iter().map(|one| one["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["gorgo", "random"]);
    let statistics = [
        "requests",
        "errors",
        "ttft_p50_ms",
        "ttft_p95_ms",
        "ttft_p99_ms",
        "e2e_p50_ms",
        "e2e_p95_ms",
        "e2e_p99_ms",
        "itl_ms",
        "hit_rate",
        "busiest_share",
        "hhi",
        "bound_ttft_p95_ms",
    ];
    for entry in json["policies"].as_array().unwrap().iter().chain([&json["run"]["clairvoyant"]]) {
        for key in statistics {
            assert!(entry[key].is_number() && entry[format!("{key}_sd")].is_number(), "{key}: {entry}");
        }
        assert!(entry["ratio_ttft_p95"].is_number());
        assert!(entry["bound_ttft_p95_ms"].as_f64() <= entry["ttft_p95_ms"].as_f64());
    }
    // The best baseline is the best policy that is not the default.
    assert_eq!(json["policies"][1]["ratio_ttft_p95"], serde_json::json!(1));
}

#[test]
fn all_are_those_of_the_file_and_the_presets_each_once() {
    let bench = Bench::new();
    let json: Value = serde_json::from_str(&bench.report("--policies mine,all --seeds 1 --limit 10").json()).unwrap();
    let names: Vec<&str> =
        json["policies"].as_array().unwrap().iter().map(|one| one["policy"].as_str().unwrap()).collect();
    assert_eq!(names[0], "mine");
    let expected: BTreeSet<&str> =
        gorgo_core::policy::PRESETS.iter().map(|preset| preset.name).chain(["mine"]).collect();
    assert_eq!((names.iter().copied().collect::<BTreeSet<_>>(), names.len()), (expected.clone(), expected.len()));
}

#[test]
fn the_table_reads_like_this() {
    let bench = Bench::new();
    let text = bench.report("--policies gorgo,random --seeds 2 --max-output-tokens 20 --max-input-tokens 5000").text();
    insta::assert_snapshot!(bench.told(&text));
}

#[test]
fn the_csv_has_a_line_per_policy_and_seed() {
    let bench = Bench::new();
    let path = bench.path("out.csv");
    bench.report(&format!("--policies gorgo,random --seeds 3 --limit 20 --csv {path}"));
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1 + 3 * 3);
    assert!(lines[0].starts_with("policy,seed,requests,errors,ttft_p50_ms,ttft_p95_ms"));
    assert!(lines[4].starts_with("random,1,20,0,") && lines[9].starts_with("clairvoyant,3,20,0,"), "{text}");
    assert!(lines.iter().all(|line| line.split(',').count() == 17));
}

#[test]
fn a_scenario_changes_what_happens() {
    let bench = Bench::new();
    let path = bench.path("storm.toml");
    fs::write(&path, "[[fault]]\nat_s = 0\nreplica = \"near\"\nkind = \"slow\"\nfactor = 4.0\n").unwrap();
    let slow = bench.report(&format!("--policies gorgo --seeds 1 --scenario {path}"));
    let p50 =
        |report: &Report| serde_json::from_str::<Value>(&report.json()).unwrap()["policies"][0]["ttft_p50_ms"].as_f64();
    assert!(p50(&slow) > p50(&bench.report("--policies gorgo --seeds 1")));
}

#[test]
fn what_cannot_be_used_is_named_with_its_exit_code() {
    let bench = Bench::new();
    let failure = |more: &str| {
        let failure = bench.command(more).compared().unwrap_err();
        (failure.exit(), bench.told(&failure.to_string()))
    };
    let (exit, text) = failure("--policies gorg");
    assert_eq!(exit, Exit::Usage);
    assert!(text.starts_with("--policies: unknown policy \"gorg\"; did you mean \"gorgo\"?"), "{text}");
    assert_eq!(failure("--max-input-tokens 1").0, Exit::Usage);
    assert_eq!(failure("--set probe.interval_ms=-1").0, Exit::Configuration);
    assert_eq!(failure("--scenario nowhere.toml").0, Exit::Usage);
    let path = bench.path("bad.toml");
    fs::write(&path, "[[fault]]\nat_s = 0\nreplica = \"mars\"\nkind = \"down\"\n").unwrap();
    let (exit, text) = failure(&format!("--scenario {path}"));
    assert_eq!((exit, &*text), (Exit::Usage, "bad.toml: fault[0].replica: unknown \"mars\"; enabled: near, far"));
}
