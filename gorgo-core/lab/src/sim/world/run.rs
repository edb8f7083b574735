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

/// When the world begins: an hour after its epoch, so that nothing ever lies before time.
pub const BEGINNING: At = At(3_600_000_000);
/// How long the router probes before the first request, ms: a router is started before its traffic.
const LEAD_MS: f64 = 10_000.0;
/// Streams of randomness beside those of the paths.
const SECRET: u64 = 100;
pub(super) const DECISIONS: u64 = 101;
pub(super) const PACE: u64 = 102;

/// What is simulated, but for policy and seed.
#[derive(Debug, Clone)]
pub struct Setup<'a> {
    /// The requests.
    pub workload: &'a Workload,
    /// The fleet.
    pub members: &'a [Member],
    /// Network and faults.
    pub scenario: &'a Scenario,
    /// Most requests in flight at the client; `None` for no limit.
    pub max_in_flight: Option<usize>,
    /// Settings of the prefix index.
    pub index: Index,
    /// Settings of the probes.
    pub probe: Probe,
    /// Settings of the engine reports.
    pub scrape: Scrape,
    /// Retries; hedging is not simulated.
    pub failover: Failover,
}

/// Who decides.
#[derive(Debug)]
pub enum Chooser {
    /// A router by one of these policies, built for the setup's fleet.
    Policy(Policies, PolicyIndex),
    /// Nobody could know what this one knows: true queues, caches and round trips, greedily.
    Clairvoyant,
}

/// Why there is nothing to simulate.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// An engine cannot be.
    #[error("replica {replica}: {cause}")]
    Engine {
        /// Whose.
        replica: Arc<str>,
        /// Why.
        cause: EngineError,
    },
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// One per request, in order of their ends.
    pub samples: Vec<Sample>,
    /// For each sample the lowest TTFT that was possible for it, ms: the least over replicas of round trip + prefill of
    /// what caches without end could not have held, without any queue. Requests that overtake each other on one way
    /// within its jitter may lie below it.
    pub bounds_ms: Vec<f64>,
    /// What the router still counted at the end: requests, prompt tokens, uncached tokens. All 0, or it is a defect.
    pub left: (u64, u64, u64),
    /// Happenings that were worked off.
    pub happenings: u64,
    /// What the policy's tuner did; `None` where it has none.
    pub tuning: Option<Tuning>,
}

/// A replica as it stands there.
#[derive(Debug)]
pub(super) struct Stand {
    pub(super) name: Arc<str>,
    pub(super) engine: Engine,
    pub(super) path: Path,
    pub(super) health: Health,
    /// The engine's next happening as entered in the agenda.
    pub(super) entered: Option<At>,
    /// Whether it refuses connections.
    pub(super) down: bool,
    /// Speed without faults.
    pub(super) speed: f64,
    /// Highest speed that faults ever give it: for the bound.
    pub(super) fastest: f64,
    /// When its process started.
    pub(super) started: At,
    /// Requests sent there and not ended.
    pub(super) inflight: u32,
    /// Prefill tokens on their way there, where a clairvoyant decides.
    pub(super) coming_tokens: u64,
}

/// Everything there is.
#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) setup: &'a Setup<'a>,
    /// `None`: a clairvoyant decides.
    pub(super) router: Option<(Router, PolicyIndex)>,
    pub(super) seed: u64,
    pub(super) secret: u64,
    pub(super) start: At,
    pub(super) agenda: Agenda,
    pub(super) stands: Vec<Stand>,
    /// By request.
    pub(super) live: Vec<Option<Box<Live>>>,
    pub(super) in_flight: usize,
    /// Requests whose time came while the client had as many in flight as it may.
    pub(super) held: VecDeque<usize>,
    pub(super) decisions: u64,
    /// Requests that wait at the router's gate, by the number that it calls them by.
    pub(super) waiting: HashMap<u64, usize>,
    /// Times of requests and of retries over the last 10 s.
    pub(super) recent: (VecDeque<At>, VecDeque<At>),
    /// Which faults hold now.
    pub(super) active: Vec<bool>,
    pub(super) outputs: Vec<Output>,
    pub(super) book: Book<'a>,
    pub(super) samples: Vec<Sample>,
    pub(super) bounds_ms: Vec<f64>,
}

/// Simulates one run.
///
/// # Errors
/// A replica whose engine cannot be.
pub fn simulate(setup: &Setup<'_>, chooser: Chooser, seed: u64) -> Result<Run, SimulateError> {
    Ok(run(World::new(setup, chooser, seed, None)?))
}

/// The same, and every record that `serve` would write down goes to `recorder`, in order.
///
/// # Errors
/// A replica whose engine cannot be.
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
    while world.samples.len() < world.setup.workload.rows().len() {
        let Some((at, what)) = world.agenda.next() else { break };
        happenings += 1;
        world.happen(at, what);
    }
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
        for (number, fault) in setup.scenario.faults.iter().enumerate() {
            world.agenda.enter(start.plus(micros(fault.at_s * 1e3)), Happening::FaultBegins(number));
        }
        if world.router.is_some() {
            for member in setup.members {
                world.agenda.enter(BEGINNING, Happening::ProbeSent(member.replica.id));
                world.agenda.enter(BEGINNING, Happening::ScrapeSent(member.replica.id));
            }
        }
        Ok(world)
    }

    /// When the trace would send a request.
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
