//! Opening any file: it is used, migrated, or refused with a message that names it, and never destroyed.

use std::fs;

use super::{StoreFixture, at, connect, decision, history, id, refusal, run_info};
use crate::{HistoryReader, StoreError, open};
use gorgo_observe::RecordListener;
use gorgo_routing::model::StoreRecord;

#[tokio::test]
async fn a_second_writer_is_refused_by_name() {
    let bench = StoreFixture::new();
    let sink = bench.start().await;
    let error = refusal(&bench.path()).await;
    assert!(matches!(error, StoreError::InUse { pid: Some(pid), .. } if pid == std::process::id()), "{error}");
    let text = error.to_string();
    assert!(text.contains("history.db") && text.contains(&std::process::id().to_string()), "{text}");
    sink.finish(at(1)).await.unwrap();
    bench.tracker.close();
    bench.tracker.wait().await;
    open(&bench.path()).await.unwrap();
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_left_alone() {
    let bench = StoreFixture::new();
    bench.write((0..500).map(|n| StoreRecord::Decision(Box::new(decision(n, 0))))).await;
    let whole = fs::read(bench.path()).unwrap();
    let middle = whole.len() / 8192 * 4096;
    let mut broken_page = whole.clone();
    broken_page[middle..middle + 4096].fill(0xA5);
    let noise: Vec<u8> = (0..5_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0]).collect();
    for (what, bytes) in [("noise", noise), ("half", whole[..whole.len() / 2].to_vec()), ("page", broken_page)] {
        let path = bench.folder.path().join(what);
        fs::write(&path, &bytes).unwrap();
        let error = refusal(&path).await;
        assert!(matches!(error, StoreError::Damaged { .. }), "{what}: {error}");
        assert!(error.to_string().contains("move it away"), "{error}");
        let now = fs::read(&path).unwrap();
        let differing: Vec<usize> = (0..now.len().min(bytes.len())).filter(|at| now[*at] != bytes[*at]).collect();
        assert!(
            differing.is_empty() && now.len() == bytes.len(),
            "{what}: {} bytes, {} before; {:?}…",
            now.len(),
            bytes.len(),
            &differing[..differing.len().min(12)]
        );
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused_by_number() {
    let bench = StoreFixture::new();
    bench.write([]).await;
    let mut shell = bench.connect().await;
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (99, 'x', 1, x'00', 0)",
    )
    .execute(&mut shell)
    .await
    .unwrap();
    let error = refusal(&bench.path()).await;
    let newest = crate::open::schema::NEWEST;
    assert!(matches!(error, StoreError::Newer { found: 99, known, .. } if known == newest), "{error}");
    let error = HistoryReader::open(&bench.path()).await.unwrap_err();
    assert!(matches!(error, StoreError::Newer { .. }), "{error}");
}

#[tokio::test]
async fn a_changed_migration_is_refused() {
    let bench = StoreFixture::new();
    bench.write([]).await;
    let mut shell = bench.connect().await;
    sqlx::query("UPDATE _sqlx_migrations SET checksum = x'00'").execute(&mut shell).await.unwrap();
    let error = refusal(&bench.path()).await;
    assert!(matches!(error, StoreError::Migration { .. }), "{error}");
}

#[tokio::test]
async fn another_programs_database_is_refused_and_left_alone() {
    let bench = StoreFixture::new();
    fs::write(bench.path(), "").unwrap();
    let mut shell = bench.connect().await;
    sqlx::query("CREATE TABLE bookmarks (url TEXT)").execute(&mut shell).await.unwrap();
    drop(shell);
    let error = refusal(&bench.path()).await;
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    let mut shell = connect(&bench.path()).await;
    let tables: Vec<String> = sqlx::query_scalar("SELECT name FROM sqlite_schema").fetch_all(&mut shell).await.unwrap();
    assert_eq!(tables, ["bookmarks"]);
}

#[tokio::test]
async fn a_place_that_cannot_hold_a_file_is_named() {
    let bench = StoreFixture::new();
    let missing = bench.folder.path().join("no/such/history.db");
    let error = refusal(&missing).await;
    assert!(matches!(error, StoreError::Folder { .. }), "{error}");
    assert!(error.to_string().contains("no/such/history.db"), "{error}");
    assert!(!bench.folder.path().join("no").exists());
    fs::create_dir(bench.path()).unwrap();
    let error = refusal(&bench.path()).await;
    assert!(matches!(error, StoreError::NotWritable { .. }), "{error}");
}

#[tokio::test]
async fn a_reader_refuses_what_is_not_there_or_not_ready() {
    let bench = StoreFixture::new();
    let error = HistoryReader::open(&bench.path()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreadable { .. }), "{error}");
    assert!(!bench.path().exists());
    fs::write(bench.path(), "").unwrap();
    let error = HistoryReader::open(&bench.path()).await.unwrap_err();
    assert!(matches!(error, StoreError::Older { found: 0, .. }), "{error}");
}

/// An empty file counts as new; an existing database keeps its rows, its secret and its numbers.
#[tokio::test]
async fn a_file_of_before_goes_on() {
    let bench = StoreFixture::new();
    fs::write(bench.path(), "").unwrap();
    let store = open(&bench.path()).await.unwrap();
    let secret = store.secret();
    assert_eq!(store.last_decision_id(), None);
    store.close().await.unwrap();
    bench.write(history()).await;

    let store = open(&bench.path()).await.unwrap();
    assert_eq!(store.secret(), secret);
    assert_eq!(store.last_decision_id(), Some(id(9)));
    store.close().await.unwrap();

    // The fleet in another order, one replica moved; one policy changed.
    let mut run = run_info();
    run.replicas.reverse();
    run.replicas[0].region = "ap-chuncheon".to_owned();
    run.policies[1].text.push('#');
    let (sink, writer) = bench.begin(&run).await;
    bench.spawn(writer);
    sink.record(StoreRecord::Decision(Box::new(decision(20, 0))));
    sink.finish(at(2_000)).await.unwrap();
    assert_eq!(bench.number("SELECT count(*) FROM replicas").await, 3);
    assert_eq!(bench.number("SELECT count(*) FROM policies").await, 3);
    assert_eq!(bench.number("SELECT count(*) FROM configs").await, 1);
    assert_eq!(bench.number("SELECT count(*) FROM runs WHERE ended_at_us > started_at_us").await, 2);
    let reader = HistoryReader::open(&bench.path()).await.unwrap();
    let newest = reader.newest_decisions(1).await.unwrap();
    assert_eq!(newest[0].replica.as_deref(), Some("ap-seoul"));
    assert_eq!(newest[0].run, 2);
    let names: Vec<&str> = newest[0].candidates.iter().map(|candidate| &*candidate.replica).collect();
    assert_eq!(names, ["ap-seoul", "eu-frankfurt", "us-ashburn"], "in the order of the decision");
}

/// Each database has its own secret.
#[tokio::test]
async fn secrets_differ() {
    let (one, other) = (StoreFixture::new(), StoreFixture::new());
    assert_ne!(open(&one.path()).await.unwrap().secret(), open(&other.path()).await.unwrap().secret());
}
