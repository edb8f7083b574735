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
use super::facts::FactKeeper;
use super::fleet::{self, Ground, Member};
use super::gauges::LiveGauges;
use super::kv_events::Caches;
use super::operate::{self, Operators};
use super::reload::{Reloading, Reread};
use super::signals::{Hangups, Signals};
use super::tuning::{self, Tuned};
use super::warm::{self, Warm};
use gorgo_observe::fan::Fan;
use gorgo_observe::meter::Meter;
use gorgo_observe::{FactOutlet, Listener, log};
use gorgo_routing::config::{Config, ReplicaSection};
use gorgo_routing::model::{Clock, DecisionId, EventKind, PolicyBuildId, Record, Weights};
use gorgo_routing::policy::{Loader, Policies, Policy, Router, RouterSetup, Term};
use gorgo_store::{PolicyInfo, ReplicaInfo, RunInfo, Sink, Store, StoreError, TermInfo, Trouble};
use gorgo_wire::edge::{
    self, Data, DataSetup, DecisionIds, Readiness, RouterChoice, Serving, UnreadHints, UpstreamError,
};
use gorgo_wire::engine::probe::probe_loop;
use gorgo_wire::engine::scrape::scrape_loop;
use gorgo_wire::engine::{Senses, TellServed, Vitals};

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
    let life = Lifetime::begin();
    // The store first: a second process on the same file is told so, whatever its ports are.
    let (background, store) = open_store(&setup.config).await?;
    let ports = Ports::open(&setup.config).await?;
    let members = fleet::gather(&setup.config, &life.ground(setup.seed)).await?;
    let core = RouterCore::build(&setup, store, &members, &life, &background).await?;
    let caches = Caches::new(&core.router, &members);
    let shared = SharedParts::connect(&core, &members, &caches, &life);

    let senses = shared.senses(&life, setup.seed);
    let served = caches.start(&senses);
    let data = Data::new(shared.data_setup(&setup, &core, &members, served, &life), &life.tasks)?;
    core.router.ask_connections(data.connections());
    watch_fleet(members, &senses, &setup.config);
    keep_books(&core, &shared.outlet, &life);
    obey_hangups(&setup, &core, &shared.outlet, hangups, &life);
    let Ports { clients, operators, addresses } = ports;
    serve_operators(operators, &core, &shared, &data, &life);

    let policy_name = &core.first_policy;
    shared.outlet.announce(EventKind::Start, format!("gorgo {} with policy {policy_name}", setup.version));
    log::listening(addresses.0, addresses.1, policy_name, core.router.fleet().len());
    // Clients wait in the listener's queue meanwhile: who comes first should find the caches that are there.
    core.warm.settled().await;
    let finished = serve_clients(&data, clients, &shared, &mut signals, &life).await;
    wind_down(finished, &core, &shared.outlet, &life).await
}

/// What lasts as long as the process: time, tasks, and what ends them.
struct Lifetime {
    clock: Arc<dyn Clock>,
    tasks: TaskTracker,
    /// Ends the loops, once no request runs any more.
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

    const fn ground(&self, seed: u64) -> Ground<'_> {
        Ground { clock: &self.clock, tracker: &self.tasks, stop: &self.engines_stop, seed }
    }
}

/// The history, opened on the thread that will write it.
async fn open_store(config: &Config) -> Result<(Background, Store), ServeError> {
    let path = config.base.join(&config.store.path);
    // Opened there, because SQLite's own thread is as urgent as the one that starts it.
    let (background, opened) =
        Background::start(async move || gorgo_store::open(&path).await).map_err(ServeError::Thread)?;
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
        let addresses = (local(&clients)?, local(&operators)?);
        Ok(Self { clients, operators, addresses })
    }
}

/// The router with what it remembers of earlier runs, and the history that this run writes.
struct RouterCore {
    router: Arc<Router>,
    warm: Arc<Warm>,
    serving: Serving,
    /// Name of the policy that the run begins with.
    first_policy: String,
    /// Newest decision of earlier runs.
    last_decision: Option<DecisionId>,
    sink: Sink,
}

impl RouterCore {
    /// Builds the router, lets it remember, and only then begins the run: its row holds the weights that were recalled.
    async fn build(
        setup: &ServeSetup,
        mut store: Store,
        members: &[Member],
        life: &Lifetime,
        background: &Background,
    ) -> Result<Self, ServeError> {
        let pinned = if setup.named { None } else { store.pinned_policy().await? };
        let serving = Serving::new(operate::begins_with(&setup.policies, pinned.as_deref()));
        let serves = setup.policies.get(serving.get());
        let first_policy = serves.map_or_else(String::new, |policy| policy.name.to_string());
        let build = serves.map_or(PolicyBuildId::UNKNOWN, |policy| policy.id);
        let mut run = run_info(setup, members, &life.clock, build);
        let (secret, last_decision) = (store.secret(), store.last_decision_id());
        let router = Router::new(router_setup(&setup.config, secret, members), setup.policies.clone());
        let router = Arc::new(router);
        tuning::resume(&mut store, &router, &mut run, setup.cold).await?;
        let places = members.iter().map(Member::place).collect();
        let warm = Arc::new(Warm::new(Arc::clone(&router), places, (setup.config.index, secret)));
        if !setup.cold {
            warm::recall(&warm, &mut store, &run, life.clock.now()).await?;
        }
        let clock = Arc::clone(&life.clock);
        let (sink, writer) = store.begin_run(&run, &setup.config.store, clock, Box::new(tell)).await?;
        life.tasks.spawn_on(writer.run(), background.handle());
        Ok(Self { router, warm, serving, first_policy, last_decision, sink })
    }
}

/// What the loops, the data plane and the operators' pages have in common.
struct SharedParts {
    outlet: FactOutlet,
    meter: Arc<Meter>,
    vitals: Arc<Vitals>,
    readiness: Readiness,
    unread_hints: UnreadHints,
}

impl SharedParts {
    /// Connects what is seen with those who are told: tuners first, then log and metrics, then the history.
    fn connect(core: &RouterCore, members: &[Member], caches: &Caches, life: &Lifetime) -> Self {
        let names: Vec<Arc<str>> = members.iter().map(|member| Arc::clone(&member.replica.name)).collect();
        let (readiness, unread_hints) = (Readiness::default(), UnreadHints::default());
        let gauges = LiveGauges {
            router: Arc::clone(&core.router),
            sink: core.sink.clone(),
            unread_hints: unread_hints.clone(),
            heard: caches.heard(),
        };
        let meter = Arc::new(Meter::new(&names, Arc::new(gauges)));
        let fan = Arc::new(Fan::new(names, Arc::clone(&meter), Arc::new(core.sink.clone())));
        let (router, clock) = (Arc::clone(&core.router), Arc::clone(&life.clock));
        let records: Arc<dyn Listener> = Arc::new(Tuned { router, clock, next: fan });
        let facts = FactKeeper {
            router: Arc::clone(&core.router),
            warm: Arc::clone(&core.warm),
            readiness: readiness.clone(),
            records: Arc::clone(&records),
            clock: Arc::clone(&life.clock),
        };
        let outlet = FactOutlet::new(Arc::clone(&life.clock), facts.taker(), records);
        Self { outlet, meter, vitals: Arc::new(Vitals::new(members.len())), readiness, unread_hints }
    }

    fn senses(&self, life: &Lifetime, seed: u64) -> Senses {
        Senses {
            clock: Arc::clone(&life.clock),
            outlet: self.outlet.clone(),
            vitals: Arc::clone(&self.vitals),
            tasks: life.tasks.clone(),
            stop: life.stop.clone(),
            seed,
        }
    }

    fn data_setup(
        &self,
        setup: &ServeSetup,
        core: &RouterCore,
        members: &[Member],
        served: Option<TellServed>,
        life: &Lifetime,
    ) -> DataSetup {
        DataSetup {
            choose: Arc::new(RouterChoice::new(Arc::clone(&core.router), Arc::clone(&life.clock))),
            clock: Arc::clone(&life.clock),
            outlet: self.outlet.clone(),
            served,
            readiness: self.readiness.clone(),
            unread_hints: self.unread_hints.clone(),
            vitals: Arc::clone(&self.vitals),
            server: setup.config.server.clone(),
            failover: setup.config.failover,
            replicas: members.iter().map(|member| member.upstream.clone()).collect(),
            serving: core.serving.clone(),
            ids: DecisionIds::above(core.last_decision.unwrap_or(DecisionId(0))),
            seed: setup.seed,
        }
    }
}

/// Asks each replica how far, how busy and how well it is.
fn watch_fleet(members: Vec<Member>, senses: &Senses, config: &Config) {
    for member in members {
        senses.tasks.spawn(probe_loop(member.watched.clone(), senses.clone(), config.probe));
        senses.tasks.spawn(scrape_loop(member.watched, senses.clone(), config.scrape));
    }
}

/// Writes down now and then what no request brings: learned rates, snapshots of the index, news of plugins.
fn keep_books(core: &RouterCore, outlet: &FactOutlet, life: &Lifetime) {
    let Lifetime { clock, tasks, stop, .. } = life;
    tasks.spawn(write_rates(Arc::clone(&core.router), outlet.clone(), Arc::clone(clock), stop.clone()));
    let (warm, sink) = (Arc::clone(&core.warm), core.sink.clone());
    tasks.spawn(warm::keep(warm, sink, Arc::clone(clock), tasks.clone(), stop.clone()));
    if let Some(loader) = core.router.policies().loader.clone() {
        tasks.spawn(tell_of_plugins(loader, outlet.clone(), stop.clone()));
    }
}

/// Reads the configuration again at each SIGHUP.
fn obey_hangups(setup: &ServeSetup, core: &RouterCore, outlet: &FactOutlet, hangups: Hangups, life: &Lifetime) {
    let reloading = Reloading {
        config: setup.config.clone(),
        reread: setup.reread.clone(),
        router: Arc::clone(&core.router),
        sink: core.sink.clone(),
        outlet: outlet.clone(),
        clock: Arc::clone(&life.clock),
    };
    life.tasks.spawn(reloading.run(hangups, life.stop.clone()));
}

/// Serves the operators' pages.
fn serve_operators(listener: TcpListener, core: &RouterCore, shared: &SharedParts, data: &Arc<Data>, life: &Lifetime) {
    let operators = Operators {
        router: Arc::clone(&core.router),
        serving: core.serving.clone(),
        default: core.router.policies().default,
        readiness: shared.readiness.clone(),
        sink: core.sink.clone(),
        outlet: shared.outlet.clone(),
    };
    let data = Arc::clone(data);
    let ready = Box::new(move || data.is_ready());
    let pages = Pages { meter: Arc::clone(&shared.meter), operators, ready };
    life.tasks.spawn(admin::serve(Arc::new(pages), listener, life.tasks.clone(), life.stop.clone()));
}

/// Serves clients until a signal, then drains; a second signal cuts what still runs. Whether all requests ended by
/// themselves.
async fn serve_clients(
    data: &Arc<Data>,
    clients: TcpListener,
    shared: &SharedParts,
    signals: &mut Signals,
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
            shared.readiness.set(false);
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
    }
}

/// Ends the loops, writes down what was learned, and waits for the last row and the last task.
async fn wind_down(finished: bool, core: &RouterCore, outlet: &FactOutlet, life: &Lifetime) -> Result<(), ServeError> {
    life.stop.cancel();
    life.engines_stop.cancel();
    core.router.stop_tuning(life.clock.now()).into_iter().for_each(|said| outlet.record(said));
    core.warm.write_all(life.clock.now()).into_iter().for_each(|record| outlet.record(record));
    let how = if finished { "drained" } else { "running requests were cut off; their outcomes say `shutdown`" };
    outlet.announce(EventKind::Stop, how.to_owned());
    core.sink.finish(life.clock.now()).await?;
    life.tasks.close();
    if tokio::time::timeout(TASKS_GRACE, life.tasks.wait()).await.is_err() {
        log::task_died("shutdown", &format!("{} tasks did not end in time", life.tasks.len()));
    }
    log::stopped(core.sink.dropped_rows());
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
                url: Some(member.watched.endpoint.url().as_str().to_owned()),
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

/// Writes down the learned rates now and then, for post-mortems and for the next start.
async fn write_rates(router: Arc<Router>, outlet: FactOutlet, clock: Arc<dyn Clock>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RATES_EVERY) => {
                router.rates(clock.now()).into_iter().for_each(|rate| outlet.record(Record::Rate(rate)));
            }
        }
    }
}

/// Writes down what became of plugins. A decision only leaves word; it is fetched here.
async fn tell_of_plugins(loader: Arc<dyn Loader>, outlet: FactOutlet, stop: CancellationToken) {
    loop {
        let stopped = tokio::time::timeout(PLUGIN_NEWS_EVERY, stop.cancelled()).await.is_ok();
        for text in loader.take_news() {
            outlet.announce(EventKind::PluginQuarantined, text);
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
