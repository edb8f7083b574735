//! A small history database, written by the store itself.

use std::path::Path;
use std::sync::Arc;

use gorgo_observe::RecordListener;
use gorgo_routing::config;
use gorgo_routing::model::{
    ApiPath, Clock, DecisionId, DecisionRecord, Generation, OutcomeRecord, PolicyBuildId, PolicyWeights, RouteLabels,
    StoreRecord, UnixMicros,
};
use gorgo_store::{PolicyInfo, RunInfo, open};

/// 2026-11-30T03:12:05Z.
const START_US: u64 = 1_796_008_325_000_000;

struct FrozenClock;

impl Clock for FrozenClock {
    fn now(&self) -> UnixMicros {
        UnixMicros(START_US)
    }
}

/// A request: prompt tokens, parent and tokens shared with it, answer tokens.
pub(super) type HistoryRequest = (u32, Option<u32>, u32, u32);

/// Writes requests, one a second.
pub(super) async fn write(path: &Path, requests: &[HistoryRequest]) {
    let run = RunInfo {
        started: UnixMicros(START_US),
        version: "0".to_owned(),
        config_text: String::new(),
        default_policy: PolicyBuildId(0),
        seed: 1,
        replicas: Vec::new(),
        policies: vec![PolicyInfo {
            name: "gorgo".to_owned(),
            text: String::new(),
            terms: Vec::new(),
            weights: PolicyWeights { generation: Generation(0), values: Vec::new() },
        }],
    };
    let store = open(path).await.unwrap();
    let begun = store.begin_run(&run, &config::StoreConfig::default(), Arc::new(FrozenClock), Box::new(|_| {})).await;
    let (sink, writer) = begun.unwrap();
    let writing = async {
        for (n, (prompt_tokens, parent, shared_tokens, answer)) in (0_u32..).zip(requests.iter().copied()) {
            let id = |n: u32| DecisionId((i64::from(n) + 1) << 20);
            sink.record(StoreRecord::Decision(Box::new(DecisionRecord {
                decision: id(n),
                received: UnixMicros(START_US + u64::from(n) * 1_000_000),
                path: ApiPath::ChatCompletions,
                model: None,
                session_hash: 7,
                policy: PolicyBuildId(0),
                generation: Generation(0),
                arm: None,
                block: None,
                counted: false,
                seed: 0,
                replica: None,
                refusal: None,
                propensity: 1.0,
                ties: 1,
                prompt_tokens,
                parent: parent.map(id),
                shared_tokens,
                body_bytes: 9,
                decide_us: 1,
                candidates: Vec::new(),
                shadows: Vec::new(),
            })));
            let route = RouteLabels { path: ApiPath::ChatCompletions, replica: None };
            sink.record(StoreRecord::Outcome(
                route,
                Box::new(OutcomeRecord {
                    decision: id(n),
                    status: Some(200),
                    error: None,
                    ttft_us: Some(1),
                    first_byte_us: Some(1),
                    e2e_us: 2,
                    itl_mean_us: None,
                    itl_p99_us: None,
                    itl_counts: None,
                    prompt_tokens: Some(prompt_tokens + 3),
                    cached_tokens: None,
                    completion_tokens: Some(answer),
                    predicted_ttft_us: None,
                    predicted_cached_tokens: None,
                }),
            ));
        }
        sink.finish(UnixMicros(START_US + 9)).await.unwrap();
    };
    tokio::join!(writer.run(), writing);
}
