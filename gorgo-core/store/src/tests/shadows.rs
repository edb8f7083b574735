//! Estimated scores of shadow policies, from stored probabilities.

use super::*;

/// Requests sent to two replicas at random, evenly; the first answers in 100 ms, the second in 300. One shadow policy
/// always takes the first, another one the replica that was chosen.
fn records(propensity: f64) -> Vec<StoreRecord> {
    let mut records = Vec::new();
    for n in 0..8_u32 {
        let replica = u16::from(n % 2 == 1);
        let mut row = decision(n, replica);
        row.propensity = propensity;
        row.shadows = vec![ShadowRecord { policy: PolicyBuildId(1), replica: ReplicaId(0), cost_milli: 1 }];
        records.push(StoreRecord::Decision(Box::new(row)));
        let ttft_ms = if replica == 0 { 100 } else { 300 };
        records.push(StoreRecord::Outcome(ROUTE, Box::new(outcome(n, Some(ttft_ms)))));
    }
    // Its client left: it says nothing of the choice.
    let mut row = decision(8, 0);
    row.shadows = vec![ShadowRecord { policy: PolicyBuildId(1), replica: ReplicaId(0), cost_milli: 1 }];
    records.push(StoreRecord::Decision(Box::new(row)));
    let gone = OutcomeRecord { error: Some(ErrorClass::ClientGone), ..outcome(8, Some(9_000)) };
    records.push(StoreRecord::Outcome(ROUTE, Box::new(gone)));
    records
}

async fn scores(records: Vec<StoreRecord>) -> (i64, f64, f64, f64, Option<f64>, Option<f64>, Option<f64>) {
    let bench = StoreFixture::new();
    bench.write(records).await;
    let query = "SELECT decisions, agreement, by_chance, effective_samples, served_ttft_ms, shadow_ttft_ms, \
                 shadow_e2e_ms FROM v_shadow_scores";
    let mut found: Vec<_> = sqlx::query_as(query).fetch_all(&mut bench.connect().await).await.unwrap();
    assert_eq!(found.len(), 1);
    found.remove(0)
}

#[tokio::test]
async fn a_policy_that_only_watched_is_scored_where_chance_decided() {
    let by_chance = scores(records(0.5)).await;
    assert_eq!(by_chance, (8, 0.5, 1.0, 4.0, Some(200.0), Some(100.0), Some(300.0)));
    let certain = scores(records(1.0)).await;
    assert_eq!(certain, (8, 0.5, 0.0, 0.0, None, None, None), "without chance nobody knows");
    // Slow requests without chance beside them change neither side: what is compared is of the same decisions.
    let mut mixed = records(0.5);
    for n in 10..14 {
        let mut row = decision(n, 1);
        row.propensity = 1.0;
        row.shadows = vec![ShadowRecord { policy: PolicyBuildId(1), replica: ReplicaId(0), cost_milli: 1 }];
        mixed.push(StoreRecord::Decision(Box::new(row)));
        mixed.push(StoreRecord::Outcome(ROUTE, Box::new(outcome(n, Some(9_000)))));
    }
    let (.., served, watching, _) = scores(mixed).await;
    assert_eq!((served, watching), (Some(200.0), Some(100.0)));
}

#[tokio::test]
async fn a_pin_is_there_for_the_next_run_until_it_is_taken_out() {
    let bench = StoreFixture::new();
    for pinned in [None, Some("gorgo"), Some("least-load"), None] {
        let (sink, writer) = bench.begin(&run_info()).await;
        let finished = async {
            sink.pin_policy(pinned.map(str::to_owned)).await.unwrap();
            sink.finish(at(9)).await.unwrap();
        };
        tokio::join!(writer.run(), finished);
        let mut store = open(&bench.path()).await.unwrap();
        assert_eq!(store.pinned_policy().await.unwrap().as_deref(), pinned);
        store.close().await.unwrap();
    }
}
