//! Warm start: what a run writes down of its prefix index and of what it learned, and what the next one makes of it.
//!
//! A snapshot of the index waits until the first metrics page of its engine says that it is still the one that the
//! snapshot is of: it started at the same moment and has read no fewer prompt tokens than then. An engine that restarted
//! meanwhile gets no credit, and neither does one that tells neither. Nothing stored is trusted: what does not fit is
//! refused piece by piece, with the reason in the log.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use gorgo_observe::{Listener, log};
use gorgo_routing::config::Index;
use gorgo_routing::feature::prefix::{MAX_BLOCKS, Remembered, SnapshotKey, decode, encode};
use gorgo_routing::model::{
    At, Clock, EngineEpoch, EngineReport, Event, IndexRecord, LearnedRecord, Record, ReplicaId,
};
use gorgo_routing::policy::Router;
use gorgo_store::{RunInfo, Sink, Store, StoreError};

/// How long the start waits for engines to say whether they restarted.
const SETTLE: Duration = Duration::from_secs(1);
/// Start times closer than this are the same start, ms: some exporters round.
const SAME_START_MS: u64 = 1_000;
/// What is learned of a replica holds as long as its hardware, its model and its neighbours stay; not for ever.
const LEARNED_MAX_AGE_SECS: u64 = 7 * 86_400;
/// Round trips older than this say nothing of the way now; and how many are looked back on.
const RTT_MAX_AGE: Duration = Duration::from_secs(600);
const RTT_PROBES: u32 = 32;
/// Snapshots wait for the next time while more rows than this do: what happened is worth more.
const BUSY_ROWS: u64 = 20_000;
/// All replicas together keep at most this many blocks: 64 MiB.
const FLEET_BLOCKS: usize = 8 << 20;

/// Where a replica's engine lives, by which a later run knows it again.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) name: Arc<str>,
    pub(super) engine: &'static str,
    pub(super) url: String,
}

/// A snapshot whose engine has not said yet whether it is still the same.
#[derive(Debug)]
struct Pending {
    engine: EngineEpoch,
    taken: At,
    uses: Vec<Remembered>,
}

/// What is known of a replica's engine.
#[derive(Debug, Default)]
struct Life {
    epoch: EngineEpoch,
    pending: Option<Pending>,
    /// Newest use, number of uses and moment of the last snapshot.
    written: Option<(At, usize, At)>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Warm {
    router: Arc<Router>,
    /// By replica; `None`: nothing is kept of it.
    places: Vec<Option<Place>>,
    lives: Vec<Mutex<Life>>,
    index: Index,
    secret: u64,
    settled: Notify,
}

impl Warm {
    pub(super) fn new(router: Arc<Router>, places: Vec<Option<Place>>, (index, secret): (Index, u64)) -> Self {
        let lives = places.iter().map(|_| Mutex::default()).collect();
        Self { router, places, lives, index, secret, settled: Notify::new() }
    }

    /// The replicas of which something is kept.
    fn kept(&self) -> impl Iterator<Item = (ReplicaId, &Place, &Mutex<Life>)> {
        let all = (0_u16..).zip(&self.places).zip(&self.lives);
        all.filter_map(|((id, place), life)| Some((ReplicaId(id), place.as_ref()?, life)))
    }

    fn fits(&self, place: &Place) -> u64 {
        let block_bytes = self.index.block_bytes;
        SnapshotKey { secret: self.secret, block_bytes, engine: place.engine, url: &place.url }.fits()
    }

    /// Takes in what was seen of a replica, after the router did.
    pub(super) fn seen(&self, event: &Event, now: At) {
        let (Event::Report { replica, .. } | Event::Restarted { replica }) = event else { return };
        let Some((_, place, life)) = self.kept().find(|(id, ..)| id == replica) else { return };
        let mut life = life.lock();
        let Event::Report { report, .. } = event else {
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
        drop(life);
        match same_engine(&pending.engine, &epoch) {
            Ok(()) => {
                let done = self.router.restore_index(*replica, &pending.uses);
                let age_secs = now.since(pending.taken).as_secs();
                log::index_restored(&place.name, done.blocks, done.left_out, age_secs);
            }
            Err(cause) => log::index_refused(&place.name, &cause),
        }
        self.settled.notify_one();
    }

    /// Returns when no snapshot waits for its engine any more, or after a second; what comes later is used then.
    pub(super) async fn settled(&self) {
        let all = async {
            while self.lives.iter().any(|life| life.lock().pending.is_some()) {
                self.settled.notified().await;
            }
        };
        // An engine that is away, or slow, must not keep the others' clients waiting.
        let _ = tokio::time::timeout(SETTLE, all).await;
    }

    /// A snapshot of the index at each replica, where it changed since the last one, and what was learned of it.
    pub(super) fn write(&self, now: At) -> Vec<Record> {
        let (mut records, mut count) = (Vec::new(), 0);
        for _ in self.kept() {
            count += 1;
        }
        let most_blocks = MAX_BLOCKS.min(FLEET_BLOCKS / usize::max(count, 1));
        for (replica, place, life) in self.kept() {
            records.push(Record::Learned(LearnedRecord { replica, at: now, state: self.router.learned(replica) }));
            // First the engine, then the index: of an engine that restarts in between, the snapshot is refused later.
            let (engine, written, waits) = {
                let life = life.lock();
                (life.epoch, life.written, life.pending.is_some())
            };
            // An engine that never told who it is cannot be known again; one that has not told yet will be asked first.
            if engine == EngineEpoch::default() || waits {
                continue;
            }
            let uses = self.router.remember_index(replica, most_blocks);
            let newest = uses.first().map_or(At(0), |used| used.at);
            let stale = |at: At| now.since(at).as_secs() >= self.index.snapshot_max_age_secs / 4;
            if written.is_some_and(|(last, many, at)| (last, many) == (newest, uses.len()) && !stale(at)) {
                continue;
            }
            life.lock().written = Some((newest, uses.len(), now));
            let blocks = encode(self.fits(place), now, &uses);
            records.push(Record::Index(Box::new(IndexRecord { replica, at: now, engine, blocks })));
        }
        records
    }

    /// The same at the end of a run, whether or not anything changed.
    pub(super) fn write_all(&self, now: At) -> Vec<Record> {
        self.lives.iter().for_each(|life| life.lock().written = None);
        self.write(now)
    }
}

/// What a metrics page tells of the engine's life; `None` for what is no metrics page.
fn epoch(report: &EngineReport) -> Option<EngineEpoch> {
    let prompt_tokens = report.prompt_tokens_total.filter(|tokens| tokens.is_finite() && *tokens >= 0.0);
    let started = report.started_secs.and_then(|secs| Duration::try_from_secs_f64(secs).ok());
    let started_ms = started.and_then(|started| i64::try_from(started.as_millis()).ok());
    let page = report.running.is_some() || started_ms.is_some() || prompt_tokens.is_some();
    page.then_some(EngineEpoch { started_ms, prompt_tokens })
}

/// Whether an engine is surely the one it was.
fn same_engine(then: &EngineEpoch, now: &EngineEpoch) -> Result<(), &'static str> {
    match (then.prompt_tokens, now.prompt_tokens) {
        (Some(then), Some(now)) if now < then => return Err("the engine restarted: its token counter began anew"),
        // SGLang shows the counter only after its first request.
        (Some(then), None) if then > 0.0 => return Err("the engine restarted: it has read nothing yet"),
        _ => {}
    }
    match (then.started_ms, now.started_ms) {
        (Some(then), Some(now)) if then.abs_diff(now) <= SAME_START_MS => Ok(()),
        (Some(_), Some(_)) => Err("the engine restarted: it started at another time"),
        (None, None) if then.prompt_tokens.is_some_and(|tokens| tokens > 0.0) => Ok(()),
        _ => Err("the engine does not say whether it restarted"),
    }
}

/// Reads what the last run left of exactly these replicas; learned figures are used at once, snapshots of the index wait
/// for their engines.
pub(super) async fn recall(warm: &Warm, store: &mut Store, run: &RunInfo, now: At) -> Result<(), StoreError> {
    let mut oldest = now;
    for (replica, place, life) in warm.kept() {
        let Some(info) = run.replicas.get(replica.index()) else { continue };
        let since = At(now.0.saturating_sub(u64::try_from(RTT_MAX_AGE.as_micros()).unwrap_or(u64::MAX)));
        let probes = store.last_probes(info, since, RTT_PROBES).await?;
        for probe in probes.iter().filter(|probe| probe.at <= now) {
            warm.router.recall_rtt(replica, probe.at, Duration::from_micros(probe.rtt_us).as_secs_f64() * 1e3);
        }
        if let Some(learned) = store.last_learned(info).await? {
            let age_secs = now.since(learned.at).as_secs();
            if learned.at > now || age_secs > LEARNED_MAX_AGE_SECS {
                log::learning_refused(&place.name, "all", &"it is too old, or from the future");
            } else {
                for refused in warm.router.go_on_from(replica, &learned.state) {
                    log::learning_refused(&place.name, refused.part, &refused.cause);
                }
                log::learning_resumed(&place.name, age_secs, probes.len());
            }
        }
        let Some(stored) = store.last_index(info).await? else { continue };
        match decode(&stored.blocks, warm.fits(place), now, warm.index.snapshot_max_age_secs) {
            Ok(uses) => {
                oldest = uses.last().map_or(oldest, |used| used.at.min(oldest));
                life.lock().pending = Some(Pending { engine: stored.engine, taken: stored.taken, uses });
            }
            Err(cause) => log::index_refused(&place.name, &cause),
        }
    }
    warm.router.index_begins_at(oldest);
    Ok(())
}

/// Writes snapshots down now and then, away from the threads that serve, and only while the history keeps up.
pub(super) async fn keep(
    warm: Arc<Warm>,
    sink: Sink,
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
        let Ok(records) = tasks.spawn_blocking(move || warm.write(now)).await else { continue };
        records.into_iter().for_each(|record| sink.record(record));
    }
}
