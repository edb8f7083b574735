//! One run: setup, policy and seed → samples.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::agenda::{Agenda, Happening};
use super::book::{Book, Recorder, Tuning};
use super::chance::bits;
use super::fleet::Member;
use super::health::Health;
use super::live::Live;
use super::network::{Path, micros};
use super::scenario::Scenario;
use super::workload::Workload;
use crate::sim::{Engine, EngineError, Output};
use crate::trace::Sample;
use gorgo_routing::config::{Failover, Index, Probe, Scrape};
use gorgo_routing::model::{At, PolicyIndex, Record, ReplicaId};
use gorgo_routing::policy::{Policies, Router, RouterSetup};

/// Start of the simulated world: an hour after the epoch, so that no computed time is before the epoch.
pub const BEGINNING: At = At(3_600_000_000);
/// Time for which the router probes before the first request, ms: a router is started before its traffic.
const LEAD_MS: f64 = 10_000.0;
/// Random streams in addition to those of the paths.
const SECRET: u64 = 100;
pub(super) const DECISIONS: u64 = 101;
pub(super) const PACE: u64 = 102;

/// Everything that is simulated, except policy and seed.
#[derive(Debug, Clone)]
pub struct Setup<'a> {
    /// Requests of the run.
    pub workload: &'a Workload,
    /// Replicas of the fleet.
    pub members: &'a [Member],
    /// Network and faults.
    pub scenario: &'a Scenario,
    /// Limit on requests in flight at the client; `None`: no limit.
    pub max_in_flight: Option<usize>,
    /// Settings of the prefix index.
    pub index: Index,
    /// Settings of the probes.
    pub probe: Probe,
    /// Settings of the reads of metrics pages.
    pub scrape: Scrape,
    /// Retries; hedging is not simulated.
    pub failover: Failover,
}

/// Source of decisions.
#[derive(Debug)]
pub enum Chooser {
    /// A router by one of these policies, built for the setup's fleet.
    Policy(Policies, PolicyIndex),
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
pub struct Run {
    /// Measurements of each request, in order of their ends.
    pub samples: Vec<Sample>,
    /// Lowest possible TTFT of each sample, ms: the minimum over replicas of round trip + prefill of what unlimited
    /// caches could not have contained, without any queue. Requests that overtake each other on one path because of its
    /// jitter may be below it.
    pub bounds_ms: Vec<f64>,
    /// Load that the router still counted at the end: requests, prompt tokens, uncached tokens. Anything but 0 is a
    /// defect.
    pub left: (u64, u64, u64),
    /// Number of simulation events processed.
    pub happenings: u64,
    /// Summary of the policy's tuner; `None` if it has none.
    pub tuning: Option<Tuning>,
}

/// A replica of the simulated world.
#[derive(Debug)]
pub(super) struct Stand {
    pub(super) name: Arc<str>,
    pub(super) engine: Engine,
    pub(super) path: Path,
    pub(super) health: Health,
    /// Time of the engine's next event as scheduled in the queue.
    pub(super) entered: Option<At>,
    /// The replica refuses connections.
    pub(super) down: bool,
    /// Speed without faults.
    pub(super) speed: f64,
    /// Highest speed that faults ever give it; used for the TTFT bound.
    pub(super) fastest: f64,
    /// Time at which its process started.
    pub(super) started: At,
    /// Requests sent there that have not ended.
    pub(super) inflight: u32,
    /// Prefill tokens on their way there, if the clairvoyant decides.
    pub(super) coming_tokens: u64,
}

/// State of a simulation.
#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) setup: &'a Setup<'a>,
    /// Router and its policy; `None`: the clairvoyant decides.
    pub(super) router: Option<(Router, PolicyIndex)>,
    pub(super) seed: u64,
    pub(super) secret: u64,
    pub(super) start: At,
    pub(super) agenda: Agenda,
    pub(super) stands: Vec<Stand>,
    /// State of requests in flight, by index in the workload.
    pub(super) live: Vec<Option<Box<Live>>>,
    pub(super) in_flight: usize,
    /// Requests that became due while the client had reached its limit of requests in flight.
    pub(super) held: VecDeque<usize>,
    pub(super) decisions: u64,
    /// Requests that wait at the router's admission gate, by the number under which the gate calls them.
    pub(super) waiting: HashMap<u64, usize>,
    /// Times of requests and of retries over the last 10 s.
    pub(super) recent: (VecDeque<At>, VecDeque<At>),
    /// Faults of the scenario that are active now.
    pub(super) active: Vec<bool>,
    pub(super) outputs: Vec<Output>,
    pub(super) book: Book<'a>,
    pub(super) samples: Vec<Sample>,
    pub(super) bounds_ms: Vec<f64>,
}

/// Simulates one run.
///
/// # Errors
/// The engine of a replica cannot be created.
pub fn simulate(setup: &Setup<'_>, chooser: Chooser, seed: u64) -> Result<Run, SimulateError> {
    Ok(run(World::new(setup, chooser, seed, None)?))
}

/// Simulates one run and passes every record that `serve` would write to `recorder`, in order.
///
/// # Errors
/// The engine of a replica cannot be created.
pub fn simulate_recorded(
    setup: &Setup<'_>,
    chooser: Chooser,
    seed: u64,
    recorder: &mut dyn FnMut(Record),
) -> Result<Run, SimulateError> {
    Ok(run(World::new(setup, chooser, seed, Some(Recorder(recorder)))?))
}

fn run(mut world: World<'_>) -> Run {
    let mut happenings = 0;
    // The queue never gets empty: probes and scrapes schedule themselves. The run ends with its last request.
    while world.samples.len() < world.setup.workload.rows().len() {
        let Some((at, what)) = world.agenda.next() else { break };
        happenings += 1;
        world.happen(at, what);
    }
    // Every reservation must have been released by now; a remainder shows a leak in the router.
    let left = world.router.as_ref().map_or((0, 0, 0), |(router, _)| {
        let sum = |all: (u64, u64, u64), (requests, prompt, uncached): (u32, u64, u64)| {
            (all.0 + u64::from(requests), all.1 + prompt, all.2 + uncached)
        };
        router.fleet().iter().map(|replica| router.load(replica.id)).fold((0, 0, 0), sum)
    });
    let tuning = world.book.close(world.router.as_ref());
    Run { samples: world.samples, bounds_ms: world.bounds_ms, left, happenings, tuning }
}

impl<'a> World<'a> {
    fn new(
        setup: &'a Setup<'a>,
        chooser: Chooser,
        seed: u64,
        recorder: Option<Recorder<'a>>,
    ) -> Result<Self, SimulateError> {
        let secret = bits(seed, SECRET, 0);
        let start = BEGINNING.plus(micros(LEAD_MS));
        let stands =
            setup.members.iter().map(|member| Stand::new(member, setup, seed)).collect::<Result<Vec<_>, _>>()?;
        let router = match chooser {
            Chooser::Clairvoyant => None,
            Chooser::Policy(policies, policy) => {
                let made = RouterSetup {
                    fleet: setup.members.iter().map(|member| member.replica.clone()).collect(),
                    models: setup.members.iter().map(|member| member.models.clone()).collect(),
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
            book: Book::new(router.as_ref(), recorder),
            setup,
            router,
            seed,
            secret,
            start,
            agenda: Agenda::default(),
            stands,
            live: std::iter::repeat_with(|| None).take(requests).collect(),
            in_flight: 0,
            held: VecDeque::new(),
            decisions: 0,
            waiting: HashMap::new(),
            recent: (VecDeque::new(), VecDeque::new()),
            active: vec![false; setup.scenario.faults.len()],
            outputs: Vec::new(),
            samples: Vec::with_capacity(requests),
            bounds_ms: Vec::with_capacity(requests),
        };
        if requests > 0 {
            world.agenda.enter(world.scheduled(0), Happening::Arrive(0));
        }
        // Faults count from the first request, while probing starts earlier, at `BEGINNING`.
        for (number, fault) in setup.scenario.faults.iter().enumerate() {
            world.agenda.enter(start.plus(micros(fault.at_s * 1e3)), Happening::FaultBegins(number));
        }
        // The clairvoyant reads the true state and needs neither probes nor metrics pages.
        if world.router.is_some() {
            for member in setup.members {
                world.agenda.enter(BEGINNING, Happening::ProbeSent(member.replica.id));
                world.agenda.enter(BEGINNING, Happening::ScrapeSent(member.replica.id));
            }
        }
        Ok(world)
    }

    /// Returns the time at which the trace would send a request.
    pub(super) fn scheduled(&self, request: usize) -> At {
        self.start.plus(micros(self.setup.workload.rows()[request].at_ms))
    }

    pub(super) fn stand(&mut self, replica: ReplicaId) -> &mut Stand {
        &mut self.stands[replica.index()]
    }

    fn happen(&mut self, at: At, what: Happening) {
        match what {
            Happening::Arrive(request) => self.arrive(at, request),
            Happening::Look(request, looks) => self.look(at, request, looks),
            Happening::Reach(request, attempt) => self.reach(at, request, attempt),
            Happening::Engine(replica) => {
                let stand = self.stand(replica);
                // The engine's next event may have moved since; only the event scheduled last counts.
                if stand.entered == Some(at) {
                    stand.entered = None;
                    self.advance(at, replica);
                }
            }
            Happening::First(request, attempt) => self.first(at, request, attempt),
            Happening::Done(request, attempt) => self.done(at, request, attempt),
            Happening::Failed(request, attempt) => self.failed(at, request, attempt),
            Happening::ProbeSent(replica) => self.probe_sent(at, replica),
            Happening::ProbeBack(replica, rtt_ms) => self.probe_back(at, replica, rtt_ms),
            Happening::ScrapeSent(replica) => self.scrape_sent(at, replica),
            Happening::ScrapeRead(replica, back_us) => self.scrape_read(at, replica, back_us),
            Happening::ScrapeBack(replica, report) => self.scrape_back(at, replica, *report),
            Happening::FaultBegins(number) => self.fault_begins(at, number),
            Happening::FaultEnds(number) => self.fault_ends(at, number),
        }
        // Any event may free room at the gate, and `serve` would wake the called requests at once.
        self.answer_calls(at);
    }
}

impl Stand {
    fn new(member: &Member, setup: &Setup<'_>, seed: u64) -> Result<Self, SimulateError> {
        let replica = &member.replica;
        let engine = Engine::new(member.profile.clone(), member.speed)
            .map_err(|cause| SimulateError::Engine { replica: Arc::clone(&replica.name), cause })?;
        let network = setup.scenario.network;
        Ok(Self {
            name: Arc::clone(&replica.name),
            engine,
            // The path depends on seed and replica only, so that all policies meet the same network.
            path: Path::new(member.rtt_ms, network, seed, u64::from(replica.id.0), BEGINNING),
            health: Health::default(),
            entered: None,
            down: false,
            speed: member.speed,
            fastest: member.speed * setup.scenario.fastest(&replica.name),
            started: BEGINNING,
            inflight: 0,
            coming_tokens: 0,
        })
    }
}
