//! One run: setup, policy and seed → samples.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::event_queue::{EventQueue, SimEvent};
use super::health::SimulatedHealth;
use super::live_request::LiveRequest;
use super::network::{NetworkPath, micros};
use super::randomness::bits;
use super::recorder::{RecordSink, RunRecorder, TuningSummary};
use super::replica_spec::ReplicaSpec;
use super::scenario::Scenario;
use super::workload::SimulatedWorkload;
use crate::sim::{EngineError, EngineOutput, SimulatedEngine};
use crate::trace::RequestSample;
use gorgo_routing::config::{FailoverConfig, IndexConfig, ProbeConfig, ScrapeConfig};
use gorgo_routing::model::{PolicyIndex, ReplicaId, StoreRecord, UnixMicros};
use gorgo_routing::policy::{PolicySet, Router, RouterSetup};

/// Start of the simulated world: an hour after the epoch, so that no computed time is before the epoch.
pub const START_TIME: UnixMicros = UnixMicros(3_600_000_000);
/// Time for which the router probes before the first request, ms: a router is started before its traffic.
const LEAD_MS: f64 = 10_000.0;
/// Random streams in addition to those of the paths.
const SECRET: u64 = 100;
pub(super) const DECISIONS: u64 = 101;
pub(super) const PACE: u64 = 102;

/// Everything that is simulated, except policy and seed.
#[derive(Debug, Clone)]
pub struct SimulationSetup<'a> {
    /// Requests of the run.
    pub workload: &'a SimulatedWorkload,
    /// Replicas of the fleet.
    pub replicas: &'a [ReplicaSpec],
    /// Network and faults.
    pub scenario: &'a Scenario,
    /// Limit on requests in flight at the client; `None`: no limit.
    pub max_in_flight: Option<usize>,
    /// Settings of the prefix index.
    pub index: IndexConfig,
    /// Settings of the probes.
    pub probe: ProbeConfig,
    /// Settings of the reads of metrics pages.
    pub scrape: ScrapeConfig,
    /// Retries; hedging is not simulated.
    pub failover: FailoverConfig,
}

/// Source of decisions.
#[derive(Debug)]
pub enum DecisionMaker {
    /// A router by one of these policies, built for the setup's fleet.
    Policy(PolicySet, PolicyIndex),
    /// A greedy choice that knows the true queues, caches and round trips, which no router can know.
    Clairvoyant,
}

/// Reason why a run cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The engine of a replica cannot be created.
    #[error("replica {replica}: {cause}")]
    Engine {
        /// Name of the replica.
        replica: Arc<str>,
        /// Fault of its engine.
        cause: EngineError,
    },
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulationResult {
    /// Measurements of each request, in order of their ends.
    pub samples: Vec<RequestSample>,
    /// Lowest possible TTFT of each sample, ms: the minimum over replicas of round trip + prefill of what unlimited
    /// caches could not have contained, without any queue. Requests that overtake each other on one path because of its
    /// jitter may be below it.
    pub bounds_ms: Vec<f64>,
    /// Load that the router still counted at the end: requests, prompt tokens, uncached tokens. Anything but 0 is a
    /// defect.
    pub leftover_load: (u64, u64, u64),
    /// Number of simulation events processed.
    pub events: u64,
    /// Summary of the policy's tuner; `None` if it has none.
    pub tuning: Option<TuningSummary>,
}

/// A replica of the simulated world.
#[derive(Debug)]
pub(super) struct SimulatedReplica {
    pub(super) name: Arc<str>,
    pub(super) engine: SimulatedEngine,
    pub(super) path: NetworkPath,
    pub(super) health: SimulatedHealth,
    /// Time of the engine's next event as scheduled in the queue.
    pub(super) scheduled_event: Option<UnixMicros>,
    /// The replica refuses connections.
    pub(super) down: bool,
    /// Speed without faults.
    pub(super) speed: f64,
    /// Highest speed that faults ever give it; used for the TTFT bound.
    pub(super) max_speed: f64,
    /// Time at which its process started.
    pub(super) started: UnixMicros,
    /// Requests sent there that have not ended.
    pub(super) inflight: u32,
    /// Prefill tokens on their way there, if the clairvoyant decides.
    pub(super) tokens_in_transit: u64,
}

/// State of a simulation.
#[derive(Debug)]
pub(super) struct SimulatedWorld<'a> {
    pub(super) setup: &'a SimulationSetup<'a>,
    /// Router and its policy; `None`: the clairvoyant decides.
    pub(super) router: Option<(Router, PolicyIndex)>,
    pub(super) seed: u64,
    pub(super) secret: u64,
    pub(super) start: UnixMicros,
    pub(super) events: EventQueue,
    pub(super) replicas: Vec<SimulatedReplica>,
    /// State of requests in flight, by index in the workload.
    pub(super) live: Vec<Option<Box<LiveRequest>>>,
    pub(super) in_flight: usize,
    /// Requests that became due while the client had reached its limit of requests in flight.
    pub(super) waiting_for_slot: VecDeque<usize>,
    pub(super) decisions: u64,
    /// Requests that wait at the router's admission gate, by the number under which the gate calls them.
    pub(super) waiting_for_admission: HashMap<u64, usize>,
    /// Times of requests and of retries over the last 10 s.
    pub(super) recent: (VecDeque<UnixMicros>, VecDeque<UnixMicros>),
    /// Faults of the scenario that are active now.
    pub(super) active_faults: Vec<bool>,
    pub(super) outputs: Vec<EngineOutput>,
    pub(super) recorder: RunRecorder<'a>,
    pub(super) samples: Vec<RequestSample>,
    pub(super) bounds_ms: Vec<f64>,
}

/// Simulates one run.
///
/// # Errors
/// The engine of a replica cannot be created.
pub fn simulate(
    setup: &SimulationSetup<'_>,
    chooser: DecisionMaker,
    seed: u64,
) -> Result<SimulationResult, SimulateError> {
    Ok(run(SimulatedWorld::new(setup, chooser, seed, None)?))
}

/// Simulates one run and passes every record that `serve` would write to `recorder`, in order.
///
/// # Errors
/// The engine of a replica cannot be created.
pub fn simulate_recorded(
    setup: &SimulationSetup<'_>,
    chooser: DecisionMaker,
    seed: u64,
    recorder: &mut dyn FnMut(StoreRecord),
) -> Result<SimulationResult, SimulateError> {
    Ok(run(SimulatedWorld::new(setup, chooser, seed, Some(RecordSink(recorder)))?))
}

fn run(mut world: SimulatedWorld<'_>) -> SimulationResult {
    let mut happenings = 0;
    // The queue never gets empty: probes and scrapes schedule themselves. The run ends with its last request.
    while world.samples.len() < world.setup.workload.rows().len() {
        let Some((at, what)) = world.events.pop() else { break };
        happenings += 1;
        world.handle_event(at, what);
    }
    // Every reservation must have been released by now; a remainder shows a leak in the router.
    let left = world.router.as_ref().map_or((0, 0, 0), |(router, _)| {
        let sum = |all: (u64, u64, u64), (requests, prompt, uncached): (u32, u64, u64)| {
            (all.0 + u64::from(requests), all.1 + prompt, all.2 + uncached)
        };
        router.fleet().iter().map(|replica| router.load_totals(replica.id)).fold((0, 0, 0), sum)
    });
    let tuning = world.recorder.finish(world.router.as_ref());
    SimulationResult {
        samples: world.samples,
        bounds_ms: world.bounds_ms,
        leftover_load: left,
        events: happenings,
        tuning,
    }
}

impl<'a> SimulatedWorld<'a> {
    fn new(
        setup: &'a SimulationSetup<'a>,
        chooser: DecisionMaker,
        seed: u64,
        recorder: Option<RecordSink<'a>>,
    ) -> Result<Self, SimulateError> {
        let secret = bits(seed, SECRET, 0);
        let start = START_TIME.plus(micros(LEAD_MS));
        let stands = setup
            .replicas
            .iter()
            .map(|member| SimulatedReplica::new(member, setup, seed))
            .collect::<Result<Vec<_>, _>>()?;
        let router = match chooser {
            DecisionMaker::Clairvoyant => None,
            DecisionMaker::Policy(policies, policy) => {
                let made = RouterSetup {
                    fleet: setup.replicas.iter().map(|member| member.replica.clone()).collect(),
                    models: setup.replicas.iter().map(|member| member.models.clone()).collect(),
                    secret,
                    index: setup.index,
                    probe: setup.probe,
                    scrape: setup.scrape,
                };
                Some((Router::new(made, policies), policy))
            }
        };
        let requests = setup.workload.rows().len();
        let mut world = Self {
            recorder: RunRecorder::new(router.as_ref(), recorder),
            setup,
            router,
            seed,
            secret,
            start,
            events: EventQueue::default(),
            replicas: stands,
            live: std::iter::repeat_with(|| None).take(requests).collect(),
            in_flight: 0,
            waiting_for_slot: VecDeque::new(),
            decisions: 0,
            waiting_for_admission: HashMap::new(),
            recent: (VecDeque::new(), VecDeque::new()),
            active_faults: vec![false; setup.scenario.faults.len()],
            outputs: Vec::new(),
            samples: Vec::with_capacity(requests),
            bounds_ms: Vec::with_capacity(requests),
        };
        if requests > 0 {
            world.events.schedule(world.scheduled(0), SimEvent::Arrive(0));
        }
        // Faults count from the first request, while probing starts earlier, at `START_TIME`.
        for (number, fault) in setup.scenario.faults.iter().enumerate() {
            world.events.schedule(start.plus(micros(fault.at_s * 1e3)), SimEvent::FaultBegins(number));
        }
        // The clairvoyant reads the true state and needs neither probes nor metrics pages.
        if world.router.is_some() {
            for member in setup.replicas {
                world.events.schedule(START_TIME, SimEvent::ProbeSent(member.replica.id));
                world.events.schedule(START_TIME, SimEvent::ScrapeSent(member.replica.id));
            }
        }
        Ok(world)
    }

    /// Returns the time at which the trace would send a request.
    pub(super) fn scheduled(&self, request: usize) -> UnixMicros {
        self.start.plus(micros(self.setup.workload.rows()[request].at_ms))
    }

    pub(super) fn replica_mut(&mut self, replica: ReplicaId) -> &mut SimulatedReplica {
        &mut self.replicas[replica.index()]
    }

    fn handle_event(&mut self, at: UnixMicros, what: SimEvent) {
        match what {
            SimEvent::Arrive(request) => self.arrive(at, request),
            SimEvent::Recheck(request, looks) => self.recheck(at, request, looks),
            SimEvent::EngineReceives(request, attempt) => self.engine_receives(at, request, attempt),
            SimEvent::EngineDue(replica) => {
                let stand = self.replica_mut(replica);
                // The engine's next event may have moved since; only the event scheduled last counts.
                if stand.scheduled_event == Some(at) {
                    stand.scheduled_event = None;
                    self.advance(at, replica);
                }
            }
            SimEvent::FirstToken(request, attempt) => self.first(at, request, attempt),
            SimEvent::Done(request, attempt) => self.done(at, request, attempt),
            SimEvent::Failed(request, attempt) => self.failed(at, request, attempt),
            SimEvent::ProbeSent(replica) => self.probe_sent(at, replica),
            SimEvent::ProbeBack(replica, rtt_ms) => self.probe_back(at, replica, rtt_ms),
            SimEvent::ScrapeSent(replica) => self.scrape_sent(at, replica),
            SimEvent::ScrapeRead(replica, back_us) => self.scrape_read(at, replica, back_us),
            SimEvent::ScrapeBack(replica, report) => self.scrape_back(at, replica, *report),
            SimEvent::FaultBegins(number) => self.fault_begins(at, number),
            SimEvent::FaultEnds(number) => self.fault_ends(at, number),
        }
        // Any event may free room at the gate, and `serve` would wake the called requests at once.
        self.readmit_called(at);
    }
}

impl SimulatedReplica {
    fn new(member: &ReplicaSpec, setup: &SimulationSetup<'_>, seed: u64) -> Result<Self, SimulateError> {
        let replica = &member.replica;
        let engine = SimulatedEngine::new(member.profile.clone(), member.speed)
            .map_err(|cause| SimulateError::Engine { replica: Arc::clone(&replica.name), cause })?;
        let network = setup.scenario.network;
        Ok(Self {
            name: Arc::clone(&replica.name),
            engine,
            // The path depends on seed and replica only, so that all policies meet the same network.
            path: NetworkPath::new(member.rtt_ms, network, seed, u64::from(replica.id.0), START_TIME),
            health: SimulatedHealth::default(),
            scheduled_event: None,
            down: false,
            speed: member.speed,
            max_speed: member.speed * setup.scenario.max_speed_factor(&replica.name),
            started: START_TIME,
            inflight: 0,
            tokens_in_transit: 0,
        })
    }
}
