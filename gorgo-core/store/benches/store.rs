//! Cost of writing history: 1,000 routed requests with 3 candidates of 3 terms, from taking the records to the
//! commit. `decisions` is the row of `decisions` and its candidates alone, `requests` has attempt and outcome too.
//! Divan's time per item is CPU per decision as long as the disk does not make it wait: the log is not synced.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot open a file has nothing to measure")]

use std::sync::Arc;

use divan::Bencher;
use divan::counter::ItemsCount;
use gorgo_observe::RecordListener;
use gorgo_routing::config;
use gorgo_routing::model::{
    ApiPath, AttemptRecord, CandidateRecord, Clock, ConnectionReuse, DecisionId, DecisionRecord, Generation,
    OutcomeRecord, PolicyBuildId, PolicyWeights, ReplicaId, RouteLabels, RttSource, StoreRecord, UnixMicros,
};
use gorgo_store::{HistorySink, PolicyInfo, ReplicaInfo, RunInfo, TermInfo, open};
use tokio::runtime::Runtime;

const START: UnixMicros = UnixMicros(1_796_008_325_000_000);
const BATCH: u32 = 1_000;

fn main() {
    divan::main();
    let bench = Bench::new();
    let mut next = 0;
    for _ in 0..10 {
        let records = ids(&mut next).flat_map(|(id, number)| [decision(id, number), attempt(id), outcome(id)]);
        bench.write(records.collect());
    }
    // The log goes into the file when the writer closes it.
    let folder = bench.finish();
    let bytes = std::fs::metadata(folder.path().join("history.db")).unwrap().len();
    println!("{} bytes on disk per request with decision, 3 candidates, attempt, outcome", bytes / u64::from(next));
}

struct Fixed;

impl Clock for Fixed {
    fn now(&self) -> UnixMicros {
        START
    }
}

/// A running writer on a separate file.
struct Bench {
    runtime: Runtime,
    sink: HistorySink,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let runtime = Runtime::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let tracker = tokio_util::task::TaskTracker::new();
        let sink = runtime.block_on(async {
            let store = open(&folder.path().join("history.db")).await.unwrap();
            let settings = config::StoreConfig::default();
            let (sink, writer) = store.begin_run(&run(), &settings, Arc::new(Fixed), Box::new(|_| ())).await.unwrap();
            tracker.spawn(writer.run());
            sink
        });
        Self { runtime, sink, folder }
    }

    fn write(&self, records: Vec<StoreRecord>) {
        for record in records {
            self.sink.record(record);
        }
        self.runtime.block_on(self.sink.flush()).unwrap();
    }

    fn finish(self) -> tempfile::TempDir {
        self.runtime.block_on(self.sink.finish(START)).unwrap();
        assert_eq!(self.sink.dropped_rows(), 0, "the benchmark measured dropping");
        self.folder
    }
}

fn run() -> RunInfo {
    let replica = |name: &str| ReplicaInfo {
        name: name.to_owned(),
        region: name.to_owned(),
        engine: "simulated".to_owned(),
        url: None,
    };
    let term = |name: &str, unit: &str| TermInfo {
        name: name.to_owned(),
        kind: name.to_owned(),
        unit: unit.to_owned(),
        plugin_sha256: None,
    };
    RunInfo {
        started: START,
        version: "bench".to_owned(),
        config_text: String::new(),
        default_policy: PolicyBuildId(0),
        seed: 0,
        replicas: ["us-ashburn", "eu-frankfurt", "ap-seoul"].map(replica).to_vec(),
        policies: vec![PolicyInfo {
            name: "gorgo".to_owned(),
            text: String::new(),
            terms: vec![term("rtt", "ms"), term("prefill", "tokens"), term("queue", "tokens")],
            weights: PolicyWeights { generation: Generation(0), values: vec![0.276, 1.0, 0.5] },
        }],
    }
}

fn decision(id: DecisionId, number: u32) -> StoreRecord {
    let candidate = |replica: u16| {
        let signals_milli = vec![279_000, i64::from(number % 18_000) * 1_000, 123_456_000];
        CandidateRecord {
            replica: ReplicaId(replica),
            excluded_by: None,
            cost_milli: 61_805_004 + i64::from(number),
            rtt_us: Some(279_123),
            rtt_source: RttSource::Probe,
            cached_tokens: number % 18_000,
            queued_tokens: 123_456,
            queued_uncached_tokens: 23_456,
            inflight: 17,
            report_age_ms: Some(1_234),
            costs_milli: signals_milli.clone(),
            signals_milli,
        }
    };
    StoreRecord::Decision(Box::new(DecisionRecord {
        decision: id,
        received: START,
        path: ApiPath::ChatCompletions,
        model: Some("sim".into()),
        session_hash: u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15),
        policy: PolicyBuildId(0),
        generation: Generation(0),
        arm: None,
        block: None,
        counted: false,
        seed: u64::from(number) << 20,
        replica: Some(ReplicaId(0)),
        refusal: None,
        propensity: 1.0,
        ties: 1,
        prompt_tokens: 18_000,
        parent: Some(DecisionId(id.0 - 1)),
        shared_tokens: 12_000,
        body_bytes: 70_000,
        decide_us: 41,
        candidates: (0..3).map(candidate).collect(),
        shadows: Vec::new(),
    }))
}

fn attempt(decision: DecisionId) -> StoreRecord {
    StoreRecord::Attempt(AttemptRecord {
        decision,
        attempt: 1,
        replica: ReplicaId(0),
        connection: Some(ConnectionReuse::Warm),
        connect_us: Some(0),
        sent_us: Some(150),
        first_byte_us: Some(512_345),
        ended_us: 2_512_345,
        status: Some(200),
        error: None,
    })
}

fn outcome(decision: DecisionId) -> StoreRecord {
    StoreRecord::Outcome(
        RouteLabels { path: ApiPath::ChatCompletions, replica: Some(ReplicaId(0)) },
        Box::new(OutcomeRecord {
            decision,
            status: Some(200),
            error: None,
            ttft_us: Some(512_345),
            first_byte_us: Some(512_300),
            e2e_us: 2_512_345,
            itl_mean_us: Some(21_000),
            itl_p99_us: Some(38_000),
            itl_counts: Some([0, 1, 2, 9, 3, 0, 0, 1]),
            prompt_tokens: Some(18_010),
            cached_tokens: Some(12_000),
            completion_tokens: Some(128),
            predicted_ttft_us: Some(500_000),
            predicted_cached_tokens: Some(12_100),
        }),
    )
}

/// Ids of the next thousand requests, one millisecond apart.
fn ids(next: &mut u32) -> impl Iterator<Item = (DecisionId, u32)> {
    let first = *next;
    *next += BATCH;
    let base = i64::try_from(START.0 / 1_000).unwrap();
    (first..first + BATCH).map(move |number| (DecisionId((base + i64::from(number)) << 20), number))
}

#[divan::bench]
fn decisions(bencher: Bencher) {
    let bench = Bench::new();
    let mut next = 0;
    bencher
        .counter(ItemsCount::new(BATCH))
        .with_inputs(|| ids(&mut next).map(|(id, number)| decision(id, number)).collect::<Vec<_>>())
        .bench_local_values(|records| bench.write(records));
    bench.finish();
}

#[divan::bench]
fn requests(bencher: Bencher) {
    let bench = Bench::new();
    let mut next = 0;
    bencher
        .counter(ItemsCount::new(BATCH))
        .with_inputs(|| {
            ids(&mut next).flat_map(|(id, number)| [decision(id, number), attempt(id), outcome(id)]).collect::<Vec<_>>()
        })
        .bench_local_values(|records| bench.write(records));
    bench.finish();
}

/// Takes a record, as a request does, without any disk access.
#[divan::bench]
fn taking(bencher: Bencher) {
    let bench = Bench::new();
    let mut next = 0;
    bencher
        .counter(ItemsCount::new(BATCH))
        .with_inputs(|| {
            bench.runtime.block_on(bench.sink.flush()).unwrap();
            ids(&mut next).map(|(id, number)| decision(id, number)).collect::<Vec<_>>()
        })
        .bench_local_values(|records| {
            for record in records {
                bench.sink.record(record);
            }
        });
    bench.finish();
}
