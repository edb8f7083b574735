//! Learned weights and rates, read for other machines.

use super::*;
use crate::HistoryReader;
use gorgo_routing::model::{GenerationVerdict, WeightRecord};

#[tokio::test]
async fn the_weights_that_won_last_come_back_and_those_on_trial_do_not() {
    let bench = StoreFixture::new();
    let weights = |generation: u64, n: u32, rtt: f64| {
        let values = vec![rtt, 1.0, 0.5];
        StoreRecord::Weights(WeightRecord {
            policy: PolicyBuildId(0),
            at: at(n),
            generation: Generation(generation),
            values,
        })
    };
    let ended = |generation: u64, verdict: Option<GenerationVerdict>| {
        let ended = verdict.map(|_| at(5));
        StoreRecord::Generation(Box::new(GenerationRecord { ended, verdict, ..began(generation) }))
    };
    bench
        .write(vec![
            ended(1, Some(GenerationVerdict::Accepted)),
            weights(1, 2, 0.4),
            ended(2, Some(GenerationVerdict::Rejected)),
            weights(2, 3, 0.9),
            ended(3, None),
            weights(3, 4, 1.5),
        ])
        .await;
    let reader = HistoryReader::open(&bench.path()).await.unwrap();
    let all = reader.incumbents().await.unwrap();
    let rates = reader.newest_rates().await.unwrap();
    reader.close().await;
    let gorgo = all.iter().find(|one| one.policy == "gorgo").unwrap();
    assert_eq!((gorgo.generation, gorgo.terms[0].clone()), (1, ("rtt".to_owned(), 0.4)));
    assert!(all.iter().any(|one| one.policy != "gorgo" && one.generation == 0), "{all:?}");
    assert_eq!(rates, []);
}
