//! The command on a small fleet and a small trace.

use clap::{Args, FromArgMatches};

use super::*;

const CONFIG: &str = "default_policy = \"mine\"\n\
    [[replica]]\nname = \"near\"\nengine = \"simulated\"\nmodels = [\"sim\"]\nsimulated = { rtt_ms = 37.0 }\n\
    [[replica]]\nname = \"far\"\nengine = \"simulated\"\nmodels = [\"sim\"]\nsimulated = { rtt_ms = 279.0 }\n\
    [policy.mine]\nunit = \"raw\" # on purpose\n# the far one\n[[policy.mine.term]]\nkind = \"rtt\"\n\
    weight = { init = 40.0, min = 0.05, max = 60.0, tune = true }\n\
    [[policy.mine.term]]\nkind = \"prefill\"\n[[policy.mine.term]]\nkind = \"queue\"\nweight = 0.5\n\
    [policy.mine.tune]\nobjective = \"ttft-e2e\"\noptimizer = { kind = \"es-1plus1\", sigma = 1.0 }\n\
    [policy.plain]\n[[policy.plain.term]]\nkind = \"inflight\"\n";

struct TuneFixture {
    folder: tempfile::TempDir,
}

impl TuneFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policies.toml"), CONFIG).unwrap();
        // More than the nearest replica can take: a start that sends all there can be improved.
        let row = |number: usize| {
            let blocks: Vec<usize> = (0..12).map(|block| number * 100 + block).collect();
            format!(
                "{{\"timestamp\":{},\"input_length\":{},\"output_length\":{},\"hash_ids\":{blocks:?}}}\n",
                number * 350,
                blocks.len() * 512,
                40 + number % 40
            )
        };
        fs::write(folder.path().join("trace.jsonl"), (0..120).map(row).collect::<String>()).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn command(&self, more: &str) -> TuneArgs {
        let (config, trace) = (self.path("policies.toml"), self.path("trace.jsonl"));
        let line = ["tune", "--config", &config, "--trace", &trace];
        let line = line.into_iter().chain(more.split_whitespace());
        let matches = TuneArgs::augment_args(clap::Command::new("tune")).try_get_matches_from(line).unwrap();
        TuneArgs::from_arg_matches(&matches).unwrap()
    }
}

#[test]
fn tune_finds_better_weights_writes_them_ready_to_paste_and_says_where_they_come_from() {
    let bench = TuneFixture::new();
    let out = bench.path("found.toml");
    let found = bench.command(&format!("--policy mine --seeds 3 --generations 12 --out {out}")).found().unwrap();
    let text = fs::read_to_string(&out).unwrap();
    println!("{text}");
    assert_eq!(text, found.toml());
    assert!(text.starts_with("# Weights of mine found offline by `gorgo tune`"), "{text}");
    assert!(text.contains("12 candidates tried") && text.contains("on seeds not seen, 101..103"), "{text}");
    assert!(text.contains("unit = \"raw\" # on purpose\n# the far one\n[[policy.mine.term]]\n"), "{text}");
    let table: toml::Table = text.parse().unwrap();
    let init = table["policy"]["mine"]["term"][0]["weight"]["init"].as_float().unwrap();
    assert!((0.05..30.0).contains(&init), "{init}: all went to the nearest, which is not best");
    assert_eq!(table["policy"]["mine"]["term"][2]["weight"].as_float(), Some(0.5));
    // Pasted over the old table it is a sound configuration.
    let pasted =
        CONFIG.replace(&CONFIG[CONFIG.find("[policy.mine]").unwrap()..CONFIG.find("[policy.plain]").unwrap()], &text);
    fs::write(bench.path("policies.toml"), pasted).unwrap();
    assert!(bench.command("--policy mine --seeds 2 --generations 1").found().is_ok());
}

#[test]
fn tune_gives_the_same_with_one_job_and_two() {
    let bench = TuneFixture::new();
    let line = "--policy mine --seeds 2 --generations 5 --check-seeds 7..7 --jobs";
    let one = bench.command(&format!("{line} 1")).found().unwrap();
    assert_eq!(one, bench.command(&format!("{line} 2")).found().unwrap());
}

#[test]
fn tune_says_what_cannot_be_tuned() {
    let bench = TuneFixture::new();
    let failure = |more: &str| {
        let failure = bench.command(more).found().unwrap_err();
        (failure.exit(), failure.to_string())
    };
    for (line, part) in [
        ("--policy plain", "has no `tune` table"),
        ("--policy min", "did you mean \"mine\"?"),
        ("--policy all", "choose one policy"),
        ("--policy mine --seeds 1", "at least two"),
        ("--policy gorgo-es", "--set policy.gorgo-es.tune.optimizer.mode=paired searches the same weights offline"),
    ] {
        let (exit, text) = failure(line);
        assert!(exit == CommandExit::Usage && text.contains(part), "{line}: {text}");
    }
    // The remedy that the message names works.
    let line = "--policy gorgo-es --seeds 2 --generations 1 --check-seeds 7..7 --set policy.gorgo-es.tune.optimizer.mode=paired";
    assert!(bench.command(line).found().unwrap().toml().contains("mode = \"paired\""));
}
