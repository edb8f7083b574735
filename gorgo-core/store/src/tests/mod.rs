//! Tests of the store, and the hand-made history and the harness that they share.

mod crash;
mod opening;
mod overload;
mod pruning;
mod requests;
mod round_trip;
mod schema;
mod shadows;
mod tables;
mod tuning;
mod warm;
mod weights;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::{HistorySink, HistoryWriter, PolicyInfo, ReplicaInfo, RunInfo, StoreError, StoreTrouble, TermInfo, open};
use gorgo_observe::RecordListener;
use gorgo_routing::config;
use gorgo_routing::model::{AdmissionEnd, AdmissionRecord};
use gorgo_routing::model::{
    AlarmRecord, ApiPath, AttemptRecord, CandidateRecord, Clock, ConnectionReuse as Kept, DecisionId, DecisionRecord,
    ErrorClass, EventKind, EventRecord, Generation, GenerationRecord, GenerationVerdict, OutcomeRecord, PolicyBuildId,
    PolicyWeights, ProbeRecord, RateKind, RateRecord, RefusalReason, ReplicaId, RouteLabels, RttSource, ScoreRecord,
    ScrapeRecord, ShadowRecord, StoreRecord, UnixMicros, WeightRecord,
};

/// Route of requests whose outcomes are stored; the route itself is not stored.
const ROUTE: RouteLabels = RouteLabels { path: ApiPath::ChatCompletions, replica: None };
/// 2026-11-30T03:12:05Z.
const START: UnixMicros = UnixMicros(1_796_008_325_000_000);

struct FixedClock(UnixMicros);

impl Clock for FixedClock {
    fn now(&self) -> UnixMicros {
        self.0
    }
}

/// Id of the `n`th decision, one per millisecond.
fn id(n: u32) -> DecisionId {
    DecisionId((i64::try_from(START.0 / 1_000).unwrap() + i64::from(n)) << 20)
}

fn at(n: u32) -> UnixMicros {
    UnixMicros(START.0 + u64::from(n) * 1_000)
}

/// Three replicas; `wide` has ten terms, `gorgo` three.
fn run_info() -> RunInfo {
    let replica = |name: &str| ReplicaInfo {
        name: name.to_owned(),
        region: name.to_owned(),
        engine: "simulated".to_owned(),
        url: Some("http://127.0.0.1:1".to_owned()),
    };
    let term = |name: &str, unit: &str| TermInfo {
        name: name.to_owned(),
        kind: name.to_owned(),
        unit: unit.to_owned(),
        plugin_sha256: None,
    };
    let policy = |name: &str, terms: Vec<TermInfo>, values: Vec<f64>| PolicyInfo {
        name: name.to_owned(),
        text: format!("[policy.{name}]\n"),
        terms,
        weights: PolicyWeights { generation: Generation(0), values },
    };
    let gorgo = vec![term("rtt", "ms"), term("prefill", "tokens"), term("queue", "tokens")];
    let wide: Vec<TermInfo> = (1..=10).map(|n| term(&format!("term-{n}"), "1")).collect();
    RunInfo {
        started: START,
        version: "0.1.0".to_owned(),
        config_text: "default_policy = \"gorgo\"\n".to_owned(),
        default_policy: PolicyBuildId(0),
        seed: 7,
        replicas: ["us-ashburn", "eu-frankfurt", "ap-seoul"].map(replica).to_vec(),
        policies: vec![
            policy("gorgo", gorgo, vec![0.276, 1.0, 0.5]),
            policy("wide", wide, (0..10).map(|n| f64::from(n) / 3.0).collect()),
        ],
    }
}

fn candidate(replica: u16, rtt_ms: i64, cached: u32, queued: u64) -> CandidateRecord {
    let uncached = 1_000 - i64::from(cached);
    let queue = i64::try_from(queued).unwrap();
    let signals_milli = vec![rtt_ms * 1_000, uncached * 1_000, queue * 1_000];
    let costs_milli = vec![rtt_ms * 276, uncached * 1_000, queue * 500];
    CandidateRecord {
        replica: ReplicaId(replica),
        excluded_by: None,
        cost_milli: costs_milli.iter().sum(),
        rtt_us: Some(rtt_ms * 1_000),
        rtt_source: RttSource::Probe,
        cached_tokens: cached,
        queued_tokens: queued,
        queued_uncached_tokens: queued / 2,
        inflight: 1,
        report_age_ms: Some(900),
        signals_milli,
        costs_milli,
    }
}

/// Decision `n`, routed to `replica` among all three.
fn decision(n: u32, replica: u16) -> DecisionRecord {
    DecisionRecord {
        decision: id(n),
        received: at(n),
        path: ApiPath::ChatCompletions,
        model: Some("sim".into()),
        session_hash: u64::MAX - 1,
        policy: PolicyBuildId(0),
        generation: Generation(0),
        arm: None,
        block: None,
        counted: false,
        seed: (1 << 53) - 1,
        replica: Some(ReplicaId(replica)),
        refusal: None,
        propensity: 0.75,
        ties: 1,
        prompt_tokens: 1_000,
        parent: n.checked_sub(1).map(id),
        shared_tokens: 600,
        body_bytes: 4_200,
        decide_us: 41,
        candidates: vec![
            candidate(0, 37, 600, 100 * u64::from(n)),
            candidate(1, 279, 0, 0),
            CandidateRecord { excluded_by: Some("concentration".into()), ..candidate(2, 456, 900, 2_000) },
        ],
        shadows: Vec::new(),
    }
}

fn outcome(n: u32, ttft_ms: Option<i64>) -> OutcomeRecord {
    OutcomeRecord {
        decision: id(n),
        status: Some(200),
        error: None,
        ttft_us: ttft_ms.map(|ms| ms * 1_000),
        first_byte_us: ttft_ms.map(|ms| ms * 1_000 - 500),
        e2e_us: ttft_ms.unwrap_or(50) * 3_000,
        itl_mean_us: Some(21_000),
        itl_p99_us: Some(38_000),
        itl_counts: Some([0, 1, 2, 9, 3, 0, 0, 1]),
        prompt_tokens: Some(1_010),
        cached_tokens: Some(512),
        completion_tokens: Some(64),
        predicted_ttft_us: Some(300_000),
        predicted_cached_tokens: Some(600),
    }
}

fn attempt(n: u32, attempt: u16, replica: u16, error: Option<ErrorClass>) -> AttemptRecord {
    AttemptRecord {
        decision: id(n),
        attempt,
        replica: ReplicaId(replica),
        connection: error.is_none().then_some(Kept::Warm),
        connect_us: Some(0),
        sent_us: Some(150),
        first_byte_us: error.is_none().then_some(90_000),
        ended_us: 400_000,
        status: error.is_none().then_some(200),
        error,
    }
}

/// A small history: ten requests, one retried, one refused, one without a first token, and everything else once.
fn hold(n: u32, ended: AdmissionEnd) -> AdmissionRecord {
    AdmissionRecord { decision: id(n), attempt: 1, replica: ReplicaId(1), moves: 1, held_us: 432_100, ended }
}

fn history() -> Vec<StoreRecord> {
    let mut records = Vec::new();
    for n in 0..8_u32 {
        let mut decision = decision(n, u16::from(n >= 6));
        if let 2 | 3 | 6 | 7 = n {
            let arm = u8::from(n >= 6);
            (decision.arm, decision.block, decision.counted) = (Some(arm), Some(4 + u32::from(arm)), true);
        }
        if n == 0 {
            let shadow = ShadowRecord { policy: PolicyBuildId(1), replica: ReplicaId(2), cost_milli: 12_345 };
            decision.shadows.push(shadow);
        }
        records.push(StoreRecord::Decision(Box::new(decision)));
        records.push(StoreRecord::Attempt(attempt(n, 1, u16::from(n >= 6), None)));
        records.push(StoreRecord::Outcome(ROUTE, Box::new(outcome(n, (n != 5).then(|| i64::from(n + 1) * 100)))));
    }
    records.push(StoreRecord::Hold(hold(3, AdmissionEnd::Dispatched)));
    // retried elsewhere after a refused connection
    records.push(StoreRecord::Decision(Box::new(decision(8, 0))));
    records.push(StoreRecord::Attempt(attempt(8, 1, 0, Some(ErrorClass::Connect))));
    let rows = vec![candidate(1, 279, 0, 0), candidate(2, 456, 900, 2_000)];
    records.push(StoreRecord::Candidates { decision: id(8), attempt: 2, rows });
    records.push(StoreRecord::Attempt(attempt(8, 2, 1, None)));
    records.push(StoreRecord::Outcome(ROUTE, Box::new(outcome(8, Some(900)))));
    // refused
    records.push(StoreRecord::Decision(Box::new(DecisionRecord {
        replica: None,
        refusal: Some(RefusalReason::UnknownModel),
        model: Some("no-such-model".into()),
        candidates: Vec::new(),
        parent: None,
        ..decision(9, 0)
    })));
    let refused = OutcomeRecord {
        status: Some(404),
        error: Some(ErrorClass::Refused),
        itl_mean_us: None,
        itl_p99_us: None,
        itl_counts: None,
        prompt_tokens: None,
        cached_tokens: None,
        completion_tokens: None,
        predicted_ttft_us: None,
        predicted_cached_tokens: None,
        ..outcome(9, None)
    };
    records.push(StoreRecord::Outcome(ROUTE, Box::new(refused)));
    // The last one comes twice: the second is refused, and a gap says so.
    for (replica, rtt_us) in [(0, Some(37_250)), (1, Some(280_000)), (1, None), (1, None)] {
        let at = UnixMicros(START.0 + u64::from(rtt_us.is_none()) * 2_000_000);
        records.push(StoreRecord::Probe(ProbeRecord { replica: ReplicaId(replica), at, rtt_us }));
    }
    records.push(StoreRecord::Scrape(ScrapeRecord {
        replica: ReplicaId(0),
        at: START,
        ok: true,
        running: Some(3.0),
        waiting: None,
        kv_used_tokens: Some(70_000.0),
        kv_used_share: Some(0.123_4),
        throughput: Some(1_234.567_8),
    }));
    records.push(StoreRecord::Event(EventRecord {
        at: at(4),
        kind: EventKind::ReplicaDown,
        replica: Some(ReplicaId(0)),
        text: "connection refused".to_owned(),
    }));
    records.push(StoreRecord::Weights(WeightRecord {
        policy: PolicyBuildId(0),
        at: at(7),
        generation: Generation(1),
        values: vec![0.3, 1.0, 0.45],
    }));
    records.extend(generation());
    records.push(StoreRecord::Rate(RateRecord {
        replica: ReplicaId(0),
        kind: RateKind::Prefill,
        at: at(8),
        value: 0.125,
        low: 0.1,
        high: 0.15,
        samples: 64,
    }));
    records
}

/// A generation of the serving policy that has just begun.
fn began(generation: u64) -> GenerationRecord {
    GenerationRecord {
        policy: PolicyBuildId(0),
        generation: Generation(generation),
        parent: Some(Generation(0)),
        started: at(2),
        ended: None,
        optimizer: "es-1plus1",
        sigma: Some(0.5),
        state: None,
        blocks: (4, 4),
        verdict: None,
        reason: None,
        scores: Vec::new(),
    }
}

/// A generation that began and was rejected, the next one, which is running, and two alarms, one of them over.
fn generation() -> Vec<StoreRecord> {
    let score = |arm, value, samples| ScoreRecord {
        arm,
        statistic: "ttft_p95",
        value,
        low: Some(value - 50.0),
        high: None,
        samples,
    };
    let ended = GenerationRecord {
        ended: Some(at(8)),
        state: Some("{\"version\":1}".to_owned()),
        blocks: (4, 6),
        verdict: Some(GenerationVerdict::Rejected),
        reason: Some("not better".to_owned()),
        scores: vec![
            score(0, 400.0, 2),
            score(1, 800.0, 2),
            ScoreRecord { statistic: "score_difference", ..score(1, 400.0, 4) },
        ],
        ..began(1)
    };
    let next = GenerationRecord { started: at(8), blocks: (6, 6), ..began(2) };
    let alarm = |kind: &str, over| {
        StoreRecord::Alarm(AlarmRecord {
            at: at(if over { 9 } else { 8 }),
            kind: kind.to_owned(),
            value: Some(0.5),
            cleared: over,
        })
    };
    let mut records: Vec<StoreRecord> =
        [began(1), ended, next].into_iter().map(|row| StoreRecord::Generation(Box::new(row))).collect();
    records.extend([alarm("weight-at-bound:queue", false), alarm("drift", false), alarm("drift", true)]);
    records
}

/// A database in a separate folder, and the troubles that its writer reported.
struct StoreFixture {
    folder: TempDir,
    settings: config::StoreConfig,
    now: UnixMicros,
    told: Arc<ReportedTroubles>,
    tracker: TaskTracker,
}

/// Troubles that the writer reported, and a notification of each.
#[derive(Default)]
struct ReportedTroubles {
    all: Mutex<Vec<StoreTrouble>>,
    news: Notify,
}

impl StoreFixture {
    fn new() -> Self {
        // No test waits for the timer: flushes are asked for.
        let settings = config::StoreConfig { flush_ms: 3_600_000, ..config::StoreConfig::default() };
        let folder = tempfile::tempdir().unwrap();
        Self { folder, settings, now: START, told: Arc::default(), tracker: TaskTracker::new() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("history.db")
    }

    async fn begin(&self, run: &RunInfo) -> (HistorySink, HistoryWriter) {
        let store = open(&self.path()).await.unwrap();
        let told = Arc::clone(&self.told);
        let trouble = Box::new(move |trouble| {
            told.all.lock().push(trouble);
            told.news.notify_one();
        });
        store.begin_run(run, &self.settings, Arc::new(FixedClock(self.now)), trouble).await.unwrap()
    }

    /// Begins a run with a writer that waits neither for another process's lock nor long between two attempts.
    async fn begin_impatient(&self) -> (HistorySink, HistoryWriter) {
        let (sink, mut writer) = self.begin(&run_info()).await;
        sqlx::query("PRAGMA busy_timeout = 0").execute(&mut writer.connection).await.unwrap();
        writer.pauses = [Duration::from_millis(1); 2];
        (sink, writer)
    }

    /// Returns when the writer has reported a trouble that fits.
    async fn hears(&self, fits: impl Fn(&StoreTrouble) -> bool) {
        while !self.told.all.lock().iter().any(&fits) {
            self.told.news.notified().await;
        }
    }

    /// Troubles that the writer reported so far.
    fn told(&self) -> Vec<StoreTrouble> {
        self.told.all.lock().clone()
    }

    /// Starts a writer.
    async fn start(&self) -> HistorySink {
        let (sink, writer) = self.begin(&run_info()).await;
        self.spawn(writer);
        sink
    }

    fn spawn(&self, writer: HistoryWriter) {
        self.tracker.spawn(writer.run());
    }

    /// Writes `records` in a separate run.
    async fn write(&self, records: impl IntoIterator<Item = StoreRecord>) {
        let sink = self.start().await;
        for record in records {
            sink.record(record);
        }
        sink.finish(at(1_000)).await.unwrap();
    }

    async fn connect(&self) -> SqliteConnection {
        connect(&self.path()).await
    }

    async fn number(&self, query: &'static str) -> i64 {
        let mut connection = self.connect().await;
        sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap()
    }
}

/// A connection like that of a shell in another process.
async fn connect(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).foreign_keys(false).connect().await.unwrap()
}

async fn migrated() -> SqliteConnection {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    crate::open::schema::migrator().run(&mut connection).await.unwrap();
    connection
}

async fn refusal(path: &Path) -> StoreError {
    open(path).await.expect_err("the file should have been refused")
}

/// The rows of a query as a text table, for snapshots.
async fn table(connection: &mut SqliteConnection, query: &str) -> String {
    use sqlx::{AssertSqlSafe, Column, Row, TypeInfo, ValueRef};
    let rows = sqlx::query(AssertSqlSafe(query.to_owned())).fetch_all(connection).await.unwrap();
    let mut lines = Vec::new();
    for row in &rows {
        if lines.is_empty() {
            lines.push(row.columns().iter().map(|column| column.name().to_owned()).collect::<Vec<_>>().join(" | "));
        }
        let cells = (0..row.len()).map(|column| {
            let value = row.try_get_raw(column).unwrap();
            match value.type_info().name() {
                _ if value.is_null() => "-".to_owned(),
                "INTEGER" => row.get_unchecked::<i64, _>(column).to_string(),
                "REAL" => row.get_unchecked::<f64, _>(column).to_string(),
                _ => row.get_unchecked::<String, _>(column),
            }
        });
        lines.push(cells.collect::<Vec<_>>().join(" | "));
    }
    lines.join("\n")
}
