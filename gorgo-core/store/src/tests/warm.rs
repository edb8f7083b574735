//! The state that a restart continues from: one row per replica, the newest, and only of replicas in the fleet.

use super::{StoreFixture, at, run_info};
use crate::{StoredIndex, StoredLearning, StoredProbe};
use gorgo_routing::model::{EngineEpoch, IndexRecord, LearnedRecord, ProbeRecord, ReplicaId, StoreRecord};

fn index(n: u32, byte: u8) -> StoreRecord {
    let engine = EngineEpoch { started_ms: Some(1_796_000_000_000), prompt_tokens: Some(12.0) };
    StoreRecord::Index(Box::new(IndexRecord { replica: ReplicaId(1), at: at(n), engine, blocks: vec![byte; 40] }))
}

fn learned(n: u32, state: &str) -> StoreRecord {
    StoreRecord::Learned(LearnedRecord { replica: ReplicaId(1), at: at(n), state: state.to_owned() })
}

fn probe(n: u32, rtt_us: Option<i64>) -> StoreRecord {
    StoreRecord::Probe(ProbeRecord { replica: ReplicaId(1), at: at(n), rtt_us })
}

#[tokio::test]
async fn the_newest_of_each_replica_comes_back() {
    let bench = StoreFixture::new();
    let probes = [probe(1, Some(37_000)), probe(2, None), probe(3, Some(38_000))];
    let rows = [index(1, 1), learned(1, "{}"), index(5, 2), learned(5, "{\"version\":1}")];
    bench.write(rows.into_iter().chain(probes)).await;
    assert_eq!(bench.number("SELECT count(*) FROM index_snapshots").await, 1);
    assert_eq!(bench.number("SELECT bytes FROM v_index_snapshots").await, 40);

    let [other, replica, _] = <[_; 3]>::try_from(run_info().replicas).unwrap();
    let mut store = crate::open(&bench.path()).await.unwrap();
    let engine = EngineEpoch { started_ms: Some(1_796_000_000_000), prompt_tokens: Some(12.0) };
    let stored = StoredIndex { taken: at(5), engine, blocks: vec![2; 40] };
    assert_eq!(store.last_index(&replica).await.unwrap(), Some(stored));
    let state = "{\"version\":1}".to_owned();
    assert_eq!(store.last_learned(&replica).await.unwrap(), Some(StoredLearning { at: at(5), state }));
    let round_trip = |n, rtt_us| StoredProbe { at: at(n), rtt_us };
    let both = [round_trip(1, 37_000), round_trip(3, 38_000)];
    assert_eq!(store.last_probes(&replica, at(0), 9).await.unwrap(), both);
    assert_eq!(store.last_probes(&replica, at(2), 9).await.unwrap(), both[1..]);
    assert_eq!(store.last_index(&other).await.unwrap(), None);
    let mut moved = replica.clone();
    moved.url = Some("http://127.0.0.1:2".to_owned());
    assert_eq!(store.last_learned(&moved).await.unwrap(), None);
    assert_eq!(store.last_probes(&moved, at(0), 9).await.unwrap(), []);
    store.close().await.unwrap();
}
