//! `serve`: builds the router, runs it until a signal, and takes it down without losing a row.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::WallClock;
use super::admin::{self, Pages};
use super::background::Background;
use super::fleet::{self, Ground, Member};
use super::kv_events::{Caches, Heard};
use super::operate::{self, Operators};
use super::reload::{Reloading, Reread};
use super::signals::{Hangups, Signals};
use super::tuning::{self, Tuned};
use super::warm::{self, Warm};
use gorgo_observe::fan::Fan;
use gorgo_observe::meter::{Gauges, Meter, ReplicaLoad, StoreState};
use gorgo_observe::{Listener, log};
use gorgo_routing::config::{Config, ReplicaSection};
use gorgo_routing::model::{
    Clock, DecisionId, Event, EventKind, EventRecord, KvCount, PluginCount, PolicyBuildId, Record, Weights,
};
use gorgo_routing::policy::{Loader, Policies, Policy, Router, RouterSetup, Term};
use gorgo_store::{PolicyInfo, ReplicaInfo, RunInfo, Sink, StoreError, TermInfo, Trouble};
use gorgo_wire::edge::{
    self, Data, DataSetup, DecisionIds, Readiness, RouterChoice, Serving, UnreadHints, UpstreamError,
};
use gorgo_wire::engine::probe::probe_loop;
use gorgo_wire::engine::scrape::scrape_loop;
use gorgo_wire::engine::{Senses, Vitals};

/// How often learned rates are written down.
const RATES_EVERY: Duration = Duration::from_secs(30);
/// How often plugins are asked for news.
const PLUGIN_NEWS_EVERY: Duration = Duration::from_secs(1);
/// How long background tasks may take to notice the end.
const TASKS_GRACE: Duration = Duration::from_secs(5);

/// What to serve.
#[derive(Debug)]
pub struct ServeSetup {
    /// The configuration, checked.
    pub config: Config,
    /// Its policies.
    pub policies: Policies,
    /// The configuration as it holds, with origins, without secrets: what the database keeps.
    pub config_text: String,
    /// The program's version.
    pub version: String,
    /// Seed of all randomness of the run.
    pub seed: u64,
    /// Whether tuners start afresh, whatever the last run learned.
    pub cold: bool,
    /// Whether the policy was named for this run: then it serves, whatever an earlier run pinned.
    pub named: bool,
    /// How the configuration is read again on SIGHUP.
    pub reread: Reread,
}

/// Why it could not serve, or could not end well.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A port cannot be had.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// Where.
        address: String,
        /// What the system said.
        cause: io::Error,
    },
    /// The history database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A replica cannot be used as configured.
    #[error("replica {name}: {cause}")]
    Replica {
        /// Its name.
        name: String,
        /// What is wrong.
        cause: String,
    },
    /// An upstream cannot be used as configured.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The thread that writes the history cannot be had.
    #[error("cannot start the thread that writes the history: {0}")]
    Thread(io::Error),
    /// Signals cannot be caught.
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
}

impl ServeError {
    pub(super) fn replica(section: &ReplicaSection, cause: String) -> Self {
        Self::Replica { name: section.name.clone(), cause }
    }
}

/// Serves until SIGTERM or SIGINT, then drains, flushes and returns.
///
/// # Errors
/// Why it could not start; or, at the end, that rows could not be written.
pub async fn serve(setup: ServeSetup) -> Result<(), ServeError> {
    let mut signals = Signals::install().map_err(ServeError::Signals)?;
    let hangups = Hangups::install().map_err(ServeError::Signals)?;
    let clock: Arc<dyn Clock> = Arc::new(WallClock::start());
    // The store first: a second process on the same file is told so, whatever its ports are.
    let tasks = TaskTracker::new();
    let path = setup.config.base.join(&setup.config.store.path);
    // Opened there, because SQLite's own thread is as urgent as the one that starts it.
    let (background, opened) =
        Background::start(async move || gorgo_store::open(&path).await).map_err(ServeError::Thread)?;
    let mut store = opened.await.map_err(|cause| ServeError::Thread(io::Error::other(cause)))??;
    if let Some(run) = store.unfinished_run() {
        log::unfinished_run(run);
    }
    let clients = listen(&setup.config.server.listen).await?;
    let operators_listener = listen(&setup.config.admin.listen).await?;
    let addresses = (local(&clients)?, local(&operators_listener)?);

    let (stop, engines_stop, shutdown) = (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
    let ground = Ground { clock: &clock, tracker: &tasks, stop: &engines_stop, seed: setup.seed };
    let members = fleet::gather(&setup.config, &ground).await?;

    let pinned = if setup.named { None } else { store.pinned_policy().await? };
    let serving = Serving::new(operate::begins_with(&setup.policies, pinned.as_deref()));
    let serves = setup.policies.get(serving.get());
    let policy_name = serves.map_or_else(String::new, |policy| policy.name.to_string());
    let mut run = run_info(&setup, &members, &clock, serves.map_or(PolicyBuildId::UNKNOWN, |policy| policy.id));
    let (secret, last) = (store.secret(), store.last_decision_id());
    let loader = setup.policies.loader.clone();
    let default = setup.policies.default;
    let router = Arc::new(Router::new(router_setup(&setup.config, secret, &members), setup.policies));
    tuning::resume(&mut store, &router, &mut run, setup.cold).await?;
    let places = members.iter().map(Member::place).collect();
    let index = (setup.config.index, secret);
    let warm = Arc::new(Warm::new(Arc::clone(&router), places, index));
    if !setup.cold {
        warm::recall(&warm, &mut store, &run, clock.now()).await?;
    }
    let (sink, writer) = store.begin_run(&run, &setup.config.store, Arc::clone(&clock), Box::new(tell)).await?;
    tasks.spawn_on(writer.run(), background.handle());

    let names: Vec<Arc<str>> = members.iter().map(|member| Arc::clone(&member.replica.name)).collect();
    let unread_hints = UnreadHints::default();
    let caches = Caches::new(&router, &members);
    let gauges = Arc::new(Live {
        router: Arc::clone(&router),
        sink: sink.clone(),
        unread_hints: unread_hints.clone(),
        heard: caches.heard(),
    });
    let meter = Arc::new(Meter::new(&names, gauges));
    let fan = Arc::new(Fan::new(names.clone(), Arc::clone(&meter), Arc::new(sink.clone())));
    let records: Arc<dyn Listener> =
        Arc::new(Tuned { router: Arc::clone(&router), clock: Arc::clone(&clock), next: fan });
    let vitals = Arc::new(Vitals::new(members.len()));
    let readiness = Readiness::default();
    let apply = observer(&router, &warm, &readiness, &records, &clock);
    let senses = Senses {
        clock: Arc::clone(&clock),
        listener: Arc::clone(&records),
        apply: Arc::clone(&apply),
        vitals: Arc::clone(&vitals),
        tasks: tasks.clone(),
        stop: stop.clone(),
        seed: setup.seed,
    };
    let served = caches.start(&senses);
    let data = Data::new(
        DataSetup {
            choose: Arc::new(RouterChoice::new(Arc::clone(&router), Arc::clone(&clock))),
            clock: Arc::clone(&clock),
            records: Arc::clone(&records),
            apply,
            served,
            readiness: readiness.clone(),
            unread_hints,
            vitals: Arc::clone(&vitals),
            server: setup.config.server.clone(),
            failover: setup.config.failover,
            replicas: members.iter().map(|member| member.upstream.clone()).collect(),
            serving: serving.clone(),
            ids: DecisionIds::above(last.unwrap_or(DecisionId(0))),
            seed: setup.seed,
        },
        &tasks,
    )?;
    router.ask_connections(data.connections());

    for member in members {
        tasks.spawn(probe_loop(member.watched.clone(), senses.clone(), setup.config.probe));
        tasks.spawn(scrape_loop(member.watched, senses.clone(), setup.config.scrape));
    }
    tasks.spawn(write_rates(Arc::clone(&router), Arc::clone(&records), Arc::clone(&clock), stop.clone()));
    tasks.spawn(warm::keep(Arc::clone(&warm), sink.clone(), Arc::clone(&clock), tasks.clone(), stop.clone()));
    let reloading = Reloading {
        config: setup.config.clone(),
        reread: setup.reread,
        router: Arc::clone(&router),
        sink: sink.clone(),
        records: Arc::clone(&records),
        clock: Arc::clone(&clock),
    };
    tasks.spawn(reloading.run(hangups, stop.clone()));
    if let Some(loader) = loader {
        tasks.spawn(tell_of_plugins(loader, Arc::clone(&records), Arc::clone(&clock), stop.clone()));
    }
    let operators = Operators {
        router: Arc::clone(&router),
        serving,
        default,
        readiness: readiness.clone(),
        sink: sink.clone(),
        records: Arc::clone(&records),
        clock: Arc::clone(&clock),
    };
    let pages = Pages {
        meter,
        operators,
        ready: {
            let data = Arc::clone(&data);
            Box::new(move || data.is_ready())
        },
    };
    tasks.spawn(admin::serve(Arc::new(pages), operators_listener, tasks.clone(), stop.clone()));

    note(&*records, &*clock, EventKind::Start, format!("gorgo {} with policy {policy_name}", setup.version));
    log::listening(addresses.0, addresses.1, &policy_name, names.len());

    // Clients wait in the listener's queue meanwhile: who comes first should find the caches that are there.
    warm.settled().await;
    let serving = edge::serve(Arc::clone(&data), clients, shutdown.clone(), &tasks);
    tokio::pin!(serving);
    let finished = tokio::select! {
        finished = &mut serving => finished,
        signal = signals.next() => {
            log::draining(signal, setup.config.server.drain_secs);
            note(&*records, &*clock, EventKind::Drain, signal.to_owned());
            readiness.set(false);
            shutdown.cancel();
            tokio::select! {
                finished = &mut serving => finished,
                signal = signals.next() => {
                    log::cutting(signal);
                    data.cut_now();
                    serving.await
                }
            }
        }
    };
    stop.cancel();
    engines_stop.cancel();
    router.stop_tuning(clock.now()).into_iter().for_each(|said| records.record(said));
    warm.write_all(clock.now()).into_iter().for_each(|record| records.record(record));
    let how = if finished { "drained" } else { "running requests were cut off; their outcomes say `shutdown`" };
    note(&*records, &*clock, EventKind::Stop, how.to_owned());
    sink.finish(clock.now()).await?;
    tasks.close();
    if tokio::time::timeout(TASKS_GRACE, tasks.wait()).await.is_err() {
        log::task_died("shutdown", &format!("{} tasks did not end in time", tasks.len()));
    }
    log::stopped(sink.dropped_rows());
    Ok(())
}

async fn listen(address: &str) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|cause| ServeError::Listen { address: address.to_owned(), cause })
}

fn local(listener: &TcpListener) -> Result<SocketAddr, ServeError> {
    listener.local_addr().map_err(|cause| ServeError::Listen { address: "a bound socket".to_owned(), cause })
}

fn router_setup(config: &Config, secret: u64, members: &[Member]) -> RouterSetup {
    RouterSetup {
        fleet: members.iter().map(|member| member.replica.clone()).collect(),
        models: members.iter().map(|member| member.models.clone()).collect(),
        secret,
        index: config.index,
        probe: config.probe,
        scrape: config.scrape,
    }
}

fn run_info(setup: &ServeSetup, members: &[Member], clock: &Arc<dyn Clock>, serves: PolicyBuildId) -> RunInfo {
    RunInfo {
        started: clock.now(),
        version: setup.version.clone(),
        config_text: setup.config_text.clone(),
        default_policy: serves,
        seed: setup.seed,
        replicas: members
            .iter()
            .map(|member| ReplicaInfo {
                name: member.replica.name.to_string(),
                region: member.replica.region.to_string(),
                engine: member.replica.engine.name().to_owned(),
                url: Some(member.upstream.url.clone()),
            })
            .collect(),
        policies: setup.policies.list.iter().map(|policy| policy_info(policy, policy.weights())).collect(),
    }
}

/// A policy as the store takes it down.
pub(super) fn policy_info(policy: &Policy, weights: Weights) -> PolicyInfo {
    let term_info = |term: &Term| TermInfo {
        name: term.name.to_string(),
        kind: term.kind.to_owned(),
        unit: term.unit.name().to_owned(),
        plugin_sha256: term.plugin_sha256.as_ref().map(ToString::to_string),
    };
    PolicyInfo {
        name: policy.name.to_string(),
        text: format!("{}{}", policy.text, builds(policy)),
        terms: policy.terms.iter().map(term_info).collect(),
        weights,
    }
}

/// What the loops and the data plane call with what they see.
fn observer(
    router: &Arc<Router>,
    warm: &Arc<Warm>,
    readiness: &Readiness,
    records: &Arc<dyn Listener>,
    clock: &Arc<dyn Clock>,
) -> Arc<dyn Fn(Event) + Send + Sync> {
    let (router, records, clock) = (Arc::clone(router), Arc::clone(records), Arc::clone(clock));
    let warm = Arc::clone(warm);
    let readiness = readiness.clone();
    Arc::new(move |event| {
        if let Some(replica) = router.apply(&event) {
            let text = "its metrics say that the process started anew; its index entries were dropped".to_owned();
            records.record(Record::Event(EventRecord {
                at: clock.now(),
                kind: EventKind::ReplicaRestarted,
                replica: Some(replica),
                text,
            }));
        }
        if matches!(event, Event::Report { .. }) {
            for (replica, text) in router.take_admission_news() {
                let kind = EventKind::GateResync;
                records.record(Record::Event(EventRecord { at: clock.now(), kind, replica: Some(replica), text }));
            }
        }
        warm.seen(&event, clock.now());
        if matches!(event, Event::Up { .. } | Event::Down { .. }) {
            readiness.set(operate::welcomes(&router));
        }
    })
}

/// Writes down the learned rates now and then, for post-mortems and for the next start.
async fn write_rates(router: Arc<Router>, records: Arc<dyn Listener>, clock: Arc<dyn Clock>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RATES_EVERY) => {
                router.rates(clock.now()).into_iter().for_each(|rate| records.record(Record::Rate(rate)));
            }
        }
    }
}

/// Writes down what became of plugins. A decision only leaves word; it is fetched here.
async fn tell_of_plugins(
    loader: Arc<dyn Loader>,
    records: Arc<dyn Listener>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) {
    loop {
        let stopped = tokio::time::timeout(PLUGIN_NEWS_EVERY, stop.cancelled()).await.is_ok();
        for text in loader.take_news() {
            note(&*records, &*clock, EventKind::PluginQuarantined, text);
        }
        if stopped {
            return;
        }
    }
}

/// Which builds of plugins its constraints and its objective are, as comments below its text: the terms have a column of
/// their own, and with these a rebuilt one makes another policy in the database, too.
fn builds(policy: &Policy) -> String {
    let constraints = policy.constraints.iter().filter_map(|rule| {
        let sha256 = rule.plugin_sha256.as_ref()?;
        Some(format!("# constraint {} is build {sha256}\n", rule.name.escape_debug()))
    });
    let objective = policy.tune.as_ref().and_then(|plan| plan.objective_sha256.as_ref());
    constraints.chain(objective.map(|sha256| format!("# objective is build {sha256}\n"))).collect()
}

pub(super) fn note(records: &dyn Listener, clock: &dyn Clock, kind: EventKind, text: String) {
    records.record(Record::Event(EventRecord { at: clock.now(), kind, replica: None, text }));
}

/// Troubles of the store, in the log.
fn tell(trouble: Trouble) {
    match trouble {
        Trouble::Stuck { cause } => log::store_stuck(&cause),
        Trouble::Recovered => log::store_recovered(),
        Trouble::Lost { rows, cause } => log::store_lost(rows, &cause),
        Trouble::LongLog { bytes } => log::store_long_log(bytes),
        Trouble::NotPruned { cause } => log::store_not_pruned(&cause),
    }
}

/// Gauges, read from what decisions use.
#[derive(Debug)]
struct Live {
    router: Arc<Router>,
    sink: Sink,
    unread_hints: UnreadHints,
    heard: Heard,
}

impl Gauges for Live {
    fn loads(&self) -> Vec<ReplicaLoad> {
        self.router
            .fleet()
            .iter()
            .map(|replica| {
                let (inflight, queued_tokens, queued_uncached_tokens) = self.router.load(replica.id);
                ReplicaLoad {
                    replica: Arc::clone(&replica.name),
                    inflight: u64::from(inflight),
                    queued_tokens,
                    queued_uncached_tokens,
                    available: self.router.replica_state(replica.id).is_up() && !self.router.is_draining(replica.id),
                    held: u64::from(self.router.held(replica.id)),
                }
            })
            .collect()
    }

    fn caches(&self) -> Vec<KvCount> {
        self.heard.counts()
    }

    fn plugins(&self) -> Vec<PluginCount> {
        self.router.policies().loader.as_ref().map_or_else(Vec::new, |loader| loader.counts())
    }

    fn unread_hints(&self) -> u64 {
        self.unread_hints.get()
    }

    fn store(&self) -> StoreState {
        StoreState { dropped_rows: self.sink.dropped_rows(), queued_records: self.sink.queued_rows() }
    }
}
