//! Warm start: a run stores its prefix index and its learned figures, and the next run restores them.
//!
//! A stored snapshot of the index waits until the first metrics page of its engine shows that this is still the process
//! that the snapshot describes: it started at the same moment and has read no fewer prompt tokens than then. Snapshots
//! of engines that restarted meanwhile, or that report neither figure, are dropped. Nothing stored is trusted: pieces
//! that do not fit are refused one by one, with the reason in the log.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use gorgo_observe::{RecordListener, log};
use gorgo_routing::config::IndexConfig;
use gorgo_routing::feature::prefix::{MAX_BLOCKS, SnapshotKey, SnapshotPath, decode, encode};
use gorgo_routing::model::{
    Clock, EngineEpoch, EngineReport, FleetEvent, IndexRecord, LearnedRecord, ReplicaId, StoreRecord, UnixMicros,
};
use gorgo_routing::policy::Router;
use gorgo_store::{HistoryDatabase, HistorySink, RunInfo, StoreError};

/// Time that the start waits for engines to show whether they restarted.
const SETTLE: Duration = Duration::from_secs(1);
/// Start times closer than this are the same start, ms: some exporters round.
const SAME_START_MS: u64 = 1_000;
/// Age limit of learned figures: they are valid only while hardware, model and neighbours of the replica stay the same.
const LEARNED_MAX_AGE_SECS: u64 = 7 * 86_400;
/// Age limit of stored round trips: older ones say nothing about the present route.
const RTT_MAX_AGE: Duration = Duration::from_secs(600);
/// Number of stored round trips that are restored per replica, at most.
const RTT_PROBES: u32 = 32;
/// Snapshots are skipped while more rows than this wait to be written: the history is worth more.
const BUSY_ROWS: u64 = 20_000;
/// All replicas together keep at most this many blocks: 64 MiB.
const FLEET_BLOCKS: usize = 8 << 20;

/// Identity of a replica's engine, by which a later run recognises it.
#[derive(Debug, Clone)]
pub(super) struct EngineLocation {
    pub(super) name: Arc<str>,
    pub(super) engine: &'static str,
    pub(super) url: String,
}

/// Snapshot whose engine has not yet shown whether it is still the same process.
#[derive(Debug)]
struct PendingSnapshot {
    engine: EngineEpoch,
    taken: UnixMicros,
    uses: Vec<SnapshotPath>,
}

/// State kept for a replica's engine.
#[derive(Debug, Default)]
struct EngineSnapshotState {
    epoch: EngineEpoch,
    pending: Option<PendingSnapshot>,
    /// Newest use, number of uses and time of the last snapshot written.
    written: Option<(UnixMicros, usize, UnixMicros)>,
}

/// Stores and restores index and learned figures; see the module.
#[derive(Debug)]
pub(super) struct WarmStart {
    router: Arc<Router>,
    /// By replica; `None` for replicas of which nothing is stored.
    locations: Vec<Option<EngineLocation>>,
    engines: Vec<Mutex<EngineSnapshotState>>,
    index: IndexConfig,
    secret: u64,
    settled: Notify,
}

impl WarmStart {
    pub(super) fn new(
        router: Arc<Router>,
        places: Vec<Option<EngineLocation>>,
        (index, secret): (IndexConfig, u64),
    ) -> Self {
        let lives = places.iter().map(|_| Mutex::default()).collect();
        Self { router, locations: places, engines: lives, index, secret, settled: Notify::new() }
    }

    /// Iterates over the replicas of which something is stored.
    fn persisted(&self) -> impl Iterator<Item = (ReplicaId, &EngineLocation, &Mutex<EngineSnapshotState>)> {
        let all = (0_u16..).zip(&self.locations).zip(&self.engines);
        all.filter_map(|((id, place), life)| Some((ReplicaId(id), place.as_ref()?, life)))
    }

    fn snapshot_digest(&self, place: &EngineLocation) -> u64 {
        let block_bytes = self.index.block_bytes;
        SnapshotKey { secret: self.secret, block_bytes, engine: place.engine, url: &place.url }.fits()
    }

    /// Takes in an event of a replica, after the router has.
    pub(super) fn observe(&self, event: &FleetEvent, now: UnixMicros) {
        let (FleetEvent::Report { replica, .. } | FleetEvent::Restarted { replica }) = event else { return };
        let Some((_, place, life)) = self.persisted().find(|(id, ..)| id == replica) else { return };
        let mut life = life.lock();
        let FleetEvent::Report { report, .. } = event else {
            // A restart: the waiting snapshot is of the old process, and so is the last one written.
            life.epoch = EngineEpoch::default();
            life.written = None;
            if life.pending.take().is_some() {
                log::index_refused(&place.name, &"the engine restarted");
                self.settled.notify_one();
            }
            return;
        };
        let Some(epoch) = epoch(report) else { return };
        life.epoch = epoch;
        let Some(pending) = life.pending.take() else { return };
        // Restoring may insert many blocks; `write` must not wait for that.
        drop(life);
        match same_engine(&pending.engine, &epoch) {
            Ok(()) => {
                let done = self.router.restore_index(*replica, &pending.uses);
                let age_secs = now.elapsed_since(pending.taken).as_secs();
                log::index_restored(&place.name, done.blocks, done.left_out, age_secs);
            }
            Err(cause) => log::index_refused(&place.name, &cause),
        }
        self.settled.notify_one();
    }

    /// Returns when no snapshot waits for its engine any more, or after a second. Later confirmations are still used.
    pub(super) async fn settled(&self) {
        let all = async {
            while self.engines.iter().any(|life| life.lock().pending.is_some()) {
                self.settled.notified().await;
            }
        };
        // An engine that is unreachable or slow must not delay clients of the others.
        let _ = tokio::time::timeout(SETTLE, all).await;
    }

    /// Returns each replica's learned figures, and a snapshot of its part of the index if that changed.
    pub(super) fn write(&self, now: UnixMicros) -> Vec<StoreRecord> {
        let (mut records, mut count) = (Vec::new(), 0);
        for _ in self.persisted() {
            count += 1;
        }
        // The limit for the fleet is shared evenly; a small fleet is bound by the limit of one snapshot.
        let most_blocks = MAX_BLOCKS.min(FLEET_BLOCKS / usize::max(count, 1));
        for (replica, place, life) in self.persisted() {
            records.push(StoreRecord::Learned(LearnedRecord {
                replica,
                at: now,
                state: self.router.export_learned(replica),
            }));
            // Engine before index: if it restarts in between, the snapshot has the old epoch and is refused later.
            let (engine, written, waits) = {
                let life = life.lock();
                (life.epoch, life.written, life.pending.is_some())
            };
            // Without an epoch no later run could recognise the engine. While a restored snapshot still waits, the
            // index lacks its blocks, and a new snapshot would replace it.
            if engine == EngineEpoch::default() || waits {
                continue;
            }
            let uses = self.router.export_index(replica, most_blocks);
            let newest = uses.first().map_or(UnixMicros(0), |used| used.at);
            // An unchanged index is written again after a quarter of the age limit, or its snapshot would expire.
            let stale = |at: UnixMicros| now.elapsed_since(at).as_secs() >= self.index.snapshot_max_age_secs / 4;
            if written.is_some_and(|(last, many, at)| (last, many) == (newest, uses.len()) && !stale(at)) {
                continue;
            }
            life.lock().written = Some((newest, uses.len(), now));
            let blocks = encode(self.snapshot_digest(place), now, &uses);
            records.push(StoreRecord::Index(Box::new(IndexRecord { replica, at: now, engine, blocks })));
        }
        records
    }

    /// Returns the same at the end of a run, for unchanged replicas too.
    pub(super) fn write_all(&self, now: UnixMicros) -> Vec<StoreRecord> {
        self.engines.iter().for_each(|life| life.lock().written = None);
        self.write(now)
    }
}

/// Reads the engine's epoch from a report; `None` if the report is not of a metrics page.
fn epoch(report: &EngineReport) -> Option<EngineEpoch> {
    let prompt_tokens = report.prompt_tokens_total.filter(|tokens| tokens.is_finite() && *tokens >= 0.0);
    let started = report.started_secs.and_then(|secs| Duration::try_from_secs_f64(secs).ok());
    let started_ms = started.and_then(|started| i64::try_from(started.as_millis()).ok());
    // Reports of other pages (`FactOutlet::described`) have none of these, and must not erase a known epoch.
    let page = report.running.is_some() || started_ms.is_some() || prompt_tokens.is_some();
    page.then_some(EngineEpoch { started_ms, prompt_tokens })
}

/// Checks that an engine is certainly the same process as before; otherwise returns the reason for doubt.
fn same_engine(then: &EngineEpoch, now: &EngineEpoch) -> Result<(), &'static str> {
    match (then.prompt_tokens, now.prompt_tokens) {
        (Some(then), Some(now)) if now < then => return Err("the engine restarted: its token counter was reset"),
        // SGLang exports the counter only after its first request, so a missing one means zero.
        (Some(then), None) if then > 0.0 => return Err("the engine restarted: it has read nothing yet"),
        _ => {}
    }
    match (then.started_ms, now.started_ms) {
        (Some(then), Some(now)) if then.abs_diff(now) <= SAME_START_MS => Ok(()),
        (Some(_), Some(_)) => Err("the engine restarted: it started at another time"),
        // Without start times, a counter that was above zero and did not fall is the only evidence.
        (None, None) if then.prompt_tokens.is_some_and(|tokens| tokens > 0.0) => Ok(()),
        _ => Err("the engine does not report whether it restarted"),
    }
}

/// Restores what earlier runs stored of exactly these replicas: learned figures at once, snapshots of the index when
/// their engines have confirmed them.
pub(super) async fn restore(
    warm: &WarmStart,
    store: &mut HistoryDatabase,
    run: &RunInfo,
    now: UnixMicros,
) -> Result<(), StoreError> {
    let mut oldest = now;
    for (replica, place, life) in warm.persisted() {
        let Some(info) = run.replicas.get(replica.index()) else { continue };
        let since = UnixMicros(now.0.saturating_sub(u64::try_from(RTT_MAX_AGE.as_micros()).unwrap_or(u64::MAX)));
        let probes = store.last_probes(info, since, RTT_PROBES).await?;
        // After the clock was set back, rows are dated in the future: their age would count as zero for all that time.
        for probe in probes.iter().filter(|probe| probe.at <= now) {
            warm.router.restore_rtt(replica, probe.at, Duration::from_micros(probe.rtt_us).as_secs_f64() * 1e3);
        }
        if let Some(learned) = store.last_learned(info).await? {
            let age_secs = now.elapsed_since(learned.at).as_secs();
            if learned.at > now || age_secs > LEARNED_MAX_AGE_SECS {
                log::learning_refused(&place.name, "all", &"too old, or dated in the future");
            } else {
                for refused in warm.router.restore_learned(replica, &learned.state) {
                    log::learning_refused(&place.name, refused.part, &refused.cause);
                }
                log::learning_resumed(&place.name, age_secs, probes.len());
            }
        }
        let Some(stored) = store.last_index(info).await? else { continue };
        match decode(&stored.blocks, warm.snapshot_digest(place), now, warm.index.snapshot_max_age_secs) {
            Ok(uses) => {
                oldest = uses.last().map_or(oldest, |used| used.at.min(oldest));
                life.lock().pending = Some(PendingSnapshot { engine: stored.engine, taken: stored.taken, uses });
            }
            Err(cause) => log::index_refused(&place.name, &cause),
        }
    }
    // Before the first decision: restored uses are older than this run, which the index must know.
    warm.router.set_index_origin(oldest);
    Ok(())
}

/// Writes snapshots periodically, away from the threads that serve, and only while the history keeps up.
pub(super) async fn snapshot_loop(
    warm: Arc<WarmStart>,
    sink: HistorySink,
    clock: Arc<dyn Clock>,
    tasks: TaskTracker,
    stop: CancellationToken,
) {
    let every = Duration::from_millis(warm.index.snapshot_ms);
    while tokio::time::timeout(every, stop.cancelled()).await.is_err() {
        if sink.queued_rows() > BUSY_ROWS {
            continue;
        }
        let (warm, now) = (Arc::clone(&warm), clock.now());
        // Encoding megabytes of blocks takes milliseconds: too long for a thread that serves requests.
        let Ok(records) = tasks.spawn_blocking(move || warm.write(now)).await else { continue };
        records.into_iter().for_each(|record| sink.record(record));
    }
}
