//! Extending the router, through the whole program: a plugin that is replaced under load, tuning towards objectives
//! that are not built in, and a newcomer's way from an empty folder by the guide's own commands.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Row};

use crate::layout::root;
use crate::program::{Serve, get, gorgo};

async fn rows(database: &Path, query: &str) -> Vec<sqlx::sqlite::SqliteRow> {
    let mut connection = SqliteConnectOptions::new().filename(database).read_only(true).connect().await.unwrap();
    sqlx::query(AssertSqlSafe(query.to_owned())).fetch_all(&mut connection).await.unwrap()
}

async fn number(database: &Path, query: &str) -> i64 {
    rows(database, query).await[0].get(0)
}

/// Compiles a plugin in C as its guide says, with `from` in its text replaced by `to`.
fn compiled(example: &str, (from, to): (&str, &str), folder: &Path, library: &str) {
    let source = fs::read_to_string(root().join("gorgo-plugins/examples").join(example)).unwrap();
    assert!(source.contains(from));
    let file = folder.join("plugin.c");
    fs::write(&file, source.replace(from, to)).unwrap();
    let done = Command::new("cc")
        .args(["-std=c11", "-O2", "-shared", "-fPIC", "-I"])
        .arg(root().join("gorgo-plugins/include"))
        .arg("-o")
        .arg(folder.join(library))
        .arg(file)
        .status();
    assert!(done.expect("a C compiler").success());
}

/// Conversations of one turn, two milliseconds apart.
fn trace(folder: &Path, rows: usize) -> std::path::PathBuf {
    let path = folder.join("trace.jsonl");
    let line = |row: usize| {
        format!(r#"{{"timestamp":{},"input_length":128,"output_length":4,"hash_ids":[0,{row}]}}"#, row * 2)
    };
    fs::write(&path, (0..rows).map(line).collect::<Vec<_>>().join("\n")).unwrap();
    path
}

/// Waits until the log has this text `count` times. There is no other signal from another process.
fn logged(serve: &Serve, text: &str, count: usize) {
    for _ in 0..6_000 {
        if serve.log().matches(text).count() >= count {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    panic!("never logged {count} times: {text}\n{}", serve.log());
}

/// Waits until this many further requests were answered.
fn served(serve: &Serve, more: u64) {
    let answered = || {
        let (_, page) = get(serve.admin, "/metrics").unwrap();
        let counts = page.lines().filter(|line| line.starts_with("gorgo_requests_total{"));
        counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>()
    };
    let before = answered();
    for _ in 0..6_000 {
        if answered() >= before + more {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    panic!("no traffic: {}", serve.log());
}

const SWAPPED: &str = r#"
[policy.mine]
unit = "raw"
[[policy.mine.term]]
kind = "plugin"
library = "live.so"
weight = 0.1
[[policy.mine.term]]
kind = "inflight"
weight = 3.0
"#;

/// Raises a flag when dropped.
struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_plugin_is_swapped_under_load_and_no_request_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let builds = ["1.0", "2.0"].map(|version| {
        let library = format!("build-{version}.so");
        compiled(
            "scorer_c/queue.c",
            ("GORGO_TEXT(\"1.0\")", &format!("GORGO_TEXT(\"{version}\")")),
            folder.path(),
            &library,
        );
        folder.path().join(library)
    });
    let live = folder.path().join("live.so");
    fs::copy(&builds[0], &live).unwrap();
    let trace = trace(folder.path(), 300);
    let mut serve = Serve::start_in(folder, "default_policy = \"mine\"", SWAPPED);

    let done = AtomicBool::new(false);
    let reports = std::thread::scope(|scope| {
        // Stop the traffic even if something below panics; otherwise the thread would never end.
        let _ended = Raise(&done);
        let traffic = scope.spawn(|| {
            let mut reports = Vec::new();
            // Once more after the last swap.
            loop {
                let last = done.load(Ordering::Relaxed);
                reports.push(serve.replay(&trace, &["--max-in-flight", "32"]));
                if last {
                    return reports;
                }
            }
        });
        for (swaps, build) in (1..).zip([&builds[1], &builds[0], &builds[1]]) {
            served(&serve, 60);
            // In place, under the running router: the same file gets other bytes.
            fs::write(&live, fs::read(build).unwrap()).unwrap();
            serve.signal("HUP");
            logged(&serve, "reloaded: mine with ", swaps);
        }
        served(&serve, 60);
        serve.signal("HUP");
        logged(&serve, "no policy or plugin changed", 1);
        fs::write(&live, "no library any more").unwrap();
        serve.signal("HUP");
        logged(&serve, "nothing changed: ", 1);
        assert_eq!(serve.log().matches("nothing changed: ").count(), 1, "said once: {}", serve.log());
        assert!(serve.log().contains(": policy.mine.term[0]: "), "it says where: {}", serve.log());
        done.store(true, Ordering::Relaxed);
        traffic.join().unwrap()
    });
    let sent = reports.iter().map(|report| report["requests"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sent, 300 * u64::try_from(reports.len()).unwrap());
    assert!(reports.iter().all(|report| report["errors"].as_u64() == Some(0)), "{reports:?}");
    assert!(serve.gauges().iter().all(|(_, value)| *value == 0.0), "{:?}", serve.gauges());
    let (_, metrics) = get(serve.admin, "/metrics").unwrap();
    assert!(metrics.contains("plugin=\"queue-c\""), "{metrics}");
    assert_eq!(serve.stop().code(), Some(0), "{}", serve.log());

    let database = serve.database();
    let answered = number(&database, "select count(*) from v_requests where error is null and status = 200").await;
    assert_eq!(answered, i64::try_from(sent).unwrap(), "every request that was sent was answered and has its row");
    assert_eq!(number(&database, "select count(*) from gaps").await, 0);
    // The database says which build decided, and both did.
    let by_build = "select t.plugin_sha256, count(*) from decisions d join terms t on t.policy_id = d.policy_id \
                    where t.slot = 1 group by t.plugin_sha256 order by min(d.received_at_us)";
    let counted: Vec<(String, i64)> =
        rows(&database, by_build).await.iter().map(|row| (row.get(0), row.get(1))).collect();
    println!("decisions by build: {counted:?}");
    let hashes: Vec<String> = builds.iter().map(|build| sha256(build)).collect();
    assert_eq!(counted.iter().map(|(hash, _)| hash.clone()).collect::<Vec<_>>(), hashes);
    assert_eq!(counted.iter().map(|(_, count)| count).sum::<i64>(), answered);
    let signals = "select count(*) from v_terms where term = 'queue-c' and signal is not null and cost is not null \
                   and weight = 0.1";
    assert_eq!(number(&database, signals).await, 3 * answered, "of three replicas, each with its weight");
    let events = "select count(*) from v_events where kind = 'config-change'";
    assert_eq!(number(&database, events).await, 4);
    let refused = "select count(*) from v_events where kind = 'config-refused'";
    assert_eq!(number(&database, refused).await, 1);
}

fn sha256(file: &Path) -> String {
    let said = Command::new("sha256sum").arg(file).output().unwrap();
    String::from_utf8_lossy(&said.stdout).split_whitespace().next().unwrap().to_owned()
}

#[tokio::test]
async fn what_is_not_finite_is_void_in_sql_and_the_plugin_is_quarantined() {
    let folder = tempfile::tempdir().unwrap();
    let done = Command::new("cc")
        .args(["-std=c11", "-O2", "-shared", "-fPIC", "-DVALUE=NAN", "-I"])
        .arg(root().join("gorgo-plugins/include"))
        .arg("-o")
        .arg(folder.path().join("live.so"))
        .arg(root().join("gorgo-plugins/tests/c/hostile.c"))
        .status();
    assert!(done.expect("a C compiler").success());
    let trace = trace(folder.path(), 50);
    let mut serve = Serve::start_in(folder, "default_policy = \"mine\"", SWAPPED);
    let report = serve.replay(&trace, &["--max-in-flight", "4"]);
    assert_eq!((report["requests"].as_u64(), report["errors"].as_u64()), (Some(50), Some(0)), "{report}");
    logged(&serve, "plugin hostile-c is quarantined", 1);
    let (_, metrics) = get(serve.admin, "/metrics").unwrap();
    assert!(metrics.contains("gorgo_plugin_quarantined{plugin=\"hostile-c\"} 1"), "{metrics}");
    assert_eq!(serve.stop().code(), Some(0), "{}", serve.log());
    let database = serve.database();
    let void = "select count(*) from v_terms where term = 'hostile-c' and signal is null and cost is null";
    assert_eq!(number(&database, void).await, 150);
    let others = "select count(*) from v_terms where term = 'inflight' and signal is not null and cost is not null";
    assert_eq!(number(&database, others).await, 150);
    assert_eq!(number(&database, "select count(*) from v_events where kind = 'plugin-quarantined'").await, 1);
    let reader = gorgo_store::HistoryReader::open(&database).await.unwrap();
    let decisions = reader.newest_decisions(50).await.unwrap();
    reader.close().await;
    let read_back = decisions.iter().flat_map(|decision| &decision.candidates).all(|candidate| {
        candidate.signals_milli.len() == 2 && candidate.signals_milli[0] == gorgo_routing::model::VOID_MILLI
    });
    assert!(read_back, "{:?}", decisions[0]);
}

/// Two policies, tuned by blocks so small that a few hundred requests end some generations.
fn tuned(objective: &str) -> String {
    format!(
        r#"
[policy.mine]
unit = "raw"
[[policy.mine.term]]
kind = "inflight"
weight = {{ init = 1.0, min = 0.1, max = 10.0, tune = true }}
[[policy.mine.term]]
kind = "rtt"
weight = 1.0
[policy.mine.tune]
objective = {objective}
blocks = {{ requests = 24, washout_requests = 2, min_pairs = 2, max_pairs = 2 }}
"#
    )
}

#[tokio::test]
async fn tune_scores_of_an_expression_can_be_computed_again_in_sql() {
    let value = "ttft_mean / ttft_mean_ref + 0.001 * e2e_p50 + 10 * error_share";
    let mut serve =
        Serve::start("default_policy = \"mine\"", &tuned(&format!("{{ kind = \"expression\", value = \"{value}\" }}")));
    let report = serve.replay(&trace(serve.folder.path(), 800), &["--max-in-flight", "16"]);
    assert_eq!((report["requests"].as_u64(), report["errors"].as_u64()), (Some(800), Some(0)), "{report}");
    assert_eq!(serve.stop().code(), Some(0), "{}", serve.log());
    let again = "with s as (select policy_id, generation_id, arm, \
                 max(value) filter (where statistic = 'ttft_mean') ttft_mean, \
                 max(value) filter (where statistic = 'e2e_p50') e2e_p50, \
                 max(value) filter (where statistic = 'error_share') error_share, \
                 max(value) filter (where statistic = 'score') score \
                 from generation_scores group by policy_id, generation_id, arm) \
                 select own.score, own.ttft_mean / ref.ttft_mean + 0.001 * own.e2e_p50 + 10 * own.error_share \
                 from s own join s ref using (policy_id, generation_id) where ref.arm = 0 and own.score is not null";
    let scored: Vec<(f64, f64)> =
        rows(&serve.database(), again).await.iter().map(|row| (row.get(0), row.get(1))).collect();
    println!("scores as stored and as computed in SQL: {scored:?}");
    assert!(scored.len() >= 2, "no generation ended: {}", serve.log());
    assert!(scored.iter().all(|(score, again)| (score - again).abs() <= 1e-9 * score.abs()), "{scored:?}");
}

#[tokio::test]
async fn tune_a_plugin_scores_the_arms() {
    let folder = tempfile::tempdir().unwrap();
    compiled("objective_c/patience.c", ("1.0", "1.0"), folder.path(), "patience.so");
    let objective = "{ kind = \"plugin\", library = \"patience.so\" }";
    let trace = trace(folder.path(), 800);
    let mut serve = Serve::start_in(folder, "default_policy = \"mine\"", &tuned(objective));
    let report = serve.replay(&trace, &["--max-in-flight", "16"]);
    assert_eq!((report["requests"].as_u64(), report["errors"].as_u64()), (Some(800), Some(0)), "{report}");
    assert_eq!(serve.stop().code(), Some(0), "{}", serve.log());
    let build = sha256(&serve.folder.path().join("patience.so"));
    let said =
        format!("select count(*) from policies where name = 'mine' and text like '%# objective is build {build}%'");
    assert_eq!(number(&serve.database(), &said).await, 1);
    // The plugin's number is the mean of TTFT squared in seconds; the samples' own mean bounds it from below.
    let bounds = "with s as (select generation_id, arm, \
                  max(value) filter (where statistic = 'ttft_mean') / 1e3 mean_secs, \
                  max(value) filter (where statistic = 'ttft_p99') / 1e3 worst_secs, \
                  max(value) filter (where statistic = 'score') score \
                  from generation_scores group by policy_id, generation_id, arm) \
                  select score, mean_secs * mean_secs, worst_secs * worst_secs from s where score is not null";
    let scored: Vec<(f64, f64, f64)> =
        rows(&serve.database(), bounds).await.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    println!("scores, and the squares of mean and worst TTFT: {scored:?}");
    assert!(scored.len() >= 2, "no generation ended: {}", serve.log());
    let between =
        |(score, mean, worst): &(f64, f64, f64)| *score >= mean * (1.0 - 1e-9) && *score <= worst * (1.0 + 1e-9);
    assert!(scored.iter().all(between), "{scored:?}");
}

/// The part of the plugin guide below a heading.
fn guide(heading: &str) -> String {
    let text = fs::read_to_string(root().join("gorgo-plugins/README.md")).unwrap();
    let section = text.split("\n## ").find(|section| section.starts_with(heading)).expect(heading);
    section.to_owned()
}

/// The block of the guide's section that is fenced as this language.
fn block(section: &str, language: &str) -> String {
    let fence = format!("```{language}\n");
    section.split(&fence).nth(1).and_then(|rest| rest.split("```").next()).expect(language).to_owned()
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "how long a newcomer waits is told, and not asserted")]
async fn a_newcomer_gets_from_an_empty_folder_to_rows_in_sql_by_the_guides_own_commands() {
    let folder = tempfile::tempdir().unwrap();
    let section = guide("Write one");
    let commands: Vec<&str> = section.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    let commands: Vec<&str> =
        commands.into_iter().filter(|line| line.starts_with("gorgo ") || line.starts_with("cargo ")).collect();
    let policy = block(&section, "toml");
    // The guide assumes a configuration with a fleet, and a trace.
    let fleet = crate::program::FLEET;
    fs::write(folder.path().join("policies.toml"), format!("default_policy = \"mine\"\n{policy}\n{fleet}")).unwrap();
    trace(folder.path(), 200);
    let beside = Path::new(env!("CARGO_BIN_EXE_gorgo")).parent().unwrap();
    let path = std::env::join_paths(
        [beside.to_owned()].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )
    .unwrap();
    let mut ran = Vec::new();
    for command in &commands {
        if command.starts_with("gorgo serve") {
            continue;
        }
        let began = std::time::Instant::now();
        let done = Command::new("sh")
            .args(["-c", command])
            .current_dir(folder.path())
            .env("PATH", &path)
            .env_remove("GORGO_CONFIG")
            .env_remove("CARGO_TARGET_DIR")
            .output()
            .unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success(), "{command}: {said}");
        println!("{:>6} ms  {command}", began.elapsed().as_millis());
        ran.push(*command);
    }
    let verbs = ["gorgo plugin new", "cargo build", "gorgo plugin check", "gorgo check", "gorgo simulate"];
    assert!(ran.len() == verbs.len() && ran.iter().zip(verbs).all(|(ran, verb)| ran.starts_with(verb)), "{ran:?}");
    assert!(commands.iter().any(|command| command.starts_with("gorgo serve")), "{commands:?}");

    let trace = folder.path().join("trace.jsonl");
    let mut serve = Serve::start_in(folder, "default_policy = \"mine\"", &policy);
    let report = serve.replay(&trace, &["--max-in-flight", "16"]);
    assert_eq!(report["errors"].as_u64(), Some(0), "{report}");
    assert_eq!(serve.stop().code(), Some(0), "{}", serve.log());
    let query = block(&section, "sql");
    let rows = rows(&serve.database(), &query).await;
    let shown: Vec<(String, f64, f64)> =
        rows.iter().map(|row| (row.get("replica"), row.get("signal"), row.get("cost"))).collect();
    println!("rows: {shown:?}");
    assert_eq!(shown.len(), 3, "a row per replica");
    assert!(shown.iter().any(|(_, signal, cost)| *signal > 0.0 && (cost - 0.1 * signal).abs() < 1e-9), "{shown:?}");
    // No file of the newcomer is overwritten.
    let exists = serve.folder.path().to_owned();
    let again = gorgo().current_dir(&exists).args(["plugin", "new", "nearby"]).output().unwrap();
    assert_eq!(again.status.code(), Some(2));
    assert_eq!(
        String::from_utf8_lossy(&again.stderr),
        "gorgo: nearby: this folder already exists, and nothing in it was changed; choose another name, another \
         place with --within FOLDER, or move the folder away\n"
    );
}
