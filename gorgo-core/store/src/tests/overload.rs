//! A slow, locked or full disk: requests never wait, memory is bounded, and lost rows are counted.

use super::{StoreFixture, at, decision, outcome, run_info, table};
use crate::{StoreError, StoreTrouble};
use gorgo_observe::RecordListener;
use gorgo_routing::model::{Generation, PolicyBuildId, StoreRecord, WeightRecord};

fn boxed(n: u32) -> StoreRecord {
    StoreRecord::Decision(Box::new(decision(n, 0)))
}

#[tokio::test]
async fn a_full_queue_drops_and_says_so() {
    let mut bench = StoreFixture::new();
    bench.settings.queue_decisions = 10;
    let (sink, writer) = bench.begin(&run_info()).await;
    for n in 0..15 {
        sink.record(boxed(n));
    }
    assert_eq!((sink.queued_decisions(), sink.queued_rows(), sink.dropped_rows()), (10, 40, 20));
    // Outcomes still fit in, and new weights always do.
    for n in 0..50 {
        sink.record(StoreRecord::Outcome(super::ROUTE, Box::new(outcome(n, None))));
    }
    assert_eq!((sink.queued_rows(), sink.dropped_rows()), (80, 30));
    let weights = WeightRecord { policy: PolicyBuildId(0), at: at(1), generation: Generation(1), values: vec![1.0; 3] };
    sink.record(StoreRecord::Weights(weights));
    assert_eq!((sink.queued_rows(), sink.dropped_rows()), (83, 30));

    bench.spawn(writer);
    sink.finish(at(100)).await.unwrap();
    assert_eq!((sink.queued_decisions(), sink.queued_rows(), sink.dropped_rows()), (0, 0, 30));
    let mut connection = bench.connect().await;
    insta::assert_snapshot!(table(&mut connection, "SELECT * FROM v_gaps").await, @r"
    from_at | to_at | run_id | table_name | from_us | to_us | rows
    2026-11-30T03:12:05.010Z | 2026-11-30T03:12:05.014Z | 1 | decisions | 1796008325010000 | 1796008325014000 | 5
    2026-11-30T03:12:05.010Z | 2026-11-30T03:12:05.014Z | 1 | candidates | 1796008325010000 | 1796008325014000 | 15
    2026-11-30T03:12:05.040Z | 2026-11-30T03:12:05.049Z | 1 | outcomes | 1796008325040000 | 1796008325049000 | 10
    ");
    assert_eq!(bench.number("SELECT count(*) FROM decisions").await, 10);
    assert_eq!(bench.number("SELECT count(*) FROM weights WHERE generation_id = 1").await, 3);
}

/// Another process holds the write lock: rows wait, the queue fills to its bound, and afterwards written + lost = sent.
#[tokio::test]
async fn a_lock_held_elsewhere_only_delays() {
    let mut bench = StoreFixture::new();
    bench.settings.queue_decisions = 100;
    bench.settings.flush_decisions = 30;
    let (sink, writer) = bench.begin_impatient().await;
    let mut shell = bench.connect().await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut shell).await.unwrap();
    bench.spawn(writer);
    for n in 0..40 {
        sink.record(boxed(n));
    }
    bench.hears(|told| matches!(told, StoreTrouble::Blocked { .. })).await;
    for n in 40..150 {
        sink.record(boxed(n));
    }
    assert_eq!(sink.queued_decisions(), 100, "records that the writer has taken count too");
    sqlx::query("ROLLBACK").execute(&mut shell).await.unwrap();
    sink.flush().await.unwrap();
    assert_eq!(bench.number("SELECT count(*) FROM decisions").await, 100);
    assert_eq!(bench.number("SELECT rows FROM gaps WHERE table_name = 'decisions'").await, 50);
    assert_eq!(sink.dropped_rows(), 50 * 4);
    assert!(matches!(bench.told()[..], [StoreTrouble::Blocked { .. }, StoreTrouble::Recovered]), "{:?}", bench.told());

    // And it goes on as before.
    sink.record(boxed(200));
    sink.finish(at(300)).await.unwrap();
    assert_eq!(bench.number("SELECT count(*) FROM decisions").await, 101);
    assert_eq!(bench.number("SELECT count(*) FROM runs WHERE ended_at_us IS NOT NULL").await, 1);
}

/// A full disk at the end of a run: the write is retried a few times, then reported; earlier rows are intact.
#[tokio::test]
async fn a_full_disk_at_the_end_is_told() {
    let bench = StoreFixture::new();
    let (sink, mut writer) = bench.begin_impatient().await;
    let limit = bench.number("PRAGMA page_count").await + 4;
    let limit = sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {limit}"));
    sqlx::query(limit).execute(&mut writer.connection).await.unwrap();
    bench.spawn(writer);
    sink.record(boxed(0));
    sink.flush().await.unwrap();
    for n in 1..1_000 {
        sink.record(boxed(n));
    }
    let error = sink.finish(at(1_000)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unwritten { rows: 3_996, .. }), "{error}");
    assert!(error.to_string().contains("full"), "{error}");
    assert_eq!((sink.queued_rows(), sink.dropped_rows()), (0, 3_996));
    assert_eq!(bench.number("SELECT count(*) FROM decisions").await, 1);
    assert_eq!(bench.number("SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'").await, 1);
    assert!(matches!(sink.flush().await, Err(StoreError::Ended)));
}

/// A row that the schema refuses does not prevent the rest of its batch from being written.
#[tokio::test]
async fn a_refused_row_is_counted() {
    let bench = StoreFixture::new();
    bench.write([boxed(0), boxed(0), boxed(1)]).await;
    assert_eq!(bench.number("SELECT count(*) FROM decisions").await, 2);
    assert_eq!(bench.number("SELECT sum(rows) FROM gaps").await, 4);
    assert!(matches!(bench.told()[..], [StoreTrouble::Lost { rows: 4, .. }]), "{:?}", bench.told());
}

/// A loss is reported once, not with each batch, and again when it recurs after a complete batch.
#[tokio::test]
async fn a_lasting_loss_is_told_once() {
    let bench = StoreFixture::new();
    let sink = bench.start().await;
    for (n, told) in [(0, 0), (0, 1), (0, 1), (1, 1), (1, 2)] {
        sink.record(boxed(n));
        sink.flush().await.unwrap();
        assert_eq!(bench.told().len(), told, "{n}");
    }
    assert_eq!(sink.dropped_rows(), 3 * 4);
}

/// A batch is written as soon as it is full, without waiting for the timer.
#[tokio::test]
async fn a_full_batch_wakes_the_writer() {
    let mut bench = StoreFixture::new();
    bench.settings.flush_decisions = 5;
    let sink = bench.start().await;
    for n in 0..5 {
        sink.record(boxed(n));
    }
    while sink.queued_decisions() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.number("SELECT count(*) FROM decisions").await, 5);
}

/// Without a call to `finish`, dropping the last sink flushes; only the run's end is missing.
#[tokio::test]
async fn dropping_every_sink_flushes() {
    let bench = StoreFixture::new();
    let sink = bench.start().await;
    sink.record(boxed(0));
    drop(sink);
    bench.tracker.close();
    bench.tracker.wait().await;
    assert_eq!(bench.number("SELECT count(*) FROM decisions").await, 1);
    assert_eq!(bench.number("SELECT count(*) FROM runs WHERE ended_at_us IS NULL").await, 1);
}
