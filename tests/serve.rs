//! The whole program: `gorgo serve` over simulated engines, driven over HTTP, read back from the database.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gorgo_routing::config::parse_toml;
use gorgo_routing::model::ConfigValue;
use gorgo_routing::policy::{DecisionScratch, KindRegistry, build, repeat_decision};
use gorgo_store::{HistoryReader, StoredDecision};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Row};

use crate::program::{FLEET, Serve, free_port, get, gorgo, post};

/// Four terms, a softmin and a constraint, composed in TOML alone.
const COMPOSED: &str = r#"
[policy.mine]
unit = "raw"
picker = { kind = "softmin", temperature = 200.0 }
exploration = 0.02
shadow = ["round-robin", "least-request"]
[[policy.mine.term]]
kind = "rtt"
weight = 0.5
[[policy.mine.term]]
name = "cold-prompt"
kind = "prefill"
weight = 1.0
[[policy.mine.term]]
kind = "queue"
weight = { init = 0.1, min = 0.01, max = 1.0, tune = true }
[[policy.mine.term]]
kind = "inflight"
weight = 3.0
[policy.mine.constraint.concentration]
max_share = 0.67
of = "requests"
window_decisions = 64
"#;

/// A trace of conversations that share beginnings: `rows` requests, two milliseconds apart.
pub(crate) fn trace(folder: &Path, rows: usize) -> PathBuf {
    let path = folder.join("trace.jsonl");
    let lines: Vec<String> = (0..rows)
        .map(|row| {
            let (conversation, turn) = (row % 20, row / 20 % 12);
            let ids: Vec<usize> =
                (0..=turn).map(|block| if block == 0 { 0 } else { conversation * 1_000 + block }).collect();
            let (tokens, at) = (ids.len() * 64, row * 2);
            format!(r#"{{"timestamp":{at},"input_length":{tokens},"output_length":4,"hash_ids":{ids:?}}}"#)
        })
        .collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    path
}

async fn rows(database: &Path, query: &str) -> Vec<sqlx::sqlite::SqliteRow> {
    let mut connection = SqliteConnectOptions::new().filename(database).read_only(true).connect().await.unwrap();
    sqlx::query(sqlx::AssertSqlSafe(query.to_owned())).fetch_all(&mut connection).await.unwrap()
}

pub(crate) async fn number(database: &Path, query: &str) -> i64 {
    rows(database, query).await[0].get(0)
}

#[tokio::test]
async fn a_trace_goes_through_and_every_decision_can_be_read_back() {
    let mut serve = Serve::start("default_policy = \"mine\"", COMPOSED);
    let report = serve.replay(&trace(serve.folder.path(), 1_000), &["--max-in-flight", "32"]);
    assert_eq!((report["requests"].as_u64(), report["errors"].as_u64()), (Some(1_000), Some(0)), "{report}");
    let gauges = serve.gauges();
    assert_eq!(gauges.len(), 9);
    assert!(gauges.iter().all(|(_, value)| *value == 0.0), "{gauges:?}");
    assert_eq!(serve.stop().code(), Some(0), "{}", serve.log());

    let database = serve.database();
    assert_eq!(number(&database, "select count(*) from v_requests where error is null and status = 200").await, 1_000);
    assert_eq!(number(&database, "select count(*) from outcomes").await, 1_000);
    assert_eq!(number(&database, "select sum(requests) from v_replicas").await, 1_000);
    assert_eq!(number(&database, "select count(*) from v_candidates where attempt = 1").await, 3_000);
    assert_eq!(number(&database, "select count(*) from shadows").await, 2_000);
    assert_eq!(number(&database, "select count(*) from gaps").await, 0);
    assert_eq!(number(&database, "select count(*) from runs where ended_at_us is null").await, 0);
    let terms: Vec<String> =
        rows(&database, "select distinct term from v_terms order by slot").await.iter().map(|row| row.get(0)).collect();
    assert_eq!(terms, ["rtt", "cold-prompt", "queue", "inflight"]);
    let cached = number(&database, "select sum(cached_tokens) from v_replicas").await;
    let predicted = number(&database, "select sum(predicted_cached_tokens) from v_replicas").await;
    assert!(cached > 50_000 && predicted > 50_000, "conversations are found again: {cached}, predicted {predicted}");

    let reader = HistoryReader::open(&database).await.unwrap();
    let decisions = reader.newest_decisions(1_000).await.unwrap();
    reader.close().await;
    assert_eq!(decisions.len(), 1_000);
    let differing: Vec<&StoredDecision> = decisions.iter().filter(|decision| !decides_the_same(decision)).collect();
    assert!(differing.is_empty(), "{} differ, the first: {:?}", differing.len(), differing[0]);
    let chosen: BTreeMap<_, usize> =
        decisions.iter().filter_map(|it| it.replica.clone()).fold(BTreeMap::new(), |mut counts, name| {
            *counts.entry(name).or_default() += 1;
            counts
        });
    assert_eq!(chosen.len(), 3, "a softmin and an exploration reach all: {chosen:?}");
}

/// Builds the stored policy from its stored text, and decides again from the stored rows alone.
fn decides_the_same(stored: &StoredDecision) -> bool {
    let fleet = stored.fleet();
    let file = parse_toml(&stored.policy.text).unwrap();
    let Some(ConfigValue::Table(mut tables)) = file.get("policy").cloned() else {
        panic!("a stored policy is a table")
    };
    // Shadows do not act; their names are not in this text.
    for (_, table) in &mut tables {
        if let ConfigValue::Table(members) = table {
            members.retain(|(key, _)| key != "shadow");
        }
    }
    let policies = build(&KindRegistry::built_in(), &tables, &stored.policy.name, &fleet).policies.unwrap();
    let rows = stored.rows();
    let policy = policies.get(policies.default).unwrap();
    let again = repeat_decision(policy, &stored.weights, &rows, stored.seed, &mut DecisionScratch::default()).unwrap();
    stored.row() == Some(again.replica.index())
        && stored.propensity.to_bits() == again.propensity.to_bits()
        && stored.ties == again.ties
}

#[tokio::test]
async fn bad_requests_get_an_answer_and_a_row() {
    let mut serve = Serve::start("", "");
    let chat = "/v1/chat/completions";
    let long = format!(r#"{{"model":"sim","messages":[{{"role":"user","content":"{}"}}]}}"#, "x".repeat(4_000));
    for (body, status, code) in [
        ("{\"model\":", 400, "malformed"),
        (r#"{"model":"sim"}"#, 400, "malformed"),
        (r#"{"model":"other","messages":[]}"#, 404, "model"),
    ] {
        let (got, answer) = post(serve.port, chat, body);
        assert_eq!(got, status, "{body}: {answer}");
        assert!(answer.contains(r#""error":{"#) && answer.contains(code), "{answer}");
    }
    assert_eq!(post(serve.port, chat, &long).0, 200);
    assert_eq!(get(serve.port, chat).unwrap().0, 405);
    let (status, models) = get(serve.port, "/v1/models").unwrap();
    assert!(status == 200 && models.contains(r#""id":"sim""#), "{models}");
    for port in [serve.port, serve.admin] {
        assert_eq!(get(port, "/health").unwrap().0, 200);
        assert_eq!(get(port, "/ready").unwrap().0, 200);
    }
    assert_eq!(get(serve.admin, "/nothing").unwrap().0, 404);
    serve.stop();
    let database = serve.database();
    let refusals: Vec<String> = rows(&database, "select refusal from v_requests where refusal is not null order by 1")
        .await
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(refusals, ["malformed-body", "malformed-body", "unknown-model"]);
    assert_eq!(
        number(&database, "select count(*) from decisions").await,
        number(&database, "select count(*) from outcomes").await
    );
}

#[tokio::test]
async fn a_body_over_the_limit_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (port, admin) = (free_port(), free_port());
    std::fs::write(
        folder.path().join("policies.toml"),
        format!(
            "[server]\nlisten = \"127.0.0.1:{port}\"\nmax_body_bytes = 2048\n[admin]\nlisten = \"127.0.0.1:{admin}\"\n{FLEET}"
        ),
    )
    .unwrap();
    let mut child =
        gorgo().arg("serve").current_dir(folder.path()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let ready = (0..2_000).any(|_| {
        std::thread::park_timeout(std::time::Duration::from_millis(10));
        matches!(get(admin, "/ready"), Some((200, _)))
    });
    assert!(ready);
    let body = format!(r#"{{"model":"sim","messages":[{{"role":"user","content":"{}"}}]}}"#, "x".repeat(4_000));
    let (status, answer) = post(port, "/v1/chat/completions", &body);
    assert_eq!(status, 413);
    assert!(answer.contains("max_body_bytes = 2048"), "{answer}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn a_killed_router_leaves_a_sound_database_and_the_next_one_goes_on() {
    let mut serve = Serve::start("", "");
    serve.replay(&trace(serve.folder.path(), 200), &[]);

    // A second process on the same file is refused by name, whatever its ports.
    let second = serve.folder.path().join("second.toml");
    let (port, admin) = (free_port(), free_port());
    std::fs::write(
        &second,
        format!("[server]\nlisten = \"127.0.0.1:{port}\"\n[admin]\nlisten = \"127.0.0.1:{admin}\"\n{FLEET}"),
    )
    .unwrap();
    let refused = gorgo().args(["serve", "--config"]).arg(&second).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(74), "{said}");
    assert!(said.contains("history.db") && said.contains(&serve.child.id().to_string()), "{said}");

    serve.signal("KILL");
    serve.child.wait().unwrap();
    let database = serve.database();
    let sound: String = rows(&database, "pragma integrity_check").await[0].get(0);
    assert_eq!(sound, "ok");
    let before = number(&database, "select count(*) from decisions").await;
    let highest = number(&database, "select max(decision_id) from decisions").await;
    assert!(before > 0 && before <= 200);

    let folder = std::mem::replace(&mut serve.folder, tempfile::tempdir().unwrap());
    let mut next = Serve::start_in(folder, "", "");
    assert!(next.log().contains("did not end cleanly"), "{}", next.log());
    next.replay(&trace(next.folder.path(), 50), &[]);
    assert_eq!(next.stop().code(), Some(0));
    assert_eq!(number(&database, "select count(*) from decisions").await, before + 50);
    let lowest = number(&database, "select min(decision_id) from decisions where run_id = 2").await;
    assert!(lowest > highest, "ids go on rising");
}

/// A drain whose time runs out is not reported as drained: the answer is cut off, and the database says so.
#[cfg(target_os = "linux")]
#[test]
fn without_a_file_handle_clients_are_refused_and_later_served_again() {
    use std::io::Read;
    use std::net::TcpStream;
    use std::time::Duration;

    const CLIENTS: usize = 60;
    let serve = Serve::start("default_policy = \"round-robin\"", "");
    let limit = |files: usize| {
        let limit = format!("--nofile={files}:");
        let pid = serve.child.id().to_string();
        assert!(std::process::Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap().success());
    };
    let open = std::fs::read_dir(format!("/proc/{}/fd", serve.child.id())).unwrap().count();
    limit(open + 20);
    let mut clients: Vec<TcpStream> =
        (0..CLIENTS).map(|_| TcpStream::connect(("127.0.0.1", serve.port)).unwrap()).collect();
    // The last of them gets an answer; the accepted ones get none, because they sent no request.
    let mut text = String::new();
    let last = clients.last_mut().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    last.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("too many open connections"), "{text}");
    drop(clients);
    limit(open + 200);
    let body = r#"{"model":"sim","max_tokens":2,"messages":[{"role":"user","content":"again"}]}"#;
    // Handles are freed when the router notices the closed connections.
    let served = (0..200).find(|_| {
        std::thread::park_timeout(Duration::from_millis(50));
        post(serve.port, "/v1/chat/completions", body).0 == 200
    });
    assert!(served.is_some(), "{}", serve.log());
}

#[tokio::test]
async fn a_drain_that_runs_out_of_time_says_so() {
    let mut serve = Serve::start("", "[store]\npath = \"history.db\"");
    let config = serve.folder.path().join("policies.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    serve.stop();
    std::fs::write(&config, text.replace("[admin]", "drain_secs = 0\n[admin]").replace("speed = 500.0", "speed = 0.1"))
        .unwrap();
    let mut child =
        gorgo().args(["serve", "--config"]).arg(&config).stderr(std::process::Stdio::null()).spawn().unwrap();
    let listening = (0..2_000).any(|_| {
        std::thread::park_timeout(std::time::Duration::from_millis(10));
        matches!(get(serve.admin, "/ready"), Some((200, _)))
    });
    assert!(listening);
    let port = serve.port;
    let body = r#"{"model":"sim","stream":true,"max_tokens":100000,"messages":[{"role":"user","content":"hi"}]}"#;
    let client = std::thread::spawn(move || post(port, "/v1/chat/completions", body));
    let running = (0..2_000).any(|_| {
        std::thread::park_timeout(std::time::Duration::from_millis(10));
        serve.gauges().iter().any(|(name, value)| name.starts_with("gorgo_inflight") && *value == 1.0)
    });
    assert!(running);
    let sent = std::process::Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let (_, answer) = client.join().unwrap();
    assert!(answer.contains("router_shutdown"), "{answer}");
    let database = serve.database();
    let last: String = rows(&database, "select text from events order by rowid desc limit 1").await[0].get(0);
    assert!(last.contains("cut off"), "{last}");
    assert_eq!(number(&database, "select count(*) from v_requests where error = 'shutdown'").await, 1);
}

#[test]
fn exit_codes_say_whose_fault_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("policies.toml");
    let run = |text: &str, flags: &[&str]| {
        std::fs::write(&config, text).unwrap();
        let done = gorgo().args(["serve", "--config"]).arg(&config).args(flags).output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let good = format!("[server]\nlisten = \"127.0.0.1:{port}\"\n{FLEET}");
    let (code, said) = run(&good, &[]);
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains(&port.to_string()), "{said}");
    let (code, said) = run(&good.replace("listen", "lisen"), &[]);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("policies.toml:2: server.lisen: unknown key") && said.contains("`listen`"), "{said}");
    assert!(!folder.path().join("absent.db").exists());
    let (code, said) = run(&good, &["--policy", "gorg"]);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("did you mean `gorgo`?") && said.ends_with(": 1 fault\n"), "{said}");
    let (code, said) = run(&good, &["--set", "store.path=\"no/such/folder/history.db\""]);
    assert_eq!(code, Some(74), "{said}");
    assert_eq!(run(&good, &["--wrong"]).0, Some(2));
}
