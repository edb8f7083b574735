//! A killed router leaves the file and its log as they are at that moment. Copies of both, taken while the writer runs,
//! stand in for that state.

use std::fs;
use std::path::Path;

use super::{StoreFixture, connect, decision, history, outcome, run_info};
use crate::open;
use gorgo_observe::RecordListener;
use gorgo_routing::model::StoreRecord;

/// Copies the database and the first `log_part` thousandths of its log.
fn copy(from: &Path, to: &Path, log_part: usize) {
    let log = |path: &Path| path.with_file_name(format!("{}-wal", path.file_name().unwrap().to_str().unwrap()));
    fs::copy(from, to).unwrap();
    let bytes = fs::read(log(from)).unwrap();
    fs::write(log(to), &bytes[..bytes.len() * log_part / 1_000]).unwrap();
}

#[tokio::test]
async fn a_killed_run_is_whole_and_visible() {
    let bench = StoreFixture::new();
    let sink = bench.start().await;
    history().into_iter().for_each(|record| sink.record(record));
    sink.flush().await.unwrap();
    sink.record(StoreRecord::Decision(Box::new(decision(50, 0))));
    let left = bench.folder.path().join("left.db");
    copy(&bench.path(), &left, 1_000);

    let store = open(&left).await.unwrap();
    assert_eq!(store.last_decision_id(), Some(super::id(9)), "what was not flushed is missing, no more");
    let trouble = Box::new(|trouble| panic!("{trouble:?}"));
    let clock = std::sync::Arc::new(super::FixedClock(super::START));
    let (next, writer) = store.begin_run(&run_info(), &bench.settings, clock, trouble).await.unwrap();
    bench.spawn(writer);
    next.finish(super::at(5)).await.unwrap();
    let mut connection = connect(&left).await;
    let check: String = sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut connection).await.unwrap();
    assert_eq!(check, "ok");
    let ended: Vec<bool> = sqlx::query_scalar("SELECT ended_at_us IS NOT NULL FROM runs ORDER BY run_id")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    assert_eq!(ended, [false, true]);
    let open_weights: i64 = sqlx::query_scalar("SELECT count(*) FROM weights WHERE to_us IS NULL AND run_id = 1")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(open_weights, 0, "the next run ends the weights of a killed one");
}

/// At whatever byte the log ends, only complete batches remain.
#[tokio::test]
async fn a_torn_log_loses_whole_batches_only() {
    let bench = StoreFixture::new();
    let sink = bench.start().await;
    for batch in 0..10_u32 {
        for n in batch * 20..(batch + 1) * 20 {
            sink.record(StoreRecord::Decision(Box::new(decision(n, 0))));
            sink.record(StoreRecord::Outcome(super::ROUTE, Box::new(outcome(n, None))));
        }
        sink.flush().await.unwrap();
    }
    let mut seen = std::collections::BTreeSet::new();
    for part in (0..=1_000).step_by(50) {
        let left = bench.folder.path().join(format!("left-{part}.db"));
        copy(&bench.path(), &left, part);
        open(&left).await.unwrap().close().await.unwrap();
        let mut connection = connect(&left).await;
        let check: String = sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut connection).await.unwrap();
        assert_eq!(check, "ok", "{part}");
        let counts: (i64, i64, i64) = sqlx::query_as(
            "SELECT (SELECT count(*) FROM decisions), (SELECT count(*) FROM candidates), (SELECT count(*) FROM outcomes)",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap();
        assert_eq!((counts.0 % 20, counts.1, counts.2), (0, 3 * counts.0, counts.0), "{part}");
        seen.insert(counts.0);
    }
    assert!(seen.contains(&200) && seen.len() > 3, "{seen:?}");
}
