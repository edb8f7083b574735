//! `serve`: builds the router, runs it until a signal, and shuts it down without losing a row.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::WallClock;
use super::admin::{self, AdminPages};
use super::background::HistoryThread;
use super::facts::FactKeeper;
use super::fleet::{self, EngineLauncher, FleetReplica};
use super::gauges::LiveGauges;
use super::kv_events::KvEventFeeds;
use super::operate::{self, OperatorActions};
use super::reload::{ConfigReader, ReloadTask};
use super::signals::{ReloadSignals, ShutdownSignals};
use super::tuning::{self, TuningListener};
use super::warm::{self, WarmStart};
use gorgo_observe::fan::RecordFanout;
use gorgo_observe::meter::RouterMetrics;
use gorgo_observe::{FactOutlet, RecordListener, log};
use gorgo_routing::config::{Config, ReplicaConfig};
use gorgo_routing::model::{Clock, DecisionId, EventKind, PolicyBuildId, PolicyWeights, StoreRecord};
use gorgo_routing::policy::{PluginLoader, Policy, PolicySet, PolicyTerm, Router, RouterSetup};
use gorgo_store::{HistoryDatabase, HistorySink, PolicyInfo, ReplicaInfo, RunInfo, StoreError, StoreTrouble, TermInfo};
use gorgo_wire::edge::{
    self, DataPlane, DataPlaneSetup, DataPlaneSetupError, DecisionIds, ReadinessFlag, RouterSelector, ServingPolicy,
    UnreadHints,
};
use gorgo_wire::engine::probe::probe_loop;
use gorgo_wire::engine::scrape::scrape_loop;
use gorgo_wire::engine::{ProbeContext, ReplicaLiveness, ServedCallback};

/// Interval between two writes of the learned rates.
const RATES_EVERY: Duration = Duration::from_secs(30);
/// Interval between two looks for news of plugins.
const PLUGIN_NEWS_EVERY: Duration = Duration::from_secs(1);
/// Time that background tasks have to notice the end.
const TASKS_GRACE: Duration = Duration::from_secs(5);

/// Everything that `serve` needs.
#[derive(Debug)]
pub struct ServeSetup {
    /// The configuration, checked.
    pub config: Config,
    /// The policies of the configuration, built.
    pub policies: PolicySet,
    /// The effective configuration with origins, without secrets, as the database stores it.
    pub config_text: String,
    /// The program's version.
    pub version: String,
    /// Seed of all randomness of the run.
    pub seed: u64,
    /// True to start without anything that earlier runs learned.
    pub cold: bool,
    /// True if the policy was named for this run: it then serves even if an earlier run pinned another.
    pub policy_named: bool,
    /// Reader of the configuration on SIGHUP.
    pub config_reader: ConfigReader,
}

/// Reason why the router could not serve, or did not end cleanly.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A port cannot be opened.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address.
        address: String,
        /// The system's error.
        cause: io::Error,
    },
    /// The history database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A replica cannot be used as configured.
    #[error("replica {name}: {cause}")]
    Replica {
        /// The replica's name.
        name: String,
        /// The reason.
        cause: String,
    },
    /// An upstream cannot be used as configured.
    #[error(transparent)]
    DataPlane(#[from] DataPlaneSetupError),
    /// The thread that writes the history cannot be started.
    #[error("cannot start the thread that writes the history: {0}")]
    Thread(io::Error),
    /// Signals cannot be caught.
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
}

impl ServeError {
    pub(super) fn replica(section: &ReplicaConfig, cause: String) -> Self {
        Self::Replica { name: section.name.clone(), cause }
    }
}

/// Serves until SIGTERM or SIGINT, then drains, flushes and returns.
///
/// # Errors
/// When the router cannot start; or, at the end, when rows could not be written.
pub async fn serve(setup: ServeSetup) -> Result<(), ServeError> {
    // Before anything that takes time: a signal during the start would otherwise kill the process by default.
    let mut signals = ShutdownSignals::install().map_err(ServeError::Signals)?;
    let hangups = ReloadSignals::install().map_err(ServeError::Signals)?;
    let life = Lifetime::begin();
    // The store before the ports: a second router on the same file should get that error, not one about a port in use.
    let (background, store) = open_store(&setup.config).await?;
    let ports = Ports::open(&setup.config).await?;
    let members = fleet::build_fleet(&setup.config, &life.ground(setup.seed)).await?;
    let core = RouterCore::build(&setup, store, &members, &life, &background).await?;
    let caches = KvEventFeeds::new(&core.router, &members);
    let shared = SharedParts::connect(&core, &members, &caches, &life);

    let senses = shared.senses(&life, setup.seed);
    let served = caches.start(&senses);
    let data = DataPlane::new(shared.data_setup(&setup, &core, &members, served, &life), &life.tasks)?;
    // The data plane needs the router and the router the data plane's connections: the second link is made here.
    core.router.set_round_trip_estimator(data.connections());
    // Probes and scrapes start before the first client is accepted: `settled` below waits for the first scrapes.
    watch_fleet(members, &senses, &setup.config);
    keep_books(&core, &shared.outlet, &life);
    obey_hangups(&setup, &core, &shared.outlet, hangups, &life);
    let Ports { clients, operators, addresses } = ports;
    serve_operators(operators, &core, &shared, &data, &life);

    let policy_name = &core.first_policy;
    shared.outlet.announce(EventKind::Start, format!("gorgo {} with policy {policy_name}", setup.version));
    log::listening(addresses.0, addresses.1, policy_name, core.router.fleet().len());
    // Clients wait in the listener's queue meanwhile, so that even the first one is routed with the restored index.
    core.warm.settled().await;
    let finished = serve_clients(&data, clients, &shared, &mut signals, &life).await;
    wind_down(finished, &core, &shared.outlet, &life).await
}

/// Parts that live as long as the process: clock, tasks, and the tokens that end them.
struct Lifetime {
    clock: Arc<dyn Clock>,
    tasks: TaskTracker,
    /// Ends the loops, after the last request.
    stop: CancellationToken,
    /// Ends simulated engines, at the same moment.
    engines_stop: CancellationToken,
}

impl Lifetime {
    fn begin() -> Self {
        Self {
            clock: Arc::new(WallClock::start()),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            engines_stop: CancellationToken::new(),
        }
    }

    const fn ground(&self, seed: u64) -> EngineLauncher<'_> {
        EngineLauncher { clock: &self.clock, tracker: &self.tasks, stop: &self.engines_stop, seed }
    }
}

/// The history, opened on the thread that will write it.
async fn open_store(config: &Config) -> Result<(HistoryThread, HistoryDatabase), ServeError> {
    let path = config.base.join(&config.store.path);
    // Opened on that thread, because SQLite's own thread inherits the priority of the one that starts it.
    let (background, opened) =
        HistoryThread::start(async move || gorgo_store::open(&path).await).map_err(ServeError::Thread)?;
    let store = opened.await.map_err(|cause| ServeError::Thread(io::Error::other(cause)))??;
    if let Some(run) = store.unfinished_run() {
        log::unfinished_run(run);
    }
    Ok((background, store))
}

/// The listeners, and the addresses that they got.
struct Ports {
    clients: TcpListener,
    operators: TcpListener,
    addresses: (SocketAddr, SocketAddr),
}

impl Ports {
    async fn open(config: &Config) -> Result<Self, ServeError> {
        let clients = listen(&config.server.listen).await?;
        let operators = listen(&config.admin.listen).await?;
        // The addresses in use, not the configured ones: port 0 asks for any free port.
        let addresses = (local(&clients)?, local(&operators)?);
        Ok(Self { clients, operators, addresses })
    }
}

/// The router with what it remembers of earlier runs, and the history that this run writes.
struct RouterCore {
    router: Arc<Router>,
    warm: Arc<WarmStart>,
    serving: ServingPolicy,
    /// Name of the policy that the run begins with.
    first_policy: String,
    /// Newest decision of earlier runs; ids of this run start above it.
    last_decision: Option<DecisionId>,
    sink: HistorySink,
}

impl RouterCore {
    /// Builds the router, restores its memory, and only then begins the run, whose rows contain restored weights.
    async fn build(
        setup: &ServeSetup,
        mut store: HistoryDatabase,
        members: &[FleetReplica],
        life: &Lifetime,
        background: &HistoryThread,
    ) -> Result<Self, ServeError> {
        // The command line is the operator's latest word: it wins over a pin of an earlier run.
        let pinned = if setup.policy_named { None } else { store.pinned_policy().await? };
        let serving = ServingPolicy::new(operate::initial_policy(&setup.policies, pinned.as_deref()));
        let serves = setup.policies.get(serving.get());
        let first_policy = serves.map_or_else(String::new, |policy| policy.name.to_string());
        let build = serves.map_or(PolicyBuildId::UNKNOWN, |policy| policy.id);
        let mut run = run_info(setup, members, &life.clock, build);
        let (secret, last_decision) = (store.secret(), store.last_decision_id());
        let router = Router::new(router_setup(&setup.config, secret, members), setup.policies.clone());
        let router = Arc::new(router);
        // Before `begin_run`, which takes the store and writes the weights of `run`.
        tuning::resume(&mut store, &router, &mut run, setup.cold).await?;
        let places = members.iter().map(FleetReplica::location).collect();
        let warm = Arc::new(WarmStart::new(Arc::clone(&router), places, (setup.config.index, secret)));
        if !setup.cold {
            warm::restore(&warm, &mut store, &run, life.clock.now()).await?;
        }
        let clock = Arc::clone(&life.clock);
        let (sink, writer) = store.begin_run(&run, &setup.config.store, clock, Box::new(log_store_trouble)).await?;
        // On the background runtime, whose thread has the lower priority.
        life.tasks.spawn_on(writer.run(), background.handle());
        Ok(Self { router, warm, serving, first_policy, last_decision, sink })
    }
}

/// Parts shared by the loops, the data plane and the operators' pages.
struct SharedParts {
    outlet: FactOutlet,
    meter: Arc<RouterMetrics>,
    vitals: Arc<ReplicaLiveness>,
    readiness: ReadinessFlag,
    unread_hints: UnreadHints,
}

impl SharedParts {
    /// Connects observations with their consumers: tuners first, then log and metrics, then the history.
    fn connect(core: &RouterCore, members: &[FleetReplica], caches: &KvEventFeeds, life: &Lifetime) -> Self {
        let names: Vec<Arc<str>> = members.iter().map(|member| Arc::clone(&member.replica.name)).collect();
        let (readiness, unread_hints) = (ReadinessFlag::default(), UnreadHints::default());
        let gauges = LiveGauges {
            router: Arc::clone(&core.router),
            sink: core.sink.clone(),
            unread_hints: unread_hints.clone(),
            heard: caches.gauges(),
        };
        let meter = Arc::new(RouterMetrics::new(&names, Arc::new(gauges)));
        // Built from the inside out: tuners wrap the fan, which wraps the store's queue.
        let fan = Arc::new(RecordFanout::new(names, Arc::clone(&meter), Arc::new(core.sink.clone())));
        let (router, clock) = (Arc::clone(&core.router), Arc::clone(&life.clock));
        let records: Arc<dyn RecordListener> = Arc::new(TuningListener { router, clock, next: fan });
        let facts = FactKeeper {
            router: Arc::clone(&core.router),
            warm: Arc::clone(&core.warm),
            readiness: readiness.clone(),
            records: Arc::clone(&records),
            clock: Arc::clone(&life.clock),
        };
        let outlet = FactOutlet::new(Arc::clone(&life.clock), facts.taker(), records);
        Self { outlet, meter, vitals: Arc::new(ReplicaLiveness::new(members.len())), readiness, unread_hints }
    }

    fn senses(&self, life: &Lifetime, seed: u64) -> ProbeContext {
        ProbeContext {
            clock: Arc::clone(&life.clock),
            outlet: self.outlet.clone(),
            liveness: Arc::clone(&self.vitals),
            tasks: life.tasks.clone(),
            stop: life.stop.clone(),
            seed,
        }
    }

    fn data_setup(
        &self,
        setup: &ServeSetup,
        core: &RouterCore,
        members: &[FleetReplica],
        served: Option<ServedCallback>,
        life: &Lifetime,
    ) -> DataPlaneSetup {
        DataPlaneSetup {
            selector: Arc::new(RouterSelector::new(Arc::clone(&core.router), Arc::clone(&life.clock))),
            clock: Arc::clone(&life.clock),
            outlet: self.outlet.clone(),
            on_served: served,
            readiness: self.readiness.clone(),
            unread_hints: self.unread_hints.clone(),
            liveness: Arc::clone(&self.vitals),
            server: setup.config.server.clone(),
            failover: setup.config.failover,
            replicas: members.iter().map(|member| member.setup.clone()).collect(),
            serving: core.serving.clone(),
            // Ids contain the time; a clock that was set back must not repeat those of an earlier run.
            ids: DecisionIds::above(core.last_decision.unwrap_or(DecisionId(0))),
            seed: setup.seed,
        }
    }
}

/// Starts the loops that measure each replica's round trip, load and health.
fn watch_fleet(members: Vec<FleetReplica>, senses: &ProbeContext, config: &Config) {
    for member in members {
        senses.tasks.spawn(probe_loop(member.monitored.clone(), senses.clone(), config.probe));
        senses.tasks.spawn(scrape_loop(member.monitored, senses.clone(), config.scrape));
    }
}

/// Starts the periodic writers of what no request records: learned rates, snapshots of the index, news of plugins.
fn keep_books(core: &RouterCore, outlet: &FactOutlet, life: &Lifetime) {
    let Lifetime { clock, tasks, stop, .. } = life;
    tasks.spawn(write_rates(Arc::clone(&core.router), outlet.clone(), Arc::clone(clock), stop.clone()));
    let (warm, sink) = (Arc::clone(&core.warm), core.sink.clone());
    tasks.spawn(warm::snapshot_loop(warm, sink, Arc::clone(clock), tasks.clone(), stop.clone()));
    if let Some(loader) = core.router.policies().loader.clone() {
        tasks.spawn(record_plugin_events(loader, outlet.clone(), stop.clone()));
    }
}

/// Reads the configuration again at each SIGHUP.
fn obey_hangups(setup: &ServeSetup, core: &RouterCore, outlet: &FactOutlet, hangups: ReloadSignals, life: &Lifetime) {
    let reloading = ReloadTask {
        config: setup.config.clone(),
        reader: setup.config_reader.clone(),
        router: Arc::clone(&core.router),
        sink: core.sink.clone(),
        outlet: outlet.clone(),
        clock: Arc::clone(&life.clock),
    };
    life.tasks.spawn(reloading.run(hangups, life.stop.clone()));
}

/// Serves the operators' pages.
fn serve_operators(
    listener: TcpListener,
    core: &RouterCore,
    shared: &SharedParts,
    data: &Arc<DataPlane>,
    life: &Lifetime,
) {
    let operators = OperatorActions {
        router: Arc::clone(&core.router),
        serving: core.serving.clone(),
        default: core.router.policies().default,
        readiness: shared.readiness.clone(),
        sink: core.sink.clone(),
        outlet: shared.outlet.clone(),
    };
    let data = Arc::clone(data);
    let ready = Box::new(move || data.is_ready());
    let pages = AdminPages { meter: Arc::clone(&shared.meter), operators, ready };
    life.tasks.spawn(admin::serve(Arc::new(pages), listener, life.tasks.clone(), life.stop.clone()));
}

/// Serves clients until a signal, then drains; a second signal cuts off running requests. Returns true if all requests
/// ended by themselves.
async fn serve_clients(
    data: &Arc<DataPlane>,
    clients: TcpListener,
    shared: &SharedParts,
    signals: &mut ShutdownSignals,
    life: &Lifetime,
) -> bool {
    let shutdown = CancellationToken::new();
    let serving = edge::serve(Arc::clone(data), clients, shutdown.clone(), &life.tasks);
    tokio::pin!(serving);
    tokio::select! {
        finished = &mut serving => finished,
        signal = signals.next() => {
            log::draining(signal, data.drain_secs());
            shared.outlet.announce(EventKind::Drain, signal.to_owned());
            // Not ready first, so that a load balancer's next check fails while running requests finish.
            shared.readiness.set(false);
            shutdown.cancel();
            tokio::select! {
                finished = &mut serving => finished,
                signal = signals.next() => {
                    log::aborting(signal);
                    data.abort_requests();
                    // Still awaited: each request that is cut off writes its outcome.
                    serving.await
                }
            }
        }
    }
}

/// Ends the loops, writes everything learned, and waits for the last row and the last task.
async fn wind_down(finished: bool, core: &RouterCore, outlet: &FactOutlet, life: &Lifetime) -> Result<(), ServeError> {
    life.stop.cancel();
    life.engines_stop.cancel();
    // Learned state goes into the queue before `finish`, after which the sink drops every record.
    core.router.stop_tuning(life.clock.now()).into_iter().for_each(|said| outlet.record(said));
    core.warm.write_all(life.clock.now()).into_iter().for_each(|record| outlet.record(record));
    let how = if finished { "drained" } else { "running requests were cut off; their outcomes say `shutdown`" };
    outlet.announce(EventKind::Stop, how.to_owned());
    core.sink.finish(life.clock.now()).await?;
    // A tracker's `wait` returns only after it was closed.
    life.tasks.close();
    if tokio::time::timeout(TASKS_GRACE, life.tasks.wait()).await.is_err() {
        // A task that hangs must not keep the process alive: all rows are on disk by now.
        log::task_died("shutdown", &format!("{} tasks did not end in time", life.tasks.len()));
    }
    log::stopped(core.sink.dropped_rows());
    Ok(())
}

async fn listen(address: &str) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|cause| ServeError::Listen { address: address.to_owned(), cause })
}

fn local(listener: &TcpListener) -> Result<SocketAddr, ServeError> {
    listener.local_addr().map_err(|cause| ServeError::Listen {
        address: "an open socket (its address cannot be read)".to_owned(),
        cause,
    })
}

fn router_setup(config: &Config, secret: u64, members: &[FleetReplica]) -> RouterSetup {
    RouterSetup {
        fleet: members.iter().map(|member| member.replica.clone()).collect(),
        models: members.iter().map(|member| member.models.clone()).collect(),
        secret,
        index: config.index,
        probe: config.probe,
        scrape: config.scrape,
    }
}

fn run_info(setup: &ServeSetup, members: &[FleetReplica], clock: &Arc<dyn Clock>, serves: PolicyBuildId) -> RunInfo {
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
                url: Some(member.monitored.endpoint.url().as_str().to_owned()),
            })
            .collect(),
        policies: setup.policies.list.iter().map(|policy| policy_info(policy, policy.weights())).collect(),
    }
}

/// Describes a policy for the store.
pub(super) fn policy_info(policy: &Policy, weights: PolicyWeights) -> PolicyInfo {
    let term_info = |term: &PolicyTerm| TermInfo {
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

/// Writes the learned rates periodically, for post-mortems and for the next start.
async fn write_rates(router: Arc<Router>, outlet: FactOutlet, clock: Arc<dyn Clock>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RATES_EVERY) => {
                router.rates(clock.now()).into_iter().for_each(|rate| outlet.record(StoreRecord::Rate(rate)));
            }
        }
    }
}

/// Records news of plugins. A decision, which must not wait, only leaves a note; it is collected here.
async fn record_plugin_events(loader: Arc<dyn PluginLoader>, outlet: FactOutlet, stop: CancellationToken) {
    loop {
        // News is taken once more after the stop, so that the last requests' failures are recorded too.
        let stopped = tokio::time::timeout(PLUGIN_NEWS_EVERY, stop.cancelled()).await.is_ok();
        for text in loader.take_messages() {
            outlet.announce(EventKind::PluginQuarantined, text);
        }
        if stopped {
            return;
        }
    }
}

/// Lists the plugin builds of a policy's constraints and objective, as comments to append to its text. Terms have a
/// column for that; these lines change the policy's digest, so that a rebuilt plugin makes another policy in the
/// database.
fn builds(policy: &Policy) -> String {
    let constraints = policy.constraints.iter().filter_map(|rule| {
        let sha256 = rule.plugin_sha256.as_ref()?;
        // Escaped, so that a name with a line break cannot end the comment and become configuration.
        Some(format!("# constraint {} is build {sha256}\n", rule.name.escape_debug()))
    });
    let objective = policy.tune.as_ref().and_then(|plan| plan.objective_sha256.as_ref());
    constraints.chain(objective.map(|sha256| format!("# objective is build {sha256}\n"))).collect()
}

/// Logs a trouble of the store.
fn log_store_trouble(trouble: StoreTrouble) {
    match trouble {
        StoreTrouble::Blocked { cause } => log::store_stuck(&cause),
        StoreTrouble::Recovered => log::store_recovered(),
        StoreTrouble::Lost { rows, cause } => log::store_lost(rows, &cause),
        StoreTrouble::WalTooLong { bytes } => log::store_long_log(bytes),
        StoreTrouble::NotPruned { cause } => log::store_not_pruned(&cause),
    }
}
