//! The command on a small fleet and a small trace.

use std::collections::BTreeSet;

use clap::{Args, FromArgMatches};
use serde_json::Value;

use super::*;

const CONFIG: &str = "default_policy = \"gorgo\"\n\
    [[replica]]\nname = \"near\"\nengine = \"simulated\"\nmodels = [\"sim\"]\nsimulated = { rtt_ms = 37.0 }\n\
    [[replica]]\nname = \"far\"\nengine = \"simulated\"\nmodels = [\"sim\"]\nsimulated = { rtt_ms = 279.0 }\n\
    [policy.mine]\n[[policy.mine.term]]\nkind = \"inflight\"\n";

struct SimulateFixture {
    folder: tempfile::TempDir,
}

impl SimulateFixture {
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

    fn command(&self, more: &str) -> SimulateArgs {
        let (config, trace) = (self.path("policies.toml"), self.path("trace.jsonl"));
        let line = ["simulate", "--config", &config, "--trace", &trace];
        let line = line.into_iter().chain(more.split_whitespace());
        let matches = SimulateArgs::augment_args(clap::Command::new("simulate")).try_get_matches_from(line).unwrap();
        SimulateArgs::from_arg_matches(&matches).unwrap()
    }

    fn report(&self, more: &str) -> SimulationReport {
        self.command(more).compared().unwrap()
    }

    fn told(&self, text: &str) -> String {
        text.replace(&self.path(""), "")
    }
}

#[test]
fn one_job_and_two_and_a_second_time_give_the_same() {
    let bench = SimulateFixture::new();
    let line = "--policies gorgo,random,mine --seeds 2 --jobs";
    let first = bench.report(&format!("{line} 1"));
    assert_eq!(first, bench.report(&format!("{line} 2")));
    assert_eq!(first, bench.report(&format!("{line} 1")));
    assert_ne!(first, bench.report("--policies gorgo,random,mine --seeds 3..4"));
}

#[test]
fn the_json_has_the_keys_of_the_contract() {
    let bench = SimulateFixture::new();
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
    let bench = SimulateFixture::new();
    let json: Value = serde_json::from_str(&bench.report("--policies mine,all --seeds 1 --limit 10").json()).unwrap();
    let names: Vec<&str> =
        json["policies"].as_array().unwrap().iter().map(|one| one["policy"].as_str().unwrap()).collect();
    assert_eq!(names[0], "mine");
    let expected: BTreeSet<&str> =
        gorgo_routing::policy::PRESETS.iter().map(|preset| preset.name).chain(["mine"]).collect();
    assert_eq!((names.iter().copied().collect::<BTreeSet<_>>(), names.len()), (expected.clone(), expected.len()));
}

#[test]
fn the_table_reads_like_this() {
    let bench = SimulateFixture::new();
    let text = bench.report("--policies gorgo,random --seeds 2 --max-output-tokens 20 --max-input-tokens 5000").text();
    insta::assert_snapshot!(bench.told(&text));
}

#[test]
fn the_csv_has_a_line_per_policy_and_seed() {
    let bench = SimulateFixture::new();
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
    let bench = SimulateFixture::new();
    let path = bench.path("storm.toml");
    fs::write(&path, "[[fault]]\nat_s = 0\nreplica = \"near\"\nkind = \"slow\"\nfactor = 4.0\n").unwrap();
    let slow = bench.report(&format!("--policies gorgo --seeds 1 --scenario {path}"));
    let p50 = |report: &SimulationReport| {
        serde_json::from_str::<Value>(&report.json()).unwrap()["policies"][0]["ttft_p50_ms"].as_f64()
    };
    assert!(p50(&slow) > p50(&bench.report("--policies gorgo --seeds 1")));
}

#[test]
fn what_cannot_be_used_is_named_with_its_exit_code() {
    let bench = SimulateFixture::new();
    let failure = |more: &str| {
        let failure = bench.command(more).compared().unwrap_err();
        (failure.exit(), bench.told(&failure.to_string()))
    };
    let (exit, text) = failure("--policies gorg");
    assert_eq!(exit, CommandExit::Usage);
    assert!(text.starts_with("--policies: unknown policy \"gorg\"; did you mean \"gorgo\"?"), "{text}");
    assert_eq!(failure("--max-input-tokens 1").0, CommandExit::Usage);
    assert_eq!(failure("--set probe.interval_ms=-1").0, CommandExit::Configuration);
    assert_eq!(failure("--scenario nowhere.toml").0, CommandExit::Usage);
    let path = bench.path("bad.toml");
    fs::write(&path, "[[fault]]\nat_s = 0\nreplica = \"mars\"\nkind = \"down\"\n").unwrap();
    let (exit, text) = failure(&format!("--scenario {path}"));
    assert_eq!(
        (exit, &*text),
        (CommandExit::Usage, "bad.toml: fault[0].replica: unknown \"mars\"; enabled: near, far")
    );
}

fn entries(report: &SimulationReport) -> Vec<Value> {
    serde_json::from_str::<Value>(&report.json()).unwrap()["policies"].as_array().unwrap().clone()
}

#[test]
fn a_sweep_has_a_row_per_point_and_any_key_can_be_swept() {
    let bench = SimulateFixture::new();
    let line = "--policies gorgo,mine --seeds 2 --sweep policy.gorgo.term.rtt.weight=0,5 \
                --sweep replica[near].simulated.rtt_ms=10..300:2";
    let report = bench.report(line);
    let rows = entries(&report);
    // `mine` does not have the weight but has the round trip: it is run once for both weights.
    let places: Vec<(&str, &Value)> = rows.iter().map(|row| (row["policy"].as_str().unwrap(), &row["sweep"])).collect();
    let keys = |weight: Option<&str>, rtt: &str| serde_json::json!({"policy.gorgo.term.rtt.weight": weight, "replica[near].simulated.rtt_ms": rtt});
    let expected = [
        ("gorgo", keys(Some("0"), "10")),
        ("mine", keys(None, "10")),
        ("gorgo", keys(Some("0"), "300")),
        ("mine", keys(None, "300")),
        ("gorgo", keys(Some("5"), "10")),
        ("gorgo", keys(Some("5"), "300")),
    ];
    assert_eq!(places, expected.each_ref().map(|(name, keys)| (*name, keys)));
    assert!(rows[1]["ttft_p50_ms"].as_f64() < rows[3]["ttft_p50_ms"].as_f64(), "{rows:?}");
    assert_ne!(rows[2]["ttft_p50_ms"], rows[5]["ttft_p50_ms"], "the weight changes what `gorgo` does");
    assert!(report.text().contains("policy.gorgo.term.rtt.weight is not a key of mine: run once for all its values"));
    let nobodys = bench.command("--policies mine --sweep policy.gorgo.term.rtt.weight=0,5").compared().unwrap_err();
    assert_eq!(nobodys.exit(), CommandExit::Usage);
    assert!(
        nobodys.to_string().ends_with("no compared policy has this key; add its policy to --policies"),
        "{nobodys}"
    );
    let folder = bench.command("--policies mine --html /nonexistent/x.html").compared().unwrap_err().to_string();
    let words =
        "--html /nonexistent/x.html: cannot be written because its folder does not exist; create it or name another";
    assert_eq!(folder, words);
    insta::assert_snapshot!(bench.told(&report.text()));
    let drawn = bench.report("--policies gorgo --seeds 1 --sweep policy.gorgo.term.rtt.weight=0.05..2log --samples 3");
    assert_eq!(entries(&drawn).len(), 3);
    let wrong = bench.command("--policies gorgo --sweep policy.gorgo.term.queue.wieght=1").compared().unwrap_err();
    assert_eq!(wrong.exit(), CommandExit::Configuration);
    assert!(wrong.to_string().contains("--sweep policy.gorgo.term.queue.wieght"), "{wrong}");
}

#[test]
fn loads_are_compared_and_the_last_one_within_the_limit_is_named() {
    let bench = SimulateFixture::new();
    let line = "--policies gorgo --seeds 2 --time-scale 0.2,4,1 --max-in-flight 0 --e2e-limit-ms";
    let report = bench.report(&format!("{line} 1e9"));
    let json: Value = serde_json::from_str(&report.json()).unwrap();
    let rates: Vec<f64> = entries(&report).iter().map(|row| row["requests_per_s"].as_f64().unwrap()).collect();
    assert!((rates[0] / rates[1] - 20.0).abs() < 0.2, "{rates:?}");
    let all = json["run"]["saturation"].as_array().unwrap();
    assert_eq!(all.len(), 2, "the policy and the clairvoyant");
    assert_eq!((&all[0]["time_scale"], &all[0]["no_load_was_too_much"]), (&Value::from(0.2), &Value::from(true)));
    // A limit between two loads.
    let e2e = |row: usize| entries(&report)[row]["e2e_p95_ms"].as_f64().unwrap();
    assert!(e2e(0) > e2e(2), "denser is slower: {} {}", e2e(0), e2e(2));
    let held = bench.report(&format!("{line} {}", f64::midpoint(e2e(0), e2e(2).max(e2e(1)))));
    let json: Value = serde_json::from_str(&held.json()).unwrap();
    assert_eq!(json["run"]["saturation"][0]["time_scale"], Value::from(1));
    let none = bench.report(&format!("{line} 1")).text();
    assert!(none.contains("  gorgo: none of the loads tried\n"), "{none}");
    assert!(!none.contains("use --max-in-flight 0"));
    let closed = bench.report("--policies gorgo --seeds 1 --time-scale 1,2").text();
    assert!(closed.contains("use --max-in-flight 0"), "{closed}");
}

#[test]
fn what_a_file_has_is_not_run_again_and_gives_the_same() {
    let bench = SimulateFixture::new();
    let kept = bench.path("runs.jsonl");
    let line = "--policies gorgo,random --sweep policy.gorgo.term.queue.weight=0.1,0.5";
    let whole = bench.report(&format!("{line} --seeds 2"));
    let first = bench.report(&format!("{line} --seeds 1 --resume {kept}"));
    assert_eq!(first.json(), bench.report(&format!("{line} --seeds 1")).json());
    // `random` is the same at both points but for `policy.gorgo`, which it does not read.
    let text = fs::read_to_string(&kept).unwrap();
    assert_eq!(text.lines().count(), 3);
    // Killed in the middle of a line.
    fs::write(&kept, &text[..text.len() - 40]).unwrap();
    let again = bench.report(&format!("{line} --seeds 2 --resume {kept} --jobs 2"));
    assert_eq!((again.json(), again.text()), (whole.json(), whole.text()));
    let lines = fs::read_to_string(&kept).unwrap().lines().count();
    let third = bench.report(&format!("{line} --seeds 2 --resume {kept}"));
    assert_eq!((third.json(), third.text()), (whole.json(), whole.text()));
    assert_eq!(fs::read_to_string(&kept).unwrap().lines().count(), lines, "nothing was left to run");
    // Another trace, another load, another weight: not the same runs.
    let other = bench.report(&format!("{line} --seeds 1 --resume {kept} --limit 40"));
    assert_eq!(other.json(), bench.report(&format!("{line} --seeds 1 --limit 40")).json());
}

#[test]
fn a_kept_figure_that_was_changed_shows() {
    let bench = SimulateFixture::new();
    let kept = bench.path("runs.jsonl");
    let line = format!("--policies gorgo --seeds 1 --jobs 1 --resume {kept}");
    let before = entries(&bench.report(&line))[0]["hit_rate"].clone();
    let text = fs::read_to_string(&kept).unwrap();
    let cut = text.find("\"hit_rate\":").unwrap() + 11;
    let end = cut + text[cut..].find([',', '}']).unwrap();
    fs::write(&kept, format!("{}0.125{}", &text[..cut], &text[end..])).unwrap();
    assert_ne!(before, entries(&bench.report(&line))[0]["hit_rate"]);
    assert_eq!(entries(&bench.report(&line))[0]["hit_rate"], Value::from(0.125), "the runs come from the file");
}

#[test]
fn an_ablation_says_what_each_part_decides_and_gains() {
    let bench = SimulateFixture::new();
    let more = "\n[policy.two]\nunit = \"raw\"\n[[policy.two.term]]\nkind = \"rtt\"\nweight = 1.0\n[[policy.two.term]]\n\
                kind = \"expression\"\nname = \"same\"\nunit = \"ms\"\nsignal = \"5\"\nweight = 1.0\n[[policy.two.term]]\nkind = \"inflight\"\nweight = 300.0\n\
                [policy.two.constraint.max-inflight]\nmax_requests = 1\n";
    fs::write(bench.path("policies.toml"), format!("{CONFIG}{more}")).unwrap();
    let report = bench.report("--ablate two --seeds 2 --jobs 2");
    let json: Value = serde_json::from_str(&report.json()).unwrap();
    let parts = json["run"]["ablation"].as_array().unwrap();
    let names: Vec<(&str, &str)> =
        parts.iter().map(|one| (one["what"].as_str().unwrap(), one["name"].as_str().unwrap())).collect();
    assert_eq!(names[..3], [("term", "rtt"), ("term", "same"), ("term", "inflight")]);
    assert_eq!(names[3].0, "constraint");
    let share = |place: usize| parts[place]["decisive_share"].as_f64().unwrap();
    let gain = |place: usize, key: &str| parts[place][format!("{key}_without_over_with")].as_f64().unwrap();
    assert!(share(0) > 0.0 && gain(0, "ttft_p50") > 1.0, "without round trips half of it goes far: {parts:?}");
    assert_eq!(share(1), 0.0, "what is the same everywhere decides nothing");
    assert!((gain(1, "ttft_p95") - 1.0).abs() < 1e-9 && (gain(1, "e2e_p95") - 1.0).abs() < 1e-9);
    let rows = entries(&report);
    assert_eq!((rows[0]["policy"].as_str(), rows[1]["policy"].as_str()), (Some("two"), Some("two − rtt")));
    insta::assert_snapshot!(bench.told(&report.text()));
    // A constraint alone against a term that always says `near`.
    let alone = "\n[policy.one]\n[[policy.one.term]]\nkind = \"rtt\"\nweight = 1.0\n\
                 [policy.one.constraint.max-inflight]\nmax_requests = 1\n";
    fs::write(bench.path("policies.toml"), format!("{CONFIG}{more}{alone}")).unwrap();
    let json: Value = serde_json::from_str(&bench.report("--ablate one --seeds 1").json()).unwrap();
    let parts = json["run"]["ablation"].as_array().unwrap();
    assert_eq!(parts[1]["name"], "max-inflight");
    assert!(parts[1]["decisive_share"].as_f64().unwrap() > 0.0, "{parts:?}");
    assert_eq!(bench.command("--ablate all").compared().unwrap_err().exit(), CommandExit::Usage);
    assert_eq!(bench.command("--ablate two --time-scale 1,2").compared().unwrap_err().exit(), CommandExit::Usage);
}

#[test]
fn a_folder_holds_all_of_one_run_and_is_never_another_ones() {
    let bench = SimulateFixture::new();
    let path = bench.path("runs/first");
    let line = format!("--policies gorgo --seeds 1 --limit 10 --out-dir {path}");
    let report = bench.report(&line);
    assert_eq!(fs::read_to_string(format!("{path}/run.json")).unwrap(), report.json());
    assert!(fs::read_to_string(format!("{path}/run.html")).unwrap().contains("<svg"));
    assert!(fs::read_to_string(format!("{path}/run.csv")).unwrap().starts_with("policy,seed,"));
    let again = bench.command(&line).compared().unwrap_err();
    assert_eq!(again.exit(), CommandExit::Usage);
    assert!(again.to_string().ends_with("already exists; name a new folder for each run"), "{again}");
}

#[test]
fn the_page_stands_alone_and_tells_no_folders() {
    let bench = SimulateFixture::new();
    let path = bench.path("out.html");
    let report = bench.report(&format!("--policies gorgo,random --seeds 2 --html {path}"));
    let page = fs::read_to_string(path).unwrap();
    assert!(page.contains("<h1>gorgo simulate: trace.jsonl</h1>") && page.contains("<dd>1 to 2</dd>"), "{page}");
    assert_eq!(page.matches("<svg").count(), 3);
    for wrong in [&bench.path("")[..], "<script", "http", "NaN", "inf"] {
        assert!(!page.contains(wrong), "{wrong}: {page}");
    }
    for line in report.text().lines().filter(|line| line.starts_with("│")) {
        let cells = line.trim_matches('│').split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        for cell in cells.filter(|cell| !cell.contains("policy")) {
            let shown = match cell.split_once('±') {
                Some((mean, deviation)) => format!("{mean}<small>±{deviation}</small></td>"),
                None => format!("{cell}</t"),
            };
            assert!(page.contains(&shown), "{cell}");
        }
    }
    let loads = bench.report("--policies gorgo,random --seeds 2 --time-scale 0.1,1");
    assert_eq!(loads.html("gorgo").matches("<svg").count(), 5);
    let swept = bench.report("--policies gorgo --seeds 1 --sweep policy.gorgo.term.queue.weight=0.1,0.5");
    assert!(swept.html("gorgo").contains("TTFT over policy.gorgo.term.queue.weight"));
}
