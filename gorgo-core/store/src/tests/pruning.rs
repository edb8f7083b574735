//! The newest decisions stay, with the rows that belong to them; older ones go in small steps, and space is freed.

use super::{START, StoreFixture, at, attempt, decision, id, outcome, run_info};
use crate::StoreTrouble;
use gorgo_observe::RecordListener;
use gorgo_routing::model::{
    DecisionId, DecisionRecord, EventKind, EventRecord, ProbeRecord, ReplicaId, StoreRecord, UnixMicros,
};

const DAY_US: u64 = 86_400_000_000;

fn request(n: u32) -> [StoreRecord; 3] {
    [
        StoreRecord::Decision(Box::new(decision(n, 0))),
        StoreRecord::Attempt(attempt(n, 1, 0, None)),
        StoreRecord::Outcome(super::ROUTE, Box::new(outcome(n, Some(100)))),
    ]
}

fn probe(at: UnixMicros) -> StoreRecord {
    StoreRecord::Probe(ProbeRecord { replica: ReplicaId(0), at, rtt_us: Some(1) })
}

fn event(at: UnixMicros) -> StoreRecord {
    let text = String::new();
    StoreRecord::Event(EventRecord { at, kind: EventKind::ConfigChange, replica: None, text })
}

/// A store that is pruned when the test asks for it, and not when a batch is full.
fn patient() -> StoreFixture {
    let mut bench = StoreFixture::new();
    bench.settings.flush_decisions = bench.settings.queue_decisions;
    bench
}

/// Number of rows left in each table that is pruned.
async fn counts(bench: &StoreFixture) -> [i64; 6] {
    [
        bench.number("SELECT count(*) FROM decisions").await,
        bench.number("SELECT count(*) FROM candidates").await,
        bench.number("SELECT count(*) FROM attempts").await,
        bench.number("SELECT count(*) FROM outcomes").await,
        bench.number("SELECT count(*) FROM probes").await,
        bench.number("SELECT count(*) FROM events").await,
    ]
}

#[tokio::test]
async fn old_rows_go_with_their_children() {
    let mut bench = patient();
    bench.now = UnixMicros(START.0 + 40 * DAY_US);
    let sink = bench.start().await;
    for n in 0..2_500 {
        request(n).into_iter().for_each(|record| sink.record(record));
        sink.record(probe(at(n)));
    }
    let young = UnixMicros(START.0 + 11 * DAY_US);
    let young_id = DecisionId(i64::try_from(young.0 / 1_000).unwrap() << 20);
    for record in request(0) {
        sink.record(match record {
            StoreRecord::Decision(old) => {
                StoreRecord::Decision(Box::new(DecisionRecord { decision: young_id, received: young, ..*old }))
            }
            StoreRecord::Attempt(old) => {
                StoreRecord::Attempt(gorgo_routing::model::AttemptRecord { decision: young_id, ..old })
            }
            StoreRecord::Outcome(route, old) => StoreRecord::Outcome(
                route,
                Box::new(gorgo_routing::model::OutcomeRecord { decision: young_id, ..*old }),
            ),
            other => other,
        });
    }
    for record in [probe(young), event(START), event(young)] {
        sink.record(record);
    }
    sink.flush().await.unwrap();
    assert_eq!(counts(&bench).await, [2_501, 7_503, 2_501, 2_501, 2_501, 2]);
    sink.prune().await.unwrap();
    assert_eq!(counts(&bench).await, [1, 3, 1, 1, 1, 1]);
    assert_eq!(bench.number("SELECT decision_id FROM decisions").await, young_id.0);
    assert_eq!(bench.number("SELECT count(*) FROM weights").await, 13, "weights that are valid still stay");
    assert_eq!(bench.number("SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'").await, 1);
    assert_eq!(bench.told(), []);
}

#[tokio::test]
async fn a_step_is_small() {
    let mut bench = patient();
    bench.write((0..5_000).flat_map(request)).await;
    bench.now = UnixMicros(START.0 + 40 * DAY_US);
    let (_sink, mut writer) = bench.begin(&run_info()).await;
    writer.retention.step(&mut writer.connection, &bench.path(), bench.now).await.unwrap();
    assert_eq!(counts(&bench).await, [3_000, 9_000, 3_000, 3_000, 0, 0]);
    assert!(writer.retention.pause().is_some() && writer.retention.due(bench.now));
}

#[tokio::test]
async fn the_file_stays_below_its_limit() {
    let mut bench = patient();
    bench.settings.retention.max_size_mb = 3;
    let sink = bench.start().await;
    let requests = 16_000;
    for n in 0..requests {
        request(n).into_iter().for_each(|record| sink.record(record));
    }
    sink.flush().await.unwrap();
    let pages = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
    let before = bench.number(pages).await;
    assert!(before > 4 << 20, "{before} bytes: too few rows for this test");
    sink.prune().await.unwrap();
    let after = bench.number(pages).await;
    assert!(after <= 3 << 20, "{after}");
    let [decisions, candidates, attempts, outcomes, ..] = counts(&bench).await;
    assert!(decisions >= 2_000 && decisions < i64::from(requests), "{decisions}");
    assert_eq!([candidates, attempts, outcomes], [3 * decisions, decisions, decisions]);
    assert_eq!(bench.number("SELECT max(decision_id) FROM decisions").await, id(requests - 1).0);
    let first = bench.number("SELECT min(decision_id) FROM decisions").await;
    assert_eq!(first, id(requests - u32::try_from(decisions).unwrap()).0, "the oldest went first");
    sink.finish(at(requests)).await.unwrap();
    let file = i64::try_from(std::fs::metadata(bench.path()).unwrap().len()).unwrap();
    assert!(file <= 3 << 20, "{file}");
}

/// A reader that stays open makes the log grow: that is reported once, and the log truncated afterwards.
#[tokio::test]
async fn the_log_is_cut_back_when_its_reader_is_gone() {
    let bench = patient();
    let (sink, mut writer) = bench.begin_impatient().await;
    writer.retention.max_log_bytes = 100_000;
    bench.spawn(writer);
    sink.record(probe(START));
    sink.flush().await.unwrap();
    let mut shell = bench.connect().await;
    sqlx::query("BEGIN").execute(&mut shell).await.unwrap();
    sqlx::query("SELECT count(*) FROM probes").fetch_one(&mut shell).await.unwrap();
    for n in 0..2_000 {
        request(n).into_iter().for_each(|record| sink.record(record));
    }
    sink.flush().await.unwrap();
    sink.prune().await.unwrap();
    assert!(matches!(bench.told()[..], [StoreTrouble::WalTooLong { bytes }] if bytes > 100_000), "{:?}", bench.told());
    sqlx::query("COMMIT").execute(&mut shell).await.unwrap();
    sink.prune().await.unwrap();
    let mut log = bench.path().into_os_string();
    log.push("-wal");
    assert_eq!(std::fs::metadata(log).unwrap().len(), 0);
    assert_eq!(bench.told().len(), 1);
}
