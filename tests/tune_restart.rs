//! A killed router continues where it was: weights, step size and number of generations, and the caches of its engines,
//! which live on outside it, except those of an engine that restarted meanwhile.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Row};
use tempfile::TempDir;

use crate::program::{Serve, free_port, gorgo};

/// Conversations at a time, and turns of each; then another takes its place.
const CONVERSATIONS: usize = 36;
const TURNS: usize = 12;
/// Engines take their times this much faster than real ones.
const SPEED: &str = "100";

/// Small trials, so that several end within a second of traffic, and steps that each verdict changes; no limit of concentration, whose window is of seconds.
const TUNED: &str = r#"
[index]
snapshot_ms = 100
[probe]
interval_ms = 200
[scrape]
interval_ms = 200
[store]
flush_ms = 20
[policy.tuned]
unit = "raw"
[[policy.tuned.term]]
kind = "rtt"
weight = { init = 0.276, min = 0.05, max = 2.0, tune = true }
[[policy.tuned.term]]
kind = "prefill"
weight = 1.0
[[policy.tuned.term]]
kind = "queue"
weight = { init = 0.5, min = 0.05, max = 0.5, tune = true }
[policy.tuned.tune]
objective = "ttft-e2e"
optimizer = { kind = "es-1plus1", window = 1 }
blocks = { requests = 20, washout_requests = 2, min_pairs = 2, max_pairs = 3 }
"#;

/// An engine in its own process. Killed when dropped.
struct Engine {
    port: u16,
    child: Child,
}

impl Engine {
    fn start(port: u16) -> Self {
        let mut child = gorgo()
            .args(["engine", "--speed", SPEED, "--rtt-ms", "2", "--listen", &format!("127.0.0.1:{port}")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The engine prints its address once it listens.
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains(&port.to_string()), "{line}");
        Self { port, child }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Already gone if the test stopped it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fleet(engines: &[Engine]) -> String {
    let names = ["a", "b", "c"].iter().zip(engines);
    let replica = |(name, engine): (&&str, &Engine)| {
        let port = engine.port;
        format!(
            "[[replica]]\nname = \"{name}\"\nengine = \"sglang\"\nurl = \"http://127.0.0.1:{port}\"\nmodels = [\"sim\"]\n"
        )
    };
    names.map(replica).collect::<Vec<_>>().join("")
}

fn serve(folder: TempDir, engines: &[Engine], flags: &[&str]) -> Serve {
    let rest = format!("{TUNED}{}", fleet(engines));
    Serve::start_with(folder, "default_policy = \"tuned\"", &rest, flags)
}

/// Rows `from` to `to` of an endless stream of conversations, each turn four blocks longer than the one before.
fn trace(folder: &Path, from: usize, to: usize) -> PathBuf {
    let path = folder.join("trace.jsonl");
    let line = |row: usize| {
        let (place, round) = (row % CONVERSATIONS, row / CONVERSATIONS);
        // Each begins at another turn, so that not all end at once.
        let turn = round + place % TURNS;
        let conversation = place + turn / TURNS * CONVERSATIONS;
        let ids: Vec<usize> = (0..(turn % TURNS + 1) * 4).map(|block| conversation * 1_000 + block).collect();
        let (tokens, at) = (ids.len() * 64, (row - from) * 3);
        format!(r#"{{"timestamp":{at},"input_length":{tokens},"output_length":4,"hash_ids":{ids:?}}}"#)
    };
    std::fs::write(&path, (from..to).map(line).collect::<Vec<_>>().join("\n")).unwrap();
    path
}

async fn rows(database: &Path, query: &str) -> Vec<sqlx::sqlite::SqliteRow> {
    let mut connection = SqliteConnectOptions::new().filename(database).read_only(true).connect().await.unwrap();
    sqlx::query(sqlx::AssertSqlSafe(query.to_owned())).fetch_all(&mut connection).await.unwrap()
}

async fn number(database: &Path, query: &str) -> i64 {
    rows(database, query).await[0].get(0)
}

/// Share of prompt tokens that engines had, of the last 500 requests of a run or of its first.
async fn hit_rate(database: &Path, run: i64, order: &str) -> f64 {
    let query = format!(
        "select sum(cached_tokens) * 1.0 / sum(prompt_tokens) from (select o.cached_tokens, o.prompt_tokens from \
         decisions d join outcomes o using (decision_id) where d.run_id = {run} and o.error is null \
         and o.cached_tokens is not null order by d.decision_id {order} limit 500)"
    );
    rows(database, &query).await[0].get(0)
}

/// Cached tokens predicted for the first 20 requests of a run.
async fn believed_at_first(database: &Path, run: i64) -> i64 {
    let query = format!(
        "select sum(cached) from (select max(c.cached_tokens) as cached from decisions d join candidates c \
         using (decision_id) where d.run_id = {run} group by d.decision_id order by d.decision_id limit 20)"
    );
    number(database, &query).await
}

/// Sends rows from `from` on until a generation is on trial that has scored requests and another step size than at first, then kills the router.
async fn kill_in_mid_trial(serve: &mut Serve, from: usize, least: i64) -> usize {
    let database = serve.database();
    let before = number(&database, "select count(*) from decisions").await;
    let mut client = gorgo()
        .args(["replay", "--json", "--model", "sim", "--max-in-flight", "8", "--to", &serve.url()])
        .arg(trace(serve.folder.path(), from, from + 6_000))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mid_trial = "select count(*) from generations g where g.verdict is null and g.sigma <> 0.5 and (select count(*) from decisions d \
         where d.generation_id = g.generation_id and d.run_id = g.run_id and d.counted = 1) >= 5";
    let mut sent = 0;
    for _ in 0..6_000 {
        std::thread::park_timeout(std::time::Duration::from_millis(10));
        sent = number(&database, "select count(*) from decisions").await - before;
        if sent >= least && number(&database, mid_trial).await > 0 {
            break;
        }
        assert!(client.try_wait().unwrap().is_none(), "the trace ended before a trial was under way: {sent} sent");
    }
    serve.signal("KILL");
    serve.child.wait().unwrap();
    client.kill().unwrap();
    client.wait().unwrap();
    assert!(sent >= least, "{sent}");
    from + usize::try_from(number(&database, "select count(*) from decisions").await - before).unwrap()
}

/// The next router on the same database, with the same ports of engines.
fn next(serve: &mut Serve, engines: &[Engine], flags: &[&str]) -> Serve {
    let folder = std::mem::replace(&mut serve.folder, tempfile::tempdir().unwrap());
    self::serve(folder, engines, flags)
}

/// The log, after the snapshot of every engine was confirmed or dropped.
fn log_when_settled(serve: &Serve) -> String {
    for _ in 0..2_000 {
        let log = serve.log();
        if log.matches("prefix index re").count() == 3 {
            return log;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    panic!("engines never settled: {}", serve.log());
}

#[tokio::test]
async fn a_killed_router_goes_on_with_its_tuner_and_its_engines_caches() {
    let mut engines: Vec<Engine> = (0..3).map(|_| Engine::start(free_port())).collect();
    let mut first = serve(tempfile::tempdir().unwrap(), &engines, &[]);
    let sent = kill_in_mid_trial(&mut first, 0, 1_200).await;
    let database = first.database();

    // The state when it was killed.
    let open =
        rows(&database, "select generation_id, sigma, parent_id, policy_id from generations where verdict is null")
            .await;
    let (cut, sigma, parent, policy): (i64, f64, i64, i64) =
        (open[0].get(0), open[0].get(1), open[0].get(2), open[0].get(3));
    assert!(open.len() == 1 && cut >= 3, "generation {cut}");
    let weights_of = |run: i64, generation: i64| {
        format!(
            "select slot, value from weights where run_id = {run} and policy_id = {policy} \
             and generation_id = {generation} group by slot order by slot"
        )
    };
    let weights = |found: Vec<sqlx::sqlite::SqliteRow>| -> BTreeMap<i64, u64> {
        found.iter().map(|row| (row.get(0), row.get::<f64, _>(1).to_bits())).collect()
    };
    let before = weights(rows(&database, &weights_of(1, parent)).await);
    assert_eq!(before.len(), 3);

    // The second run: killed as well.
    let mut second = next(&mut first, &engines, &[]);
    let log = log_when_settled(&second);
    assert_eq!(log.matches("prefix index restored").count(), 3, "{log}");
    assert_eq!(log.matches("learned rates resumed").count(), 3, "{log}");
    assert!(!log.contains("refused"), "{log}");
    // Warm-up and some of the first trial, which does not end within the rest.
    let part = trace(second.folder.path(), sent, sent + 210);
    second.replay(&part, &["--max-in-flight", "8"]);
    let database = second.database();
    let verdict = rows(
        &database,
        &format!(
            "select verdict, reason, (select count(*) from generation_scores s where s.policy_id = g.policy_id and \
             s.generation_id = g.generation_id) from generations g where generation_id = {cut} and policy_id = {policy}"
        ),
    )
    .await;
    let (verdict, reason, scores): (String, String, i64) = (verdict[0].get(0), verdict[0].get(1), verdict[0].get(2));
    assert_eq!((verdict.as_str(), reason.as_str(), scores), ("cut", "cut: the router was killed", 0));
    let begun =
        rows(&database, "select generation_id, sigma, parent_id from generations where run_id = 2 and verdict is null")
            .await;
    let (number_2, sigma_2, parent_2): (i64, f64, i64) = (begun[0].get(0), begun[0].get(1), begun[0].get(2));
    println!("generation {cut} cut, σ {sigma}; then {number_2}, σ {sigma_2}, from {parent_2} as before from {parent}");
    assert_eq!((number_2, sigma_2.to_bits(), parent_2), (cut + 1, sigma.to_bits(), parent));
    assert_eq!(weights(rows(&database, &weights_of(2, parent)).await), before);

    let sent = kill_in_mid_trial(&mut second, sent + 210, 500).await;
    let (last, again) = (hit_rate(&database, 1, "desc").await, hit_rate(&database, 2, "asc").await);
    println!("hit rate of the last 500 before: {:.2} %, of the first 500 after: {:.2} %", last * 100.0, again * 100.0);
    assert!(last > 0.5, "the caches are of use: {last}");
    assert!((last - again).abs() <= 0.05, "{last} before, {again} after");

    // An engine that restarted unnoticed gets no cache credit before its first request; the others do.
    engines[1].kill();
    let port = engines[1].port;
    engines[1] = Engine::start(port);
    let mut third = next(&mut second, &engines, &[]);
    let log = log_when_settled(&third);
    assert_eq!(log.matches("prefix index restored").count(), 2, "{log}");
    assert!(log.contains("stored prefix index refused") && log.contains("the engine restarted"), "{log}");
    // Again warm-up and some of a trial.
    let part = trace(third.folder.path(), sent, sent + 230);
    third.replay(&part, &["--max-in-flight", "8"]);
    assert_eq!(third.stop().code(), Some(0), "{}", third.log());
    // Decisions up to the first that b got, which is the first to put anything there; of the others the first 20.
    let until_b = "(select coalesce(min(e.decision_id), (select max(decision_id) from decisions)) from decisions e \
         join replicas s on s.replica_id = e.replica_id where e.run_id = 3 and s.name = 'b')";
    let first_20 = "(select max(decision_id) from (select decision_id from decisions where run_id = 3 \
         order by decision_id limit 20))";
    let credit = |name: &str, until: &str| {
        format!(
            "select max(c.cached_tokens) from candidates c join decisions d using (decision_id) join replicas r \
             on r.replica_id = c.replica_id where d.run_id = 3 and r.name = '{name}' and d.decision_id <= {until}"
        )
    };
    let database = third.database();
    let believed = [
        number(&database, &credit("a", first_20)).await,
        number(&database, &credit("b", until_b)).await,
        number(&database, &credit("c", first_20)).await,
    ];
    println!("most tokens believed cached at a, at b (restarted, before its first request), at c: {believed:?}");
    assert_eq!(believed[1], 0);
    // Which of the two holds what the first 20 ask for depends on where the tuner's weights had sent it.
    assert!(believed[0] + believed[2] > 0);

    // A clean stop records at once that the trial is not counted, and writes a snapshot.
    assert_eq!(number(&database, "select count(*) from generations where verdict is null").await, 0);
    let cut_by_stop = "select count(*) from generations where run_id = 3 and verdict = 'cut' \
         and ended_at_us is not null and reason = 'cut: the router stopped'";
    assert_eq!(number(&database, cut_by_stop).await, 1);
    let at_stop =
        "select count(*) from index_snapshots where taken_at_us >= (select max(received_at_us) from decisions)";
    assert_eq!(number(&database, at_stop).await, 3);

    // A cold start has no state.
    let mut cold = next(&mut third, &engines, &["--cold"]);
    assert!(!cold.log().contains("restored") && !cold.log().contains("resumed"), "{}", cold.log());
    let part = trace(cold.folder.path(), sent + 300, sent + 400);
    cold.replay(&part, &["--max-in-flight", "1"]);
    assert_eq!(cold.stop().code(), Some(0));
    let database = cold.database();
    let (warm, cold) = (believed_at_first(&database, 2).await, believed_at_first(&database, 4).await);
    println!("tokens believed cached by the first 20 requests of a warm start: {warm}, of a cold one: {cold}");
    assert!(warm > 0 && cold == 0);
}
