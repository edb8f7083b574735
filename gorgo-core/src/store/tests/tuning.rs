//! What a tuner goes on from after a restart.

use super::{Bench, generation, history};
use crate::store::LastTuning;

#[tokio::test]
async fn tune_the_newest_state_and_the_highest_number_come_back_and_open_generations_are_cut() {
    let bench = Bench::new();
    bench.write(history()).await;
    assert_eq!(generation().len(), 6);
    let info = super::run_info().policies[0].clone();
    let mut store = crate::store::open(&bench.path()).await.unwrap();
    let last = store.last_tuning(&info).await.unwrap();
    assert_eq!(last, Some(LastTuning { state: Some("{\"version\":1}".to_owned()), generation: 2 }));
    let mut other = info.clone();
    other.text.push_str("# another policy");
    assert_eq!(store.last_tuning(&other).await.unwrap(), None);
    store.close().await.unwrap();
    bench.write([]).await;
    assert_eq!(bench.number("SELECT count(*) FROM generations WHERE verdict = 'cut' AND generation_id = 2").await, 1);
    assert_eq!(bench.number("SELECT count(*) FROM generations WHERE verdict = 'rejected'").await, 1);
    assert_eq!(bench.number("SELECT count(*) FROM alarms WHERE to_us IS NULL").await, 0);
}
